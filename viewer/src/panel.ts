// What is known of the selection, in words: lists of buttons, so that a keyboard and a screen reader go through the graph by them.
import { costDetails, orderLabel } from "./costs";
import { element, shortened } from "./dom";
import { Kind, State } from "./graph";
import { treeDetails } from "./tree";
import type { View } from "./view";

const KINDS: Record<number, string> = {
  [Kind.Function]: "function", [Kind.Leaf]: "input", [Kind.Parameter]: "parameter", [Kind.Constant]: "constant",
  [Kind.Loop]: "loop or branch", [Kind.InBody]: "function in a body",
};
const STATES: Record<number, string> = {
  [State.Kept]: "kept for a gradient", [State.Recomputed]: "computed again later", [State.Recomputation]: "computes again",
};
const MOST_LISTED = 60;

/** A node as a button that goes to it. */
export function nodeButton(view: View, node: number, more: string): HTMLElement {
  const { graph } = view, heading = element("span", { class: "grow" });
  heading.append(shortened(graph.heading(node), 60));
  if (graph.isFunction(node)) heading.append(" ", element("span", { class: "soft mono" }, shortened(graph.text("name", node), 30)));
  return element("button", { class: "row", click: () => { view.goTo(node); } }, heading, element("span", { class: "soft mono" }, more));
}

/** A list of nodes, long ones in parts. */
export function nodeList(view: View, label: string, nodes: number[], more: (node: number) => string): HTMLElement {
  const list = element("ul", { "aria-label": label });
  const part = (from: number): void => {
    const to = Math.min(nodes.length, from + MOST_LISTED);
    for (let k = from; k < to; k++) list.append(element("li", {}, nodeButton(view, nodes[k], more(nodes[k]))));
    if (to === nodes.length) return;
    const next = element("li", {}, element("button", { click: () => {
      next.remove();
      part(to);
    } }, `${nodes.length - to} more`));
    list.append(next);
  };
  part(0);
  return list;
}

function facts(rows: [string, string][]): HTMLElement {
  const list = element("dl");
  for (const [term, value] of rows) if (value !== "") list.append(element("dt", {}, term), element("dd", {}, shortened(value, 200)));
  return list;
}

function formula(text: string): HTMLElement {
  return element("pre", {}, shortened(text, 3000));
}

/** Why the node is there: the rule that emitted it, the functions that it comes from, and the lines of the program. */
function originDetails(view: View): Node[] {
  const { graph, selected: node } = view, origin = graph.origin[node], base = graph.base[node], parts: Node[] = [];
  const rule = graph.text("rule", node), emitted = graph.ops[rule]?.formula;
  const from = [...new Set([origin, base])].filter((at) => at >= 0 && at !== node);
  if (rule || from.length) {
    parts.push(element("h3", {}, "Comes from"));
    if (rule) parts.push(element("p", { class: "soft" }, `emitted by the backward rule of ${rule}`));
    if (emitted) parts.push(formula(emitted));
    if (from.length) parts.push(nodeList(view, "Comes from", from, (at) => orderLabel(graph, at)));
  }
  const lines = [["Source line", "place"], ["Gradient asked for", "asked"]] as const;
  for (const [heading, text] of lines) {
    if (graph.text(text, node)) parts.push(element("h3", {}, heading), element("pre", {}, shortened(graph.text(text, node), 600)));
  }
  return parts;
}

export function selectionDetails(view: View): Node[] {
  const { graph, selected: node } = view, name = graph.text("name", node), op = graph.text("op", node);
  const pills = [KINDS[graph.kind[node]] ?? "node", orderLabel(graph, node), STATES[graph.state[node]] ?? ""].filter(Boolean);
  const parts: Node[] = [
    element("h2", { id: "selection-heading" }, shortened(op || name, 300)),
    element("p", { class: "mono" }, shortened(op ? name : "", 300)),
    element("p", {}, ...pills.map((text) => element("span", { class: "pill" }, text))),
    facts([["shape", graph.text("shape", node)], ["arguments", graph.text("arguments", node)], ["scope", graph.text("scope", node)]]),
    element("div", { class: "actions" },
      element("button", { click: () => { view.nextPath(); } }, "Path to the loss"),
      element("button", { click: () => { view.lookNear(node); } }, "Around it"),
      element("button", { click: () => { closeAround(view, node); } }, "Close its group")),
  ];
  const own = graph.ops[op];
  if (own?.summary) parts.push(element("p", { class: "soft" }, shortened(own.summary, 600)));
  const { table, behind } = costDetails(view);
  parts.push(...table, treeDetails(view), ...originDetails(view), ...behind);
  if (own?.formula) parts.push(element("h3", {}, "Its backward rule"), formula(own.formula));
  return parts;
}

/** Closes the innermost open group around a node. */
export function closeAround(view: View, node: number): void {
  let group = node < 0 ? -1 : view.graph.group[node];
  while (group >= 0 && view.closed.has(group)) group = view.graph.groups[group].parent;
  if (group >= 0) view.setClosed([group], true);
}
