// What is looked at and how: the state of the page, and all that may be done to it. Parts of the page listen.
import { Camera } from "./camera";
import type { Graph } from "./graph";
import type { Rectangle } from "./grid";
import { COLOURINGS, type ColourBy, type Colouring, colouring } from "./palette";
import { destinations, type Path, pathBetween } from "./paths";
import { type Placement, place } from "./placement";
import { placeNeighbourhood } from "./neighbourhood";
import { BOXES } from "./scene";
import { Search } from "./search";

export type Change = "camera" | "selection" | "placement" | "colours" | "step" | "search" | "path" | "message";

/** Height of a box on the screen at which a node that is gone to is shown, and at which names are read on a narrow screen. */
const LEGIBLE = 32, READ = 16, NARROW = 600;
const NEAR = 40;

export class View {
  readonly camera = new Camera();
  readonly closed = new Set<number>();
  placement: Placement;
  colouring: Colouring;
  selected = -1;
  hovered = -1;
  searched = "";
  hits: number[] = [];
  hit = -1;
  path: Path | null = null;
  step = -1;
  patterns = false;
  dark = false;
  /** How many nodes the neighbourhood of the selection shows; 0 when the whole graph is looked at. */
  near = 0;
  message = "";
  visibleNodes = 0;
  frames = 0;
  firstPaint = 0;
  private readonly search: Search;
  private readonly listeners: ((change: Change) => void)[] = [];
  private lit_: Uint8Array | null | undefined;
  private whole: { x: number; y: number; scale: number } | null = null;

  constructor(readonly graph: Graph) {
    graph.groups.forEach((group, i) => { if (group.kind === "rest") this.closed.add(i); });
    this.placement = place(graph, this.closed);
    this.colouring = colouring(graph, "order", false);
    this.search = new Search(graph);
  }

  listen(listener: (change: Change) => void): void {
    this.listeners.push(listener);
  }

  private changed(...changes: Change[]): void {
    this.lit_ = undefined;
    for (const change of changes) for (const listener of this.listeners) listener(change);
  }

  private say(message: string): void {
    this.message = message;
    this.changed("message");
  }

  // What is in question, where something is: the rest is drawn faint.

  get lit(): Uint8Array | null {
    if (this.lit_ === undefined) this.lit_ = this.inQuestion();
    return this.lit_;
  }

  private inQuestion(): Uint8Array | null {
    if (this.path) return this.path.onWay;
    const nodes = this.step >= 0 ? this.alive() : this.hits;
    if (!nodes.length && this.step < 0) return null;
    const lit = new Uint8Array(this.graph.count);
    for (const node of nodes) lit[node] = 1;
    return lit;
  }

  /** The nodes whose results are in memory at the step that is looked at, the largest first. */
  alive(): number[] {
    const { memory, count, size } = this.graph, found: number[] = [];
    if (memory === null || this.step < 0) return found;
    for (let node = 0; node < count; node++) {
      if (memory.first[node] >= 0 && memory.first[node] <= this.step && this.step <= memory.last[node]) found.push(node);
    }
    return found.sort((a, b) => size[b] - size[a] || a - b);
  }

  // Moving

  resize(width: number, height: number): void {
    const { camera } = this, x = camera.worldX(camera.width / 2), y = camera.worldY(camera.height / 2);
    camera.width = width;
    camera.height = height;
    camera.centre(x, y);
    this.changed("camera");
  }

  pan(dx: number, dy: number): void {
    this.camera.pan(dx, dy);
    this.changed("camera");
  }

  zoom(factor: number, x?: number, y?: number): void {
    this.camera.zoom(factor, x, y);
    this.changed("camera");
  }

  fit(r: Rectangle = this.placement.bounds): void {
    this.camera.fit(r);
    this.changed("camera");
  }

  /** All of the graph; its upper part if it is too tall for its boxes to be seen, or wider than a narrow screen. */
  begin(): void {
    const { bounds } = this.placement, { camera } = this;
    this.fit();
    if (camera.width < NARROW && camera.scale * this.graph.height < READ) {
      camera.scale = READ / this.graph.height;
      camera.x = bounds.x0 - 10 / camera.scale;
      camera.y = bounds.y0 - 38 / camera.scale;
      return;
    }
    if (camera.scale * this.graph.height >= BOXES) return;
    const tall = (bounds.x1 - bounds.x0) * camera.height / camera.width;
    this.fit({ ...bounds, y1: Math.min(bounds.y1, bounds.y0 + tall) });
  }

  centreOn(x: number, y: number): void {
    this.camera.centre(x, y);
    this.changed("camera");
  }

  // Selecting

  select(node: number): void {
    if (this.selected === node) return;
    this.selected = node;
    if (this.near && node >= 0) this.lookNear(node);
    this.changed("selection");
  }

  /** Selects a node and brings it into sight: groups that hide it are opened. */
  goTo(node: number): void {
    if (node < 0) return;
    this.reveal(node);
    this.select(node);
    const { camera, graph, placement } = this, x = placement.x[node], y = placement.y[node];
    const sx = camera.screenX(x), sy = camera.screenY(y), legible = graph.height * camera.scale >= LEGIBLE * 0.6;
    if (legible && sx > 60 && sy > 50 && sx < camera.width - 60 && sy < camera.height - 40) return;
    if (!legible) camera.scale = LEGIBLE / graph.height;
    this.centreOn(x, y);
  }

  nodeAt(x: number, y: number): number {
    const { camera, graph, placement } = this, wx = camera.worldX(x), wy = camera.worldY(y);
    const slack = 3 / camera.scale;
    const reachY = Math.max(graph.height / 2, slack);
    let best = -1, nearest = Infinity;
    placement.grid.within({ x0: wx - graph.widest / 2 - slack, y0: wy - reachY, x1: wx + graph.widest / 2 + slack, y1: wy + reachY }, (node) => {
      const dx = Math.abs(placement.x[node] - wx), dy = Math.abs(placement.y[node] - wy);
      if (dx <= Math.max(graph.widths[node] / 2, slack) && dy <= reachY && dx + dy < nearest) [best, nearest] = [node, dx + dy];
    });
    return best;
  }

  /** The closed group at this place of the screen, or -1. */
  closedAt(x: number, y: number): number {
    const wx = this.camera.worldX(x), wy = this.camera.worldY(y);
    const found = this.placement.groups.find((g) => g.closed && g.x0 <= wx && wx <= g.x1 && g.y0 <= wy && wy <= g.y1);
    return found?.group ?? -1;
  }

  // Groups

  get openGroups(): number[] {
    return this.graph.groups.map((_, g) => g).filter((g) => !this.closed.has(g));
  }

  setClosed(groups: Iterable<number>, closed: boolean): void {
    const many = [...groups];
    for (const group of many) {
      if (closed) this.closed.add(group);
      else this.closed.delete(group);
    }
    const [group] = many, before = many.length === 1 && !this.near ? this.corner(group) : null;
    this.lookAtAll();
    const now = before && this.corner(group);
    if (before && now) this.pan(before.x - now.x, before.y - now.y); // where the pointer is
    else this.fit();
    if (many.length === 1) this.say(`${this.graph.groups[many[0]].name}: ${closed ? "closed" : "open"}`);
  }

  /** Where a group begins on the screen, or what hides it. */
  private corner(group: number): { x: number; y: number } | null {
    const { groups, placeOfGroup } = this.placement;
    let at = group;
    while (at >= 0 && placeOfGroup[at] < 0) at = this.graph.groups[at].parent;
    return at < 0 ? null : { x: this.camera.screenX(groups[placeOfGroup[at]].x0), y: this.camera.screenY(groups[placeOfGroup[at]].y0) };
  }

  private reveal(node: number): void {
    if (this.placement.holder[node] === -1) return;
    if (this.near) {
      this.lookNear(node);
      return;
    }
    for (let group = this.graph.group[node]; group >= 0; group = this.graph.groups[group].parent) this.closed.delete(group);
    this.replace(place(this.graph, this.closed));
  }

  private replace(placement: Placement): void {
    this.placement = placement;
    this.changed("placement");
  }

  // The neighbourhood of one node, laid out by itself

  lookNear(node: number, most = this.near || NEAR): void {
    if (node < 0) return;
    if (!this.near) this.whole = { x: this.camera.x, y: this.camera.y, scale: this.camera.scale };
    this.near = most;
    this.replace(placeNeighbourhood(this.graph, node, most));
    this.camera.fit(this.placement.bounds, 20, 38, 52, LEGIBLE / this.graph.height);
    this.select(node);
    this.say(`${this.placement.nodes.length} nodes around ${this.graph.text("name", node)}`);
  }

  lookAtAll(): void {
    if (this.near && this.whole) Object.assign(this.camera, this.whole);
    this.near = 0;
    this.replace(place(this.graph, this.closed));
  }

  // Colours

  setColour(by: ColourBy): void {
    this.colouring = colouring(this.graph, by, this.dark);
    this.changed("colours");
    this.say(`Coloured by ${COLOURINGS[by]}`);
  }

  setDark(dark: boolean): void {
    this.dark = dark;
    this.colouring = colouring(this.graph, this.colouring.by, dark);
    this.changed("colours");
  }

  setPatterns(patterns: boolean): void {
    this.patterns = patterns;
    this.changed("colours");
  }

  // Searching

  find(text: string): void {
    this.searched = text;
    this.hits = this.search.run(text);
    this.hit = -1;
    this.path = null;
    this.changed("search", "path");
  }

  /** To the next hit, or the one before, around the end. */
  nextHit(by: 1 | -1 = 1): void {
    const { hits } = this;
    if (!hits.length) return;
    this.hit = this.hit < 0 ? (by > 0 ? 0 : hits.length - 1) : (this.hit + by + hits.length) % hits.length;
    this.goTo(hits[this.hit]);
    this.changed("search");
    this.say(`${this.hit + 1} of ${hits.length}: ${this.graph.heading(hits[this.hit])}, ${this.graph.text("name", hits[this.hit])}`);
  }

  // Paths

  showPath(from: number, to: number): boolean {
    this.path = pathBetween(this.graph, from, to) ?? pathBetween(this.graph, to, from);
    this.changed("path");
    const names = [from, to].map((node) => this.graph.text("name", node));
    this.say(this.path ? `${this.path.count} nodes on the way from ${names[0]} to ${names[1]}, ${this.path.shortest.length} on the shortest`
      : `No way leads from ${names[0]} to ${names[1]}`);
    return this.path !== null;
  }

  /** The way from the selection to the end of the forward; asked again, to the outputs, one after the other; then none. */
  nextPath(): void {
    if (this.selected < 0) {
      this.say("Select a node first: p shows the way from it to the loss");
      return;
    }
    const ends = destinations(this.graph, this.selected);
    const at = this.path?.from === this.selected ? ends.indexOf(this.path.to) + 1 : 0;
    if (at < ends.length) this.showPath(this.selected, ends[at]);
    else this.clearPath(ends.length ? "No path shown" : "Nothing is computed from this node");
  }

  clearPath(message = "No path shown"): void {
    this.path = null;
    this.changed("path");
    this.say(message);
  }

  // Steps

  setStep(step: number): void {
    const { memory } = this.graph;
    if (memory === null) return;
    this.step = Math.max(-1, Math.min(memory.live.length - 1, step));
    this.changed("step");
  }
}
