// The canvas of the graph and the small one beside it: when they are drawn, and what the pointer does to them.
import { Camera } from "./camera";
import { drawable, found } from "./dom";
import { Raster } from "./raster";
import { Scene, type Theme } from "./scene";
import { CanvasSurface } from "./surface";
import type { View } from "./view";

const CLICK = 4;
/** Where a frame comes later than this after the one before, in milliseconds, while things move, edges are left out. */
const SLOW = 40, STILL = 160;
const MINIMAP = { width: 170, height: 120 };

export function themeOf(element: Element): Theme {
  const style = getComputedStyle(element), of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: of("paper"), panel: of("panel"), ink: of("ink"), soft: of("soft"), line: of("line"), edge: of("edge"), accent: of("accent"),
    operand: of("operand"), user: of("user"), band: of("band"), group: of("group"),
  };
}

export class Stage {
  readonly canvas = found("graph-canvas", HTMLCanvasElement);
  private readonly minimap = found("minimap", HTMLCanvasElement);
  private readonly raster = new Raster();
  private readonly small = new Raster();
  private readonly overview = new Camera(MINIMAP.width, MINIMAP.height);
  private surface: CanvasSurface | null = null;
  private asked = false;
  private edges = true;
  private lastChange = 0;
  private lastFrame = 0;
  private overviewIsOld = true;
  theme: Theme;

  constructor(private readonly view: View) {
    this.theme = themeOf(document.documentElement);
    this.minimap.width = MINIMAP.width * 2;
    this.minimap.height = MINIMAP.height * 2;
    this.minimap.style.width = `${MINIMAP.width}px`;
    this.minimap.style.height = `${MINIMAP.height}px`;
    view.listen((change) => {
      if (change !== "camera" && change !== "message") this.overviewIsOld = true;
      this.ask();
    });
    new ResizeObserver(() => {
      view.resize(this.canvas.clientWidth, this.canvas.clientHeight);
      this.draw();
    }).observe(this.canvas);
    this.pointer();
  }

  ask(): void {
    this.lastChange = performance.now();
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((time) => {
      this.asked = false;
      const took = time - this.lastFrame;
      if (took > SLOW && took < STILL) this.withoutEdges();
      this.lastFrame = time;
      this.draw();
    });
  }

  draw(): void {
    const { view } = this, { context } = drawable(this.canvas);
    this.surface ??= new CanvasSurface(context);
    const scene = new Scene(view, view.camera, this.theme);
    scene.draw(this.surface, () => {
      const picture = this.raster.draw(view.graph, view.placement, view.camera, view.colouring, view.lit, view.patterns, window.devicePixelRatio);
      context.drawImage(picture, 0, 0, view.camera.width, view.camera.height);
    }, this.edges);
    view.visibleNodes = scene.visible;
    view.frames++;
    view.firstPaint ||= performance.now();
    this.drawMinimap();
  }

  /** Leaves edges out until nothing has moved for a while. */
  private withoutEdges(): void {
    if (!this.edges) return;
    this.edges = false;
    const wait = (): void => {
      if (performance.now() - this.lastChange < STILL) {
        setTimeout(wait, STILL);
        return;
      }
      this.edges = true;
      this.lastFrame = 0;
      this.draw();
    };
    setTimeout(wait, STILL);
  }

  private drawMinimap(): void {
    const { view, overview } = this, context = this.minimap.getContext("2d");
    if (context === null) return;
    context.setTransform(2, 0, 0, 2, 0, 0);
    if (this.overviewIsOld) {
      overview.fit(view.placement.bounds, 6, 6, 6);
      this.small.draw(view.graph, view.placement, overview, view.colouring, view.lit, false, 2);
      this.overviewIsOld = false;
    }
    context.fillStyle = this.theme.panel;
    context.fillRect(0, 0, MINIMAP.width, MINIMAP.height);
    context.drawImage(this.small.canvas, 0, 0, MINIMAP.width, MINIMAP.height);
    const seen = view.camera.seen(), { bounds } = view.placement;
    // Where all is in sight it would say nothing, and hide some of it.
    this.minimap.hidden = seen.x0 <= bounds.x0 && seen.x1 >= bounds.x1 && seen.y0 <= bounds.y0 && seen.y1 >= bounds.y1;
    context.strokeStyle = this.theme.accent;
    context.lineWidth = 1.5;
    const x = overview.screenX(seen.x0), y = overview.screenY(seen.y0);
    context.strokeRect(x, y, Math.max(3, overview.screenX(seen.x1) - x), Math.max(3, overview.screenY(seen.y1) - y));
  }

  private at(event: MouseEvent, element: Element): [number, number] {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  private pointer(): void {
    const { canvas, view, minimap } = this, down = new Map<number, [number, number]>();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      down.set(event.pointerId, this.at(event, canvas));
      moved = down.size > 1 ? Infinity : 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const at = this.at(event, canvas), before = down.get(event.pointerId);
      if (before === undefined) {
        this.hover(...at);
        return;
      }
      moved += Math.abs(at[0] - before[0]) + Math.abs(at[1] - before[1]);
      const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
      if (other) { // two fingers: what was between them stays between them
        const distance = (p: [number, number]): number => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
        view.zoom(distance(at) / distance(before), other[0], other[1]);
      } else if (moved > CLICK) {
        canvas.classList.add("moving");
        view.pan(at[0] - before[0], at[1] - before[1]);
      }
      down.set(event.pointerId, at);
    });
    const up = (event: PointerEvent): void => {
      if (down.delete(event.pointerId) && moved <= CLICK && event.type === "pointerup") this.click(event);
      canvas.classList.remove("moving");
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { this.hover(-1, -1); });
    canvas.addEventListener("dblclick", (event) => {
      if (view.nodeAt(...this.at(event, canvas)) < 0) view.zoom(event.shiftKey ? 0.5 : 2, ...this.at(event, canvas));
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      view.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.008 : 0.0018)), ...this.at(event, canvas));
    }, { passive: false });
    const jump = (event: PointerEvent): void => {
      if (!event.buttons) return;
      const [x, y] = this.at(event, minimap);
      view.centreOn(this.overview.worldX(x), this.overview.worldY(y));
    };
    minimap.addEventListener("pointerdown", (event) => {
      minimap.setPointerCapture(event.pointerId);
      jump(event);
    });
    minimap.addEventListener("pointermove", jump);
  }

  private hover(x: number, y: number): void {
    const { view, canvas } = this, node = x < 0 ? -1 : view.nodeAt(x, y);
    canvas.classList.toggle("over", node >= 0 || x >= 0 && view.closedAt(x, y) >= 0);
    if (node === view.hovered) return;
    view.hovered = node;
    canvas.title = node < 0 ? "" : [view.graph.heading(node), view.graph.text("name", node), view.graph.text("shape", node)]
      .map((text) => text.slice(0, 200)).join("\n");
    this.ask();
  }

  private click(event: PointerEvent): void {
    const { view } = this, at = this.at(event, this.canvas), node = view.nodeAt(...at);
    const group = node < 0 ? view.closedAt(...at) : -1;
    if (group >= 0) view.setClosed([group], false);
    else if (event.shiftKey && node >= 0 && view.selected >= 0 && node !== view.selected) view.showPath(view.selected, node);
    else view.select(node);
  }
}
