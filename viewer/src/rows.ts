// Rows in which nothing is left to see take no room.
import type { Graph } from "./graph";

/** How much further down each row lies than it was laid out. */
export function movedRows(graph: Graph, shown: Int32Array, held: Int32Array): Float64Array {
  const rows = graph.row.reduce((most, row) => Math.max(most, row + 1), 0);
  const laid = new Float64Array(rows).fill(NaN), moved = new Float64Array(rows), keep = new Uint8Array(rows);
  for (let i = 0; i < graph.count; i++) if (Number.isNaN(laid[graph.row[i]])) laid[graph.row[i]] = graph.y[i];
  for (const node of shown) keep[graph.row[node]] = 1;
  for (const group of held) keep[graph.groups[group].firstRow] = 1;
  let last = -1;
  for (let row = 0; row < rows; row++) {
    if (Number.isNaN(laid[row])) continue;
    if (last >= 0) moved[row] = moved[last] - (keep[row] ? 0 : laid[row] - laid[last]);
    last = row;
  }
  return moved;
}
