// What a node costs together with all that it takes to compute it. Every walk is once over nodes and edges.
import { type Graph, Kind } from "./graph";

export interface Needed {
  /** 1 for each node that this one is computed from, and for itself. */
  behind: Uint8Array;
  /** 1 for those of them that nothing else needs: without this node the graph would not hold them. */
  only: Uint8Array;
}

/** Operands come before what reads them, so one way down the nodes finds both. */
export function neededFor(graph: Graph, node: number): Needed {
  const behind = new Uint8Array(graph.count), only = new Uint8Array(graph.count);
  const { operandStart, operandNode, userStart, userNode, kind } = graph, inBody = kind[node] === Kind.InBody;
  const given = new Uint8Array(graph.count);
  for (const [output] of graph.outputs) given[output] = 1;
  behind[node] = only[node] = 1;
  for (let at = node; at >= 0; at--) {
    if (!behind[at]) continue;
    for (let k = operandStart[at]; k < operandStart[at + 1]; k++) behind[operandNode[k]] = 1;
    if (at === node || given[at]) continue;
    only[at] = 1;
    for (let k = userStart[at]; k < userStart[at + 1] && only[at]; k++) {
      // What a body reads, the function that has the body reads too.
      if (!only[userNode[k]] && (inBody || kind[userNode[k]] !== Kind.InBody)) only[at] = 0;
    }
  }
  return { behind, only };
}

export interface Sum { label: string; search: string; count: number; flops: number; bytes: number }

/** Adds up what functions take, by whatever they are told apart by; a loop counts with all that is in it. */
export function sums(graph: Graph, among: Uint8Array | null, of: (node: number) => [string, string], bodies = false): Sum[] {
  const found = new Map<string, Sum>();
  for (let node = 0; node < graph.count; node++) {
    if (among && !among[node] || !graph.isFunction(node) || graph.kind[node] === Kind.InBody && !bodies) continue;
    const [label, search] = of(node);
    let sum = found.get(label);
    if (sum === undefined) found.set(label, sum = { label, search, count: 0, flops: 0, bytes: 0 });
    sum.count++;
    sum.flops += graph.flops[node] * graph.runs[node];
    sum.bytes += graph.bytes[node] * graph.runs[node];
  }
  return [...found.values()];
}

export function total(all: Sum[]): Sum {
  const sum = { label: "", search: "", count: 0, flops: 0, bytes: 0 };
  for (const { count, flops, bytes } of all) {
    sum.count += count;
    sum.flops += flops;
    sum.bytes += bytes;
  }
  return sum;
}
