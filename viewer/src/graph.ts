// The graph as typed arrays, with users derived from operands. Nothing here changes once it is made.
import type { Column, GroupKind, Memory, OrderColumn, Written } from "./written";

export enum Kind { Function, Leaf, Parameter, Constant, Loop, InBody }
export enum State { Nothing, Kept, Recomputed, Recomputation }

export interface Group {
  name: string; kind: GroupKind; parent: number; times: number; children: number[];
  box: [number, number, number, number];
  /** Nodes in it, with those of the groups in it; likewise the other three. */
  count: number;
  flops: number;
  firstRow: number;
  lastRow: number;
}

function ints(column: Column, count: number): Int32Array {
  return typeof column === "number" ? new Int32Array(count).fill(column) : Int32Array.from(column);
}

function floats(column: Column, count: number): Float64Array {
  return typeof column === "number" ? new Float64Array(count).fill(column) : Float64Array.from(column);
}

export class Graph {
  readonly count: number;
  readonly title: string;
  readonly order: Int32Array; readonly kind: Int32Array; readonly state: Int32Array; readonly group: Int32Array;
  readonly origin: Int32Array; readonly base: Int32Array; readonly row: Int32Array;
  readonly x: Float64Array; readonly y: Float64Array;
  readonly flops: Float64Array; readonly bytes: Float64Array; readonly size: Float64Array; readonly runs: Float64Array;
  readonly operandStart: Int32Array; readonly operandNode: Int32Array; readonly operandOutput: Int32Array;
  readonly userStart: Int32Array; readonly userNode: Int32Array;
  readonly groups: Group[];
  readonly ops: Written["ops"];
  readonly outputs: [number, number][];
  readonly columns: OrderColumn[];
  /** The width of each box, in which its title fits, and the largest. */
  readonly widths: Float64Array; readonly widest: number; readonly height: number;
  readonly memory: Memory | null;
  readonly totals: Written["totals"];
  readonly strings: string[];
  readonly texts: { [K in "name" | "op" | "shape" | "arguments" | "scope" | "place" | "rule" | "asked"]: Int32Array };
  private nodeOfName: Map<string, number> | null = null;

  constructor(written: Written) {
    const { nodes, operands } = written;
    const n = (this.count = operands.start.length - 1);
    this.title = written.title;
    this.strings = written.strings;
    this.texts = {
      name: ints(nodes.name, n), op: ints(nodes.op, n), shape: ints(nodes.shape, n),
      arguments: ints(nodes.arguments, n), scope: ints(nodes.scope, n), place: ints(nodes.place, n),
      rule: ints(nodes.rule, n), asked: ints(nodes.asked, n),
    };
    this.order = ints(nodes.order, n);
    this.kind = ints(nodes.kind, n);
    this.state = ints(nodes.state, n);
    this.group = ints(nodes.group, n);
    this.origin = ints(nodes.origin, n);
    this.base = ints(nodes.base, n);
    this.row = ints(nodes.row, n);
    this.x = floats(nodes.x, n);
    this.y = floats(nodes.y, n);
    this.flops = floats(nodes.flops, n);
    this.bytes = floats(nodes.bytes, n);
    this.size = floats(nodes.size, n);
    this.runs = floats(nodes.runs, n);
    this.operandStart = Int32Array.from(operands.start);
    this.operandNode = Int32Array.from(operands.node);
    this.operandOutput = Int32Array.from(operands.output);
    [this.userStart, this.userNode] = this.derivedUsers();
    this.groups = this.groupsOf(written);
    this.ops = written.ops;
    this.outputs = written.outputs;
    this.columns = written.columns;
    this.widths = floats(nodes.width, n);
    this.widest = this.widths.reduce((most, width) => Math.max(most, width), 0);
    this.height = written.height;
    this.memory = written.memory && written.memory.live.length ? written.memory : null;
    this.totals = written.totals;
  }

  private derivedUsers(): [Int32Array, Int32Array] {
    const start = new Int32Array(this.count + 1);
    for (const operand of this.operandNode) start[operand + 1]++;
    for (let i = 0; i < this.count; i++) start[i + 1] += start[i];
    const next = start.slice(), node = new Int32Array(this.operandNode.length);
    for (let i = 0; i < this.count; i++) {
      for (let k = this.operandStart[i]; k < this.operandStart[i + 1]; k++) node[next[this.operandNode[k]]++] = i;
    }
    return [start, node];
  }

  private groupsOf(written: Written): Group[] {
    const groups = written.groups.map((group): Group => ({
      ...group, children: [], name: this.strings[group.name] ?? "", count: 0, flops: 0, firstRow: Infinity, lastRow: -1,
    }));
    groups.forEach((group, i) => { if (group.parent >= 0) groups[group.parent].children.push(i); });
    for (let i = 0; i < this.count; i++) {
      for (let g = this.group[i]; g >= 0; g = groups[g].parent) {
        const group = groups[g];
        group.count++;
        if (this.kind[i] !== Kind.InBody) group.flops += this.flops[i] * this.runs[i];
        group.firstRow = Math.min(group.firstRow, this.row[i]);
        group.lastRow = Math.max(group.lastRow, this.row[i]);
      }
    }
    return groups;
  }

  text(what: keyof Graph["texts"], node: number): string {
    const at = this.texts[what][node];
    return at < 0 ? "" : this.strings[at];
  }

  /** What a node is called first where it is drawn: its op, or its own name if it is a leaf. */
  heading(node: number): string {
    return this.text("op", node) || this.text("name", node);
  }

  /** The same where it is drawn: of a path the end, since groups say the rest. */
  caption(node: number): string {
    return this.heading(node).split("/").at(-1) ?? "";
  }

  named(name: string): number {
    if (this.nodeOfName === null) {
      this.nodeOfName = new Map();
      for (let i = 0; i < this.count; i++) this.nodeOfName.set(this.text("name", i), i);
    }
    return this.nodeOfName.get(name) ?? -1;
  }

  isFunction(node: number): boolean {
    const kind = this.kind[node];
    return kind === Kind.Function || kind === Kind.Loop || kind === Kind.InBody;
  }

  /** The distinct nodes that a node reads, in order. */
  operands(node: number): number[] {
    return [...new Set(this.operandNode.subarray(this.operandStart[node], this.operandStart[node + 1]))];
  }

  /** The distinct nodes that read a node, in order. */
  readers(node: number): number[] {
    return [...new Set(this.userNode.subarray(this.userStart[node], this.userStart[node + 1]))];
  }
}
