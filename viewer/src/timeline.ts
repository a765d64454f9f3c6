// The strip below the graph: bytes in memory at each step. A step is pointed at, clicked, or gone to by keys.
import { drawable, found } from "./dom";
import { inBytes } from "./numbers";
import type { Theme } from "./scene";
import type { View } from "./view";

const TOP = 22;

export class Timeline {
  private readonly canvas = found("timeline", HTMLCanvasElement);
  private readonly said = found("timeline-said", HTMLElement);
  private readonly strip = found("timeline-strip", HTMLElement);
  private hovered = -1;

  constructor(private readonly view: View, private readonly theme: () => Theme) {
    const { memory } = view.graph;
    this.strip.hidden = memory === null;
    if (memory === null) return;
    view.listen((change) => { if (change !== "camera" && change !== "message") this.draw(); });
    new ResizeObserver(() => { this.draw(); }).observe(this.canvas);
    const stepAt = (event: MouseEvent): number => {
      const box = this.canvas.getBoundingClientRect(), share = (event.clientX - box.left) / (box.width || 1);
      return Math.max(0, Math.min(memory.live.length - 1, Math.floor(share * memory.live.length)));
    };
    this.canvas.addEventListener("pointermove", (event) => {
      this.hovered = stepAt(event);
      if (event.buttons) view.setStep(this.hovered);
      else this.draw();
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.hovered = -1;
      this.draw();
    });
    this.canvas.addEventListener("pointerdown", (event) => { view.setStep(stepAt(event)); });
    this.canvas.addEventListener("keydown", (event) => {
      const step = Math.max(0, view.step), last = memory.live.length - 1, far = Math.max(1, Math.round(last / 20));
      const to: Record<string, number> = {
        ArrowLeft: step - 1, ArrowRight: step + 1, PageDown: step - far, PageUp: step + far, Home: 0, End: last,
      };
      if (!(event.key in to)) return;
      event.preventDefault();
      event.stopPropagation();
      view.setStep(Math.max(0, to[event.key]));
    });
  }

  draw(): void {
    const { memory } = this.view.graph;
    if (memory === null) return;
    const { context, width, height } = drawable(this.canvas), { live, peak } = memory, theme = this.theme();
    const most = Math.max(1, live[peak] ?? 1), y = (bytes: number): number => height - (height - TOP) * bytes / most;
    context.fillStyle = theme.panel;
    context.fillRect(0, 0, width, height);
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--area").trim();
    for (let x = 0; x < width; x++) { // of the steps in one pixel the largest
      const from = Math.floor(x * live.length / width), to = Math.max(from + 1, Math.floor((x + 1) * live.length / width));
      let bytes = 0;
      for (let step = from; step < Math.min(to, live.length); step++) bytes = Math.max(bytes, live[step]);
      context.fillRect(x, y(bytes), 1, height - y(bytes));
    }
    const mark = (step: number, colour: string): void => {
      if (step < 0) return;
      context.fillStyle = colour;
      context.fillRect((step + 0.5) * width / live.length - 1, TOP - 6, 2, height);
    };
    mark(peak, theme.soft);
    mark(this.hovered, theme.edge);
    mark(this.view.step, theme.accent);
    const step = this.hovered >= 0 ? this.hovered : this.view.step;
    const text = step < 0 ? `Memory of temporaries: at most ${inBytes(live[peak] ?? 0)}, at step ${peak + 1} of ${live.length}`
      : `Step ${step + 1} of ${live.length}: ${inBytes(live[step])}${step === peak ? ", the peak" : ""}`;
    this.said.textContent = text;
    this.canvas.setAttribute("aria-valuemin", "1");
    this.canvas.setAttribute("aria-valuemax", String(live.length));
    this.canvas.setAttribute("aria-valuenow", String(Math.max(0, this.view.step) + 1));
    this.canvas.setAttribute("aria-valuetext", text);
  }
}
