// Folding anew: rows in which nothing is left to see take no room, and bands that have become short stand below one another.
import type { Graph } from "./graph";

export interface Folded {
  /** How much further down each row lies than it was laid out, and how much further to the right each column of the graph. */
  up: Float64Array; across: Float64Array;
  /** The column of the graph that a place lies in, as it was laid out. */
  columnAt: (x: number) => number;
  /** One of each order in each pile of bands. */
  columns: { order: number; label: string; x0: number; x1: number }[];
}

/** Between orders, between piles, and between bands of a pile, where the graph does not say. */
const BETWEEN = 106, PILES = 180, BANDS = 3;

interface Rows { before: Float64Array; now: Float64Array; band: Int32Array; heights: number[]; tops: number[]; most: number }

/** The height of each row within its band. A row that is higher up than the one before begins a band. */
function rowsOf(graph: Graph, shown: Int32Array, held: Int32Array): Rows {
  const rows = graph.row.reduce((most, row) => Math.max(most, row + 1), 0);
  const before = new Float64Array(rows).fill(NaN), now = new Float64Array(rows), keep = new Uint8Array(rows);
  for (let i = 0; i < graph.count; i++) if (Number.isNaN(before[graph.row[i]])) before[graph.row[i]] = graph.y[i];
  for (const node of shown) keep[graph.row[node]] = 1;
  for (const group of held) keep[graph.groups[group].firstRow] = 1;
  const band = new Int32Array(rows), heights: number[] = [], tops: number[] = [];
  let last = -1, most = 0;
  for (let row = 0; row < rows; row++) {
    if (Number.isNaN(before[row])) continue;
    if (last < 0 || before[row] < before[last]) {
      heights.push(0);
      tops.push(before[row]);
      now[row] = 0;
    } else now[row] = now[last] + (keep[row] ? before[row] - before[last] : 0);
    band[row] = heights.length - 1;
    heights[band[row]] = now[row];
    most = Math.max(most, before[row] - tops[band[row]]);
    last = row;
  }
  return { before, now, band, heights, tops, most };
}

/** The pile of each band, and where it begins now. No pile is higher than the highest band was laid out. */
function piled({ heights, tops, most }: Rows, between: number): { pile: number[]; begins: number[] } {
  const pile: number[] = [], begins: number[] = [];
  let at = -1, top = 0, end = 0;
  heights.forEach((height, band) => {
    if (at < 0 || end + between + height > top + most) {
      at++;
      top = tops[band];
      end = top - between;
    }
    pile.push(at);
    begins.push(end + between);
    end += between + height;
  });
  return { pile, begins };
}

export function foldedAgain(graph: Graph, shown: Int32Array, held: Int32Array): Folded {
  const rows = rowsOf(graph, shown, held), { pile, begins } = piled(rows, BANDS * graph.height);
  const up = rows.now.map((at, row) => (Number.isNaN(rows.before[row]) ? 0 : begins[rows.band[row]] + at - rows.before[row]));

  const sorted = [...graph.columns.keys()].sort((a, b) => graph.columns[a].x0 - graph.columns[b].x0);
  const starts = sorted.map((c) => graph.columns[c].x0);
  const columnAt = (x: number): number => { // columns are few, and lie apart
    let low = 0, high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= x) low = middle;
      else high = middle - 1;
    }
    return sorted[low] ?? 0;
  };
  const bandOf = (c: number): number => graph.columns[c].band ?? 0;
  let gap = Infinity;
  sorted.forEach((c, k) => { if (k > 0 && bandOf(c) === bandOf(sorted[k - 1])) gap = Math.min(gap, starts[k] - graph.columns[sorted[k - 1]].x1); });
  if (gap === Infinity) gap = BETWEEN;
  const across = new Float64Array(graph.columns.length), columns: Folded["columns"] = [];
  const orders = [...new Set(graph.columns.map(({ order }) => order))].sort((a, b) => a - b);
  let left = starts[0] ?? 0;
  for (let p = 0; p <= (pile[pile.length - 1] ?? -1); p++) {
    for (const order of orders) {
      const there = sorted.filter((c) => graph.columns[c].order === order && pile[bandOf(c)] === p);
      if (!there.length) continue;
      const right = left + Math.max(...there.map((c) => graph.columns[c].x1 - graph.columns[c].x0));
      columns.push({ order, label: graph.columns[there[0]].label, x0: left, x1: right });
      // The forward's last one is next to its gradient.
      for (const c of there) across[c] = order === orders[0] ? right - graph.columns[c].x1 : left - graph.columns[c].x0;
      left = right + gap;
    }
    left += PILES;
  }
  return { up, across, columnAt, columns };
}
