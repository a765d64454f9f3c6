// Where things are drawn, given which groups are closed.
import type { Graph } from "./graph";
import { Grid, type Rectangle } from "./grid";
import { movedRows } from "./rows";

export interface PlacedGroup extends Rectangle { group: number; depth: number; closed: boolean }
export interface PlacedColumn extends Rectangle { order: number; label: string }
/** Edges that end at a closed group, drawn as one. */
export interface Bundle { from: number; to: number; count: number }

export interface Placement {
  nodes: Int32Array;
  x: Float64Array; y: Float64Array;
  /** The closed group in which a node is hidden; -1 if it is shown, -2 if it is left out. */
  holder: Int32Array;
  groups: PlacedGroup[];
  /** Where each group is in `groups`, or -1. */
  placeOfGroup: Int32Array;
  columns: PlacedColumn[];
  /** Ends are nodes, or -1 - group. */
  bundles: Bundle[];
  bounds: Rectangle;
  grid: Grid;
}

/** The outermost closed group of each group (itself among them), or -1; and how deep each one lies. */
function holders(graph: Graph, closed: ReadonlySet<number>): { holder: Int32Array; depth: Int32Array } {
  const count = graph.groups.length, holder = new Int32Array(count), depth = new Int32Array(count).fill(-1);
  const stack: number[] = [];
  for (let g = 0; g < count; g++) {
    for (let at = g; at >= 0 && depth[at] < 0; at = graph.groups[at].parent) stack.push(at);
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      const parent = graph.groups[at].parent;
      depth[at] = parent < 0 ? 0 : depth[parent] + 1;
      const above = parent < 0 ? -1 : holder[parent];
      holder[at] = above >= 0 ? above : closed.has(at) ? at : -1;
    }
  }
  return { holder, depth };
}

function bundlesOf(graph: Graph, holder: Int32Array): Bundle[] {
  const found = new Map<number, Bundle>(), span = graph.count + graph.groups.length + 1;
  for (let node = 0; node < graph.count; node++) {
    const to = holder[node] >= 0 ? -1 - holder[node] : node;
    for (let k = graph.operandStart[node]; k < graph.operandStart[node + 1]; k++) {
      const operand = graph.operandNode[k];
      if (holder[node] < 0 && holder[operand] < 0 || holder[node] === holder[operand]) continue;
      const from = holder[operand] >= 0 ? -1 - holder[operand] : operand;
      const key = (from + graph.groups.length) * span + to + graph.groups.length;
      const bundle = found.get(key);
      if (bundle) bundle.count++;
      else found.set(key, { from, to, count: 1 });
    }
  }
  return [...found.values()];
}

function boundsOf(graph: Graph, nodes: Int32Array, x: Float64Array, y: Float64Array, boxes: Rectangle[]): Rectangle {
  const bounds = { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
  const include = (x0: number, y0: number, x1: number, y1: number): void => {
    bounds.x0 = Math.min(bounds.x0, x0);
    bounds.y0 = Math.min(bounds.y0, y0);
    bounds.x1 = Math.max(bounds.x1, x1);
    bounds.y1 = Math.max(bounds.y1, y1);
  };
  const halfHeight = graph.height / 2;
  for (const i of nodes) include(x[i] - graph.widths[i] / 2, y[i] - halfHeight, x[i] + graph.widths[i] / 2, y[i] + halfHeight);
  for (const box of boxes) include(box.x0, box.y0, box.x1, box.y1);
  return bounds.x0 <= bounds.x1 ? bounds : { x0: 0, y0: 0, x1: 1, y1: 1 };
}

export function gridOf(graph: Graph, nodes: Int32Array, x: Float64Array, y: Float64Array, bounds: Rectangle): Grid {
  const area = (bounds.x1 - bounds.x0) * (bounds.y1 - bounds.y0);
  const side = Math.max(10 * graph.height, Math.sqrt(area / 40_000));
  return new Grid(nodes, x, y, bounds, side, side);
}

export function place(graph: Graph, closed: ReadonlySet<number>): Placement {
  const { holder: groupHolder, depth } = holders(graph, closed);
  const holder = graph.group.map((group) => (group < 0 ? -1 : groupHolder[group]));
  const nodes = Int32Array.from({ length: graph.count }, (_, i) => i).filter((i) => holder[i] < 0);
  const held = Int32Array.from(closed).filter((g) => groupHolder[g] === g && graph.groups[g].count > 0);
  const moved = movedRows(graph, nodes, held), { x } = graph, y = graph.y.map((at, i) => at + moved[graph.row[i]]);

  const groups: PlacedGroup[] = [];
  const placeOfGroup = new Int32Array(graph.groups.length).fill(-1);
  const parentsFirst = graph.groups.map((_, g) => g).sort((a, b) => depth[a] - depth[b]);
  for (const g of parentsFirst) {
    const { box, count, firstRow, lastRow } = graph.groups[g];
    if (!count || (groupHolder[g] >= 0 && groupHolder[g] !== g)) continue;
    placeOfGroup[g] = groups.length;
    groups.push({
      group: g, depth: depth[g], closed: groupHolder[g] === g,
      x0: box[0], y0: box[1] + moved[firstRow], x1: box[2], y1: box[3] + moved[lastRow],
    });
  }
  const bounds = boundsOf(graph, nodes, x, y, groups);
  const columns = graph.columns.map((column): PlacedColumn => ({ ...column, y0: bounds.y0, y1: bounds.y1 }));
  return {
    nodes, x, y, holder, groups, placeOfGroup, columns, bundles: bundlesOf(graph, holder), bounds,
    grid: gridOf(graph, nodes, x, y, bounds),
  };
}
