// What is drawn: columns, groups, edges, nodes, and what is selected, in as much detail as there is room for.
import type { Camera } from "./camera";
import { type Graph, Kind, State } from "./graph";
import type { Rectangle } from "./grid";
import { several } from "./numbers";
import type { PlacedGroup } from "./placement";
import { CHARACTER, type LineStyle, type Surface, type TextStyle } from "./surface";
import type { View } from "./view";

/** Colours of the page, as its style sheet has them. */
export interface Theme {
  paper: string; panel: string; ink: string; soft: string; line: string; edge: string; accent: string;
  operand: string; user: string; band: string; group: string;
}

/** Heights of a box on the screen: from here on nodes are drawn one by one; with edges; with arrows. */
export const BOXES = 5.5;
const EDGES = 3.8, ARROWS = 13;
/** Size of letters to which names shrink before they are cut, and the height of a box for a name of that size. */
const LEAST = 5, NAMED = 8.4;
/** The room above a group's nodes for its name, as it was laid out. */
const TITLE = 26;
const MOST_WITH_EDGES = 2500, MOST_RINGS = 3000;

/** How many letters fit; what was made to fit does, whatever its size was rounded to. */
function lettersIn(size: number, width: number): number {
  return Math.floor(width / (size * CHARACTER) + 1e-6);
}

function cut(text: string, size: number, width: number): string {
  const most = lettersIn(size, width);
  const short = text.length > 4 * most ? text.slice(0, 4 * most) : text;
  const letters = [...short.replace(/\s+/g, " ")];
  return letters.length <= most && short === text ? letters.join("") : most < 2 ? "" : `${letters.slice(0, most - 1).join("")}…`;
}

/** The same for a path such as a parameter's, whose end says most. */
function cutAhead(text: string, size: number, width: number): string {
  const most = lettersIn(size, width), letters = [...text.slice(-4 * most)];
  return letters.length <= most || most < 4 || !text.includes("/") ? cut(text, size, width) : `…${letters.slice(1 - most).join("")}`;
}

function orderSign(order: number): string {
  return order === 0 ? "f" : order === 1 ? "∂" : `∂${"⁰¹²³⁴⁵⁶⁷⁸⁹"[order] ?? order}`;
}

export class Scene {
  private readonly seen: number[] = [];
  constructor(private readonly view: View, private readonly camera: Camera, private readonly theme: Theme) {
    const { placement, graph } = view;
    placement.grid.within(camera.seen(graph.widest), (node) => {
      if (placement.holder[node] === -1) this.seen.push(node);
    });
  }

  get visible(): number { return this.seen.length; }

  private get boxHeight(): number { return this.view.graph.height * this.camera.scale; }
  get single(): boolean { return this.boxHeight >= BOXES; }

  /** All but nodes too small to be drawn one by one, which `raster` is asked for in between. */
  draw(surface: Surface, raster: (() => void) | null, edges = true): void {
    const { view } = this;
    this.columns(surface);
    this.openGroups(surface);
    const detailed = this.boxHeight >= EDGES && this.seen.length <= MOST_WITH_EDGES && edges;
    if (detailed) this.edges(surface);
    if (raster !== null && !this.single) raster();
    else for (const node of this.seen) this.node(surface, node);
    if (edges) this.bundles(surface);
    for (const group of view.placement.groups) if (group.closed) this.closedGroup(surface, group);
    this.groupNames(surface);
    this.hits(surface);
    this.path(surface);
    this.selection(surface);
    this.headings(surface);
  }

  private onScreen(r: Rectangle): { x: number; y: number; width: number; height: number } | null {
    const { camera } = this, x = camera.screenX(r.x0), y = camera.screenY(r.y0);
    const width = (r.x1 - r.x0) * camera.scale, height = (r.y1 - r.y0) * camera.scale;
    return x > camera.width || y > camera.height || x + width < 0 || y + height < 0 ? null : { x, y, width, height };
  }

  private columns(surface: Surface): void {
    surface.rectangle(0, 0, this.camera.width, this.camera.height, { fill: this.theme.paper });
    for (const column of this.view.placement.columns) {
      const at = this.onScreen({ ...column, y0: column.y0 - 1e6, y1: column.y1 + 1e6 });
      if (at && column.order % 2 === 1) surface.rectangle(at.x, 0, at.width, this.camera.height, { fill: this.theme.band });
    }
  }

  /** The names of columns stay at the top. */
  private headings(surface: Surface): void {
    const { camera, theme } = this;
    for (const column of this.view.placement.columns) {
      const at = this.onScreen({ ...column, y0: column.y0 - 1e6, y1: column.y1 + 1e6 });
      if (!at || at.width < 14) continue;
      const left = Math.max(0, at.x), right = Math.min(camera.width, at.x + at.width), room = right - left - 8;
      const fitting = Math.min(12, room / (column.label.length * CHARACTER)), size = fitting < 8 ? 11 : fitting;
      const text = fitting < 8 ? orderSign(column.order) : column.label;
      const width = [...text].length * size * CHARACTER + (room > 80 ? 16 : 8), middle = (left + right) / 2;
      surface.rectangle(middle - width / 2, 6, width, 20, { fill: theme.panel, stroke: theme.line, radius: 10 });
      surface.text(text, middle, 16, { size, fill: theme.soft, align: "center" });
    }
  }

  private openGroups(surface: Surface): void {
    const { theme, view } = this;
    for (const group of view.placement.groups) {
      const { kind } = view.graph.groups[group.group];
      if (group.closed || kind === "order") continue;
      const at = this.onScreen(group);
      if (!at || at.width < 6 || at.height < 4) continue;
      const dash = kind === "body" ? [6, 3] : kind === "scope" ? undefined : [2, 3];
      surface.rectangle(at.x, at.y, at.width, at.height, {
        fill: theme.group, stroke: theme.line, radius: at.height > 14 ? 6 : 0, ...(dash ? { dash } : {}),
      });
    }
  }

  private groupTitle(group: PlacedGroup): string {
    const { name, kind, times } = this.view.graph.groups[group.group];
    return times > 1 && kind !== "rest" ? `${name} × ${times.toLocaleString("en")}` : name;
  }

  /** Text as large as it fits, but no smaller than LEAST: then it is cut. */
  private fitted(surface: Surface, text: string, x: number, y: number, room: number, style: TextStyle, cutting = cut): void {
    const size = Math.max(Math.min(style.size, LEAST), Math.min(style.size, room / ([...text].length * CHARACTER)));
    surface.text(cutting(text, size, room), x, y, { ...style, size });
  }

  /** Names of open groups, in the margin above their nodes, or large across nodes too small for names of their own. */
  private groupNames(surface: Surface): void {
    const { theme, view, camera } = this;
    const margin = Math.min(16, TITLE * camera.scale), fits = margin * 0.75 >= LEAST;
    for (const group of view.placement.groups) {
      if (group.closed || view.graph.groups[group.group].kind === "order") continue;
      const at = this.onScreen(group);
      if (!at) continue;
      if (fits) {
        const y = Math.min(Math.max(at.y, 30), at.y + at.height - margin), x = Math.max(at.x, 2);
        const text = this.groupTitle(group), room = at.x + at.width - x - 8;
        if (y !== at.y) surface.rectangle(x + 2, y, Math.min(room, [...text].length * margin * 0.75 * CHARACTER) + 6, margin + 2, { fill: theme.panel });
        this.fitted(surface, text, x + 5, y + margin * 0.62, room, { size: margin * 0.75, fill: theme.soft });
      } else if (!this.single && (group.depth === 1 || at.height > 90)) {
        const size = Math.min(13, at.height * 0.6), text = cut(this.groupTitle(group), size, at.width - 6);
        if (size < 8 || text.length < 4) continue;
        surface.rectangle(at.x + 2, at.y + 2, [...text].length * size * CHARACTER + 8, size + 4, { fill: theme.panel, radius: 3 });
        surface.text(text, at.x + 6, at.y + 4 + size / 2, { size, fill: theme.ink });
      }
    }
  }

  private closedGroup(surface: Surface, group: PlacedGroup): void {
    const { theme, view } = this, at = this.onScreen(group), { count } = view.graph.groups[group.group];
    if (!at) return;
    if (at.height > 8 && at.width > 12) { // a pile of sheets
      surface.rectangle(at.x + 3, at.y + 3, at.width - 3, at.height - 3, { fill: theme.panel, stroke: theme.line, radius: 5 });
    }
    const width = at.width - 3, height = at.height - 3;
    surface.rectangle(at.x, at.y, Math.max(1, width), Math.max(1, height), { fill: theme.panel, stroke: theme.soft, radius: height > 12 ? 5 : 0 });
    const size = Math.min(14, height * (height > 40 ? 0.3 : height > 18 ? 0.55 : 0.75));
    if (size < 6) return;
    const name = `▸ ${this.groupTitle(group)}`, more = several(count, "node");
    // In the middle of what is seen of it.
    const middle = (Math.max(at.y, 0) + Math.min(at.y + height, this.camera.height)) / 2, left = Math.max(at.x, 0) + 8;
    const apart = height >= 2.6 * size;
    const room = at.x + width - 4 - left, both = `${name}  ${more}`;
    const text = apart || lettersIn(LEAST, room) < both.length ? name : both;
    this.fitted(surface, text, left, apart ? middle - size * 0.6 : middle, room, { size, fill: theme.ink, bold: true });
    if (apart) this.fitted(surface, more, left, middle + size * 0.75, room, { size: size * 0.85, fill: theme.soft });
  }

  private node(surface: Surface, node: number): void {
    const { camera, theme, view } = this, { graph, placement, colouring } = view;
    const width = graph.widths[node] * camera.scale, height = this.boxHeight;
    const x = camera.screenX(placement.x[node]) - width / 2, y = camera.screenY(placement.y[node]) - height / 2;
    const shade = colouring.shades[colouring.of[node]], faint = view.lit !== null && view.lit[node] === 0;
    const kind = graph.kind[node], leaf = !graph.isFunction(node), large = height >= 12;
    surface.rectangle(x, y, width, height, {
      fill: faint ? shade.dim : shade.fill,
      ...(view.patterns && shade.pattern ? { pattern: shade.pattern, ink: shade.ink } : {}),
      ...(large ? { stroke: faint ? theme.line : theme.edge, radius: leaf ? height / 2 : Math.min(5, height * 0.18) } : {}),
      ...(large && kind === Kind.Constant ? { dash: [3, 2] } : {}),
    });
    if (large && kind === Kind.Loop) surface.rectangle(x + 2.5, y + 2.5, width - 5, height - 5, { stroke: shade.ink, radius: 3 });
    if (height >= NAMED) this.label(surface, node, x, y, faint ? theme.soft : shade.ink);
  }

  private label(surface: Surface, node: number, x: number, y: number, fill: string): void {
    const { graph } = this.view, { scale } = this.camera, width = graph.widths[node] * scale, height = this.boxHeight;
    const leaf = !graph.isFunction(node), inset = (leaf ? 16 : 10) * scale, room = width - 2 * inset;
    const lines = height >= 44 && !leaf ? 3 : height >= 25 ? 2 : 1, title = graph.caption(node);
    const badge = lines === 1 ? "" : this.badge(node), letters = [...title].length + (badge ? (badge.length + 1) * 0.8 : 0);
    const size = Math.min(15, height / (lines === 1 ? 1.5 : lines + 0.55), room / (letters * CHARACTER));
    const top = y + height / 2 - (lines - 1) * size * 0.56, below = { size: size * 0.84, fill };
    this.fitted(surface, title, x + inset, top, badge ? room - (badge.length + 1) * size * 0.8 * CHARACTER : room, { size: Math.max(size, LEAST), fill, bold: true }, leaf ? cutAhead : cut);
    if (badge) surface.text(badge, x + width - inset, top, { size: size * 0.8, fill, align: "right" });
    const said = lines === 1 ? [] : lines === 2 ? [graph.text("shape", node)] : [graph.text("name", node), graph.text("shape", node)];
    said.forEach((text, k) => { this.fitted(surface, text, x + inset, top + size * (k ? 2.2 : 1.15), room, below); });
  }

  /** What is said in the corner of a box, so that it is read without colour. */
  private badge(node: number): string {
    const { graph } = this.view, order = graph.order[node], said: string[] = [];
    if (graph.state[node] === State.Kept) said.push("kept");
    if (graph.state[node] >= State.Recomputed) said.push("again");
    if (graph.runs[node] > 1) said.push(`×${graph.runs[node]}`);
    if (order > 0 && graph.isFunction(node)) said.push(orderSign(order));
    return said.join(" ");
  }

  /** The curve of an edge between two boxes on the screen: down, up, or around what lies between them (always down in a neighbourhood). */
  private curve(graph: Graph, from: number, to: number, into: number[], above = false): void {
    const { camera, view: { placement } } = this;
    const box = (end: number): { x: number; y: number; halfWidth: number; halfHeight: number } => {
      const group = end < 0 ? -1 - end : placement.holder[end];
      if (group < 0) {
        return { x: camera.screenX(placement.x[end]), y: camera.screenY(placement.y[end]),
          halfWidth: graph.widths[end] * camera.scale / 2, halfHeight: graph.height * camera.scale / 2 };
      }
      const at = placement.groups[placement.placeOfGroup[group]];
      return { x: camera.screenX((at.x0 + at.x1) / 2), y: camera.screenY((at.y0 + at.y1) / 2),
        halfWidth: (at.x1 - at.x0) * camera.scale / 2, halfHeight: (at.y1 - at.y0) * camera.scale / 2 };
    };
    const a = box(from), b = box(to), dx = b.x - a.x, dy = b.y - a.y;
    const across = !this.view.near && Math.abs(dx) > (a.halfWidth + b.halfWidth) * 1.02;
    if (!across && !this.view.near && Math.abs(dy) > 2.2 * (a.halfHeight + b.halfHeight)) { // past what lies between, at the right
      const bulge = Math.min(70, 10 + Math.abs(dy) * 0.12) * Math.min(1, camera.scale * 2);
      const right = Math.max(a.x + a.halfWidth, b.x + b.halfWidth) + bulge;
      into.push(a.x + a.halfWidth, a.y, right, a.y, right, b.y, b.x + b.halfWidth, b.y);
    } else if (across && above && Math.abs(dy) < a.halfHeight && Math.abs(dx) > 3 * (a.halfWidth + b.halfWidth) / 2) { // over what is between
      const lift = a.halfHeight + Math.min(28, 10 + Math.abs(dx) * 0.02), side = Math.sign(dx) * 0.5;
      const x0 = a.x + side * a.halfWidth, x1 = b.x - side * b.halfWidth;
      into.push(x0, a.y - a.halfHeight, x0, a.y - a.halfHeight - lift, x1, b.y - b.halfHeight - lift, x1, b.y - b.halfHeight);
    } else if (across) {
      const side = Math.sign(dx), x0 = a.x + side * a.halfWidth, x1 = b.x - side * b.halfWidth, bend = Math.min(Math.abs(x1 - x0) / 2, 60);
      into.push(x0, a.y, x0 + side * bend, a.y, x1 - side * bend, b.y, x1, b.y);
    } else {
      const side = Math.sign(dy) || 1, y0 = a.y + side * a.halfHeight, y1 = b.y - side * b.halfHeight, bend = (y1 - y0) / 2;
      into.push(a.x, y0, a.x, y0 + bend, b.x, y1 - bend, b.x, y1);
    }
  }

  private edges(surface: Surface): void {
    const { camera, theme, view } = this, { graph, placement } = view, near: number[] = [], far: number[] = [];
    const seen = camera.seen((camera.width + camera.height) / camera.scale / 3);
    for (const node of this.seen) {
      if (view.lit !== null && view.lit[node] === 0) continue;
      for (const operand of graph.operands(node)) {
        const x = placement.x[operand], y = placement.y[operand];
        if (placement.holder[operand] !== -1 || x < seen.x0 || x > seen.x1 || y < seen.y0 || y > seen.y1) continue;
        this.curve(graph, operand, node, graph.order[operand] === graph.order[node] ? near : far);
      }
    }
    const arrows = this.boxHeight >= ARROWS;
    surface.curves(far, { stroke: theme.edge, width: 1, alpha: 0.28, arrows });
    surface.curves(near, { stroke: theme.edge, width: 1.2, alpha: 0.7, arrows });
  }

  /** Edges that end at closed groups: one for all between the same two, the more the wider. */
  private bundles(surface: Surface): void {
    const { theme, view } = this, widths = new Map<number, number[]>();
    const shown = view.placement.bundles.filter(({ from, to }) => this.boxHeight >= EDGES || (from < 0 && to < 0));
    for (const { from, to, count } of shown.sort((a, b) => b.count - a.count).slice(0, 400)) {
      const width = Math.min(6, Math.ceil(1 + Math.log2(count))), points = widths.get(width) ?? [];
      this.curve(view.graph, from, to, points);
      widths.set(width, points);
    }
    for (const [width, points] of widths) surface.curves(points, { stroke: theme.edge, width, alpha: 0.3, arrows: this.boxHeight >= ARROWS });
  }

  private ring(surface: Surface, node: number, stroke: string, width: number, least: number): void {
    const { camera, view: { placement, graph } } = this;
    if (placement.holder[node] !== -1) return;
    const w = Math.max(least, graph.widths[node] * camera.scale + 4), h = Math.max(least, this.boxHeight + 4);
    surface.rectangle(camera.screenX(placement.x[node]) - w / 2, camera.screenY(placement.y[node]) - h / 2, w, h, {
      stroke, width, radius: graph.isFunction(node) ? 5 : h / 2,
    });
  }

  private hits(surface: Surface): void {
    const { view, theme } = this;
    if (view.path || view.step >= 0 || !view.hits.length || view.hits.length > MOST_RINGS) return;
    const found = new Set(view.hits);
    for (const node of this.seen) if (found.has(node)) this.ring(surface, node, theme.accent, 1.5, 5);
  }

  private path(surface: Surface): void {
    const { view, theme } = this;
    if (!view.path) return;
    const { shortest } = view.path, points: number[] = [];
    for (let k = 1; k < shortest.length; k++) {
      if (view.placement.holder[shortest[k - 1]] !== -2 && view.placement.holder[shortest[k]] !== -2) {
        this.curve(view.graph, shortest[k - 1], shortest[k], points, true);
      }
    }
    surface.curves(points, { stroke: theme.accent, width: 2.5, arrows: true });
    for (const node of shortest) this.ring(surface, node, theme.accent, 2, 5);
  }

  private selection(surface: Surface): void {
    const { view, theme } = this, { graph, placement, selected } = view;
    if (view.hovered >= 0 && view.hovered !== selected) this.ring(surface, view.hovered, theme.soft, 1.5, 8);
    if (selected < 0) return;
    const drawn = (nodes: number[], stroke: string, dash: number[] | null, curve: (other: number, into: number[]) => void): void => {
      const points: number[] = [], style: LineStyle = { stroke, width: 2, arrows: true, ...(dash ? { dash } : {}) };
      for (const other of nodes) if (placement.holder[other] !== -2 && placement.holder[selected] !== -2) curve(other, points);
      surface.curves(points, style);
      for (const other of nodes.slice(0, 500)) this.ring(surface, other, stroke, 1.5, 6);
    };
    if (!view.path) {
      drawn(graph.operands(selected), theme.operand, null, (other, into) => this.curve(graph, other, selected, into, true));
      drawn(graph.readers(selected), theme.user, [6, 3], (other, into) => this.curve(graph, selected, other, into, true));
    }
    this.ring(surface, selected, theme.ink, 3, 12);
  }
}
