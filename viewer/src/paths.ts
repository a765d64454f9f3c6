// Walks over the graph: ways from one node to another, and what is near a node. Breadth first, without recursion.
import { type Graph, Kind } from "./graph";

export interface Path {
  from: number; to: number;
  /** The nodes of a shortest way, first to last. */
  shortest: number[];
  /** 1 for each node that is on some way. */
  onWay: Uint8Array;
  count: number;
}

/** What is reached from a node along `start` and `next`, and from where it was reached first (-1: not reached). */
function reached(from: number, start: Int32Array, next: Int32Array): Int32Array {
  const cameFrom = new Int32Array(start.length - 1).fill(-1);
  const queue = [from];
  cameFrom[from] = from;
  for (let head = 0; head < queue.length; head++) {
    const node = queue[head];
    for (let k = start[node]; k < start[node + 1]; k++) {
      if (cameFrom[next[k]] >= 0) continue;
      cameFrom[next[k]] = node;
      queue.push(next[k]);
    }
  }
  return cameFrom;
}

/** All ways from one node to another, in the direction in which values flow; null where there is none. */
export function pathBetween(graph: Graph, from: number, to: number): Path | null {
  const forth = reached(from, graph.userStart, graph.userNode);
  if (forth[to] < 0) return null;
  const back = reached(to, graph.operandStart, graph.operandNode);
  const onWay = forth.map((at, i) => Number(at >= 0 && back[i] >= 0));
  const shortest = [to];
  for (let at = to; at !== from; at = forth[at]) shortest.push(forth[at]);
  return { from, to, shortest: shortest.reverse(), onWay: Uint8Array.from(onWay), count: onWay.reduce((a, b) => a + b, 0) };
}

/** Where a way from this node is expected to lead: the end of the forward (the loss), and the graph's outputs that it reaches. */
export function destinations(graph: Graph, from: number): number[] {
  const forth = reached(from, graph.userStart, graph.userNode);
  const outputs = graph.outputs.map(([node]) => node).filter((node) => forth[node] >= 0 && node !== from);
  const found = outputs.filter((node) => graph.order[node] === 0).slice(0, 1);
  for (let node = graph.count - 1; node >= 0 && !found.length; node--) {
    if (forth[node] >= 0 && node !== from && graph.order[node] === 0 && graph.kind[node] !== Kind.InBody) found.push(node);
  }
  return [...new Set([...found, ...outputs])];
}

/** The nodes nearest to one, at most `most` of them, itself first. */
export function neighbours(graph: Graph, node: number, most: number): number[] {
  const near = new Set([node]);
  for (const at of near) {
    for (const other of [...graph.operands(at), ...graph.readers(at)]) {
      if (near.size >= most) return [...near];
      near.add(other);
    }
  }
  return [...near];
}
