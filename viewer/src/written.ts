// What Python writes into the page: columns over the nodes, in an order in which they can run.
// An index into `strings` is marked as such by the type `Text`; -1 stands for none.

export type Text = number;
/** One number for each node, or one for all. */
export type Column = number[] | number;

export interface WrittenNodes {
  name: Column; op: Column; kind: Column; order: Column;
  row: Column; x: Column; y: Column; width: Column;
  shape: Column; arguments: Column; scope: Column; place: Column;
  origin: Column; rule: Column; base: Column; asked: Column;
  flops: Column; bytes: Column; size: Column; runs: Column; state: Column;
  group: Column;
}

/** "rest": what stands closed until it is asked for. */
export type GroupKind = "order" | "scope" | "body" | "block" | "repetition" | "rest";

export interface WrittenGroup {
  name: Text; kind: GroupKind; parent: number; times: number;
  box: [number, number, number, number];
}

/** The column of one order of differentiation. */
export interface OrderColumn { order: number; x0: number; x1: number; y0?: number; y1?: number; label: string }

export interface Memory { live: number[]; step: number[]; first: number[]; last: number[]; peak: number }

export interface Written {
  version: number;
  title: string;
  strings: string[];
  nodes: WrittenNodes;
  operands: { start: number[]; node: number[]; output: number[] };
  groups: WrittenGroup[];
  ops: Record<string, { formula: string; summary: string }>;
  outputs: [number, number][];
  columns: OrderColumn[];
  height: number;
  memory: Memory | null;
  totals: { functions: number; flops: number; bytes: number; peak: number };
}

function isDeflated(value: object): value is { deflated: string } {
  return "deflated" in value;
}

async function inflated(base64: string): Promise<string> {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** The graph that stands in the page, plain or deflated. */
export async function readWritten(element: Element): Promise<Written> {
  let value = JSON.parse(element.textContent ?? "null") as Written | { deflated: string } | null;
  if (value === null) throw new Error("this page holds no graph");
  if (isDeflated(value)) value = JSON.parse(await inflated(value.deflated)) as Written;
  if (value.version !== 1) throw new Error(`this page reads graphs of version 1, and is given version ${value.version}`);
  return value;
}
