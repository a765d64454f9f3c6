// The graph in other forms: SVG and PNG of what is seen or of all, Graphviz's DOT, Model Explorer's JSON.
import { Camera } from "./camera";
import { type Graph, Kind } from "./graph";
import { Scene, type Theme } from "./scene";
import { SvgSurface } from "./surface";
import type { View } from "./view";

/** The scene as an SVG: what the window shows, or the whole graph at a size at which boxes have names. */
export function svg(view: View, theme: Theme, whole: boolean): string {
  let { camera } = view;
  if (whole) {
    const { x0, y0, x1, y1 } = view.placement.bounds;
    camera = new Camera(x1 - x0 + 60, y1 - y0 + 90);
    camera.x = x0 - 30;
    camera.y = y0 - 45;
  }
  const surface = new SvgSurface(camera.width, camera.height);
  new Scene(view, camera, theme).draw(surface, null);
  return surface.written(view.graph.title);
}

const KINDS: Record<number, string> = {
  [Kind.Leaf]: "input", [Kind.Parameter]: "parameter", [Kind.Constant]: "constant",
};

function label(graph: Graph, node: number): string {
  return graph.isFunction(node) ? graph.text("op", node) : KINDS[graph.kind[node]] ?? "input";
}

/** The groups around a node, outermost first. */
function enclosing(graph: Graph, node: number): number[] {
  const found: number[] = [];
  for (let group = graph.group[node]; group >= 0; group = graph.groups[group].parent) {
    if (graph.groups[group].kind !== "rest") found.push(group);
  }
  return found.reverse();
}

export function modelExplorer(graph: Graph): string {
  const nodes = Array.from({ length: graph.count }, (_, node) => {
    const attributes: [string, string][] = [
      ["name", graph.text("name", node)], ["order", String(graph.order[node])], ["arguments", graph.text("arguments", node)],
      ["scope", graph.text("scope", node)], ["source", graph.text("place", node)],
      ["operations", String(graph.flops[node])], ["bytes", String(graph.bytes[node])], ["runs", String(graph.runs[node])],
    ];
    const start = graph.operandStart[node];
    return {
      id: String(node),
      label: label(graph, node),
      namespace: enclosing(graph, node).map((group) => graph.groups[group].name.replaceAll("/", "∕") || "_").join("/"),
      attrs: attributes.filter(([, value]) => value !== "").map(([key, value]) => ({ key, value })),
      incomingEdges: Array.from({ length: graph.operandStart[node + 1] - start }, (_, k) => ({
        sourceNodeId: String(graph.operandNode[start + k]),
        sourceNodeOutputId: String(graph.operandOutput[start + k]),
        targetNodeInputId: String(k),
      })),
      outputsMetadata: [{ id: "0", attrs: [{ key: "tensor_shape", value: graph.text("shape", node) }] }],
    };
  });
  return JSON.stringify({ label: graph.title, graphs: [{ id: graph.title || "graph", nodes }] });
}

function quoted(text: string): string {
  return `"${text.replace(/\\/g, "\\\\").replace(/"/g, "\\\"").replace(/[\0-\x1f]+/g, " ")}"`;
}

/** Clusters are groups: statements of a group stand together, in the order of a walk over the groups. */
export function dot(graph: Graph): string {
  const members = new Map<number, number[]>();
  for (let node = 0; node < graph.count; node++) {
    const group = graph.group[node];
    const there = members.get(group);
    if (there) there.push(node);
    else members.set(group, [node]);
  }
  const lines = [`digraph ${quoted(graph.title)} {`, "node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=monospace];"];
  const statements = (group: number): void => {
    for (const node of members.get(group) ?? []) {
      const said = [label(graph, node), graph.text("name", node), graph.text("shape", node)].map((text) => quoted(text).slice(1, -1));
      const hue = graph.isFunction(node) ? graph.order[node] : -1;
      const fill = hue < 0 ? "#e6e9ef" : ["#cfe4f6", "#fbe2b4", "#c8e9d8", "#f1d6e7"][Math.min(3, hue)];
      lines.push(`n${node} [label="${said.join("\\n")}", fillcolor="${fill}"${graph.isFunction(node) ? "" : ", shape=ellipse"}];`);
    }
  };
  statements(-1);
  const work: (number | "}")[] = graph.groups.map((_, g) => g).filter((g) => graph.groups[g].parent < 0).reverse();
  for (let next = work.pop(); next !== undefined; next = work.pop()) {
    if (next === "}") {
      lines.push("}");
      continue;
    }
    const { name, times, children } = graph.groups[next];
    lines.push(`subgraph cluster_${next} {`, `label=${quoted(times > 1 ? `${name} × ${times}` : name)};`);
    statements(next);
    work.push("}", ...[...children].reverse());
  }
  for (let node = 0; node < graph.count; node++) {
    for (const operand of graph.operands(node)) lines.push(`n${operand} -> n${node};`);
  }
  return `${lines.join("\n")}\n}\n`;
}

export function save(content: string | Blob, name: string, type: string): void {
  const address = URL.createObjectURL(typeof content === "string" ? new Blob([content], { type }) : content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => { URL.revokeObjectURL(address); }, 10_000);
}
