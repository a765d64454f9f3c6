// Searching: words that must all be found, each anywhere or, as in `op:tanh shape:128 order:2`, where it says; after `=` it is all that stands there.
import { type Graph, Kind } from "./graph";
import { neededFor } from "./needed";

type Field = keyof Graph["texts"];
const FIELDS: Record<string, Field> = {
  name: "name", op: "op", shape: "shape", scope: "scope", line: "place", place: "place", arguments: "arguments",
};
const ANYWHERE: Field[] = ["name", "op", "shape", "scope", "place"];
const KINDS: Record<string, Kind[]> = {
  function: [Kind.Function, Kind.Loop, Kind.InBody], input: [Kind.Leaf], parameter: [Kind.Parameter],
  constant: [Kind.Constant], loop: [Kind.Loop],
};

type Test = (node: number) => boolean;

export class Search {
  private lower: string[] | null = null;
  constructor(private readonly graph: Graph) {}

  private found(word: string, exact = false): Uint8Array {
    this.lower ??= this.graph.strings.map((string) => string.toLowerCase());
    return Uint8Array.from(this.lower, (string) => Number(exact ? string === word : string.includes(word)));
  }

  private test(word: string): Test {
    const colon = word.indexOf(":"), field = word.slice(0, colon), wanted = word.slice(colon + 1);
    const { graph } = this;
    if (colon > 0 && field === "order") {
      const match = /^([<>]?=?)(\d+)$/.exec(wanted);
      if (!match) return () => false;
      const limit = Number(match[2]), relation = match[1];
      return (node) => {
        const order = graph.order[node];
        return relation.startsWith(">") && order > limit || relation.startsWith("<") && order < limit
          || (relation === "" || relation.endsWith("=")) && order === limit;
      };
    }
    if (colon > 0 && field === "kind") {
      const kinds = KINDS[wanted] ?? [];
      return (node) => kinds.includes(graph.kind[node]);
    }
    if (colon > 0 && (field === "behind" || field === "only")) {
      const node = this.node(wanted);
      if (node < 0) return () => false;
      const needed = neededFor(this.graph, node)[field];
      return (at) => needed[at] === 1;
    }
    if (colon > 0 && Object.hasOwn(FIELDS, field)) {
      const column = graph.texts[FIELDS[field]], exact = wanted.startsWith("=");
      const found = this.found(exact ? wanted.slice(1) : wanted, exact);
      return (node) => column[node] >= 0 && found[column[node]] === 1;
    }
    const columns = ANYWHERE.map((name) => graph.texts[name]), found = this.found(word);
    return (node) => columns.some((column) => column[node] >= 0 && found[column[node]] === 1);
  }

  /** The node of this name, or of this number after a `#`, as names may hold anything; -1 for none. */
  private node(wanted: string): number {
    const { graph } = this;
    if (/^#\d+$/.test(wanted)) return Number(wanted.slice(1)) < graph.count ? Number(wanted.slice(1)) : -1;
    for (let node = 0; node < graph.count; node++) if (graph.text("name", node).toLowerCase() === wanted) return node;
    return -1;
  }

  /** The nodes that every word of the text is found in, in the order in which they run. */
  run(text: string): number[] {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const tests = words.map((word) => this.test(word)), hits: number[] = [];
    for (let node = 0; node < this.graph.count; node++) if (tests.every((test) => test(node))) hits.push(node);
    return hits;
  }
}
