// A node and what is near it, laid out anew by dagre so that every edge can be followed.
import dagre from "@dagrejs/dagre";
import type { Graph } from "./graph";
import { neighbours } from "./paths";
import { gridOf, type Placement } from "./placement";

export const MOST_NEIGHBOURS = 200;

export function placeNeighbourhood(graph: Graph, node: number, most: number): Placement {
  const near = neighbours(graph, node, Math.min(most, MOST_NEIGHBOURS)).sort((a, b) => a - b), within = new Set(near);
  const layout = new dagre.graphlib.Graph();
  layout.setGraph({ rankdir: "TB", nodesep: graph.height, ranksep: graph.height * 1.1 });
  layout.setDefaultEdgeLabel(() => ({}));
  for (const at of near) layout.setNode(String(at), { width: graph.widths[at], height: graph.height });
  for (const at of near) {
    for (const operand of graph.operands(at)) if (within.has(operand)) layout.setEdge(String(operand), String(at));
  }
  dagre.layout(layout);
  const x = new Float64Array(graph.count), y = new Float64Array(graph.count);
  const holder = new Int32Array(graph.count).fill(-2), nodes = Int32Array.from(near);
  const bounds = { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
  for (const at of near) {
    const placed = layout.node(String(at));
    holder[at] = -1;
    x[at] = placed.x;
    y[at] = placed.y;
    bounds.x0 = Math.min(bounds.x0, placed.x - graph.widths[at]);
    bounds.x1 = Math.max(bounds.x1, placed.x + graph.widths[at]);
    bounds.y0 = Math.min(bounds.y0, placed.y - graph.height);
    bounds.y1 = Math.max(bounds.y1, placed.y + graph.height);
  }
  return {
    nodes, x, y, holder, groups: [], placeOfGroup: new Int32Array(graph.groups.length).fill(-1), columns: [],
    bundles: [], bounds, grid: gridOf(graph, nodes, x, y, bounds),
  };
}
