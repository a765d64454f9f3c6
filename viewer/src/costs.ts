// Why something costs what it costs: shares of the operations as bars, and what stands behind a single node.
import { element, shortened } from "./dom";
import { type Graph, Kind } from "./graph";
import { neededFor, type Sum, sums, total } from "./needed";
import { amount, inBytes, several, share } from "./numbers";
import type { View } from "./view";

const TOP = 5;

export function orderLabel(graph: Graph, node: number): string {
  return graph.columns.find((column) => column.order === graph.order[node])?.label ?? `order ${graph.order[node]}`;
}

export function byOrder(graph: Graph, within = ""): (node: number) => [string, string] {
  return (node) => [orderLabel(graph, node), `${within}order:${graph.order[node]} kind:function`];
}

export function byOp(graph: Graph, within = ""): (node: number) => [string, string] {
  return (node) => [graph.text("op", node), `${within}kind:function op:=${graph.text("op", node).split(/\s/)[0]}`];
}

/** Shares of the operations as bars; each is a search for the functions in it. */
export function bars(view: View, label: string, all: Sum[], whole: number): HTMLElement {
  const list = element("ul", { "aria-label": label });
  for (const sum of all) {
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.max(0.5, 94 * sum.flops / (whole || 1))}%`;
    list.append(element("li", {},
      element("button", { class: "row", click: () => { view.find(sum.search); } },
        element("span", { class: "grow" }, shortened(sum.label, 40), " ", element("span", { class: "soft" }, several(sum.count, "function"))),
        element("span", { class: "soft mono" }, `${amount(sum.flops)}  ${share(sum.flops, whole)}`)), bar));
  }
  return list;
}

/** A function's own cost, that of what only it needs, and that of all it is computed from; and where the last of them goes. */
export function costDetails(view: View): { table: Node[]; behind: Node[] } {
  const { graph, selected: node } = view;
  if (!graph.isFunction(node)) {
    const list = element("dl");
    list.append(element("dt", {}, "size"), element("dd", {}, inBytes(graph.size[node])));
    return { table: [list], behind: [] };
  }
  const bodies = graph.kind[node] === Kind.InBody, runs = graph.runs[node];
  const { behind, only } = neededFor(graph, node), search = `behind:#${node} `;
  const among = (nodes: Uint8Array): Sum => total(sums(graph, nodes, () => ["", ""], bodies));
  const itself = Uint8Array.from({ length: graph.count }, (_, i) => Number(i === node));
  const columns: [string, string, Sum][] = [
    ["itself", "", among(itself)], ["only for it", `only:#${node}`, among(only)], ["all behind it", search.trim(), among(behind)],
  ];
  const rows: [string, (sum: Sum) => string][] = [
    ["operations", (sum) => amount(sum.flops)], ["of all", (sum) => share(sum.flops, graph.totals.flops) || "0 %"],
    ["bytes", (sum) => inBytes(sum.bytes)], ["functions", (sum) => sum.count.toLocaleString("en")],
  ];
  const head = element("tr", {}, element("td"), ...columns.map(([label, text]) => element("th", { scope: "col" },
    text ? element("button", { class: "link", title: `Search for ${text}`, click: () => { view.find(text); } }, label) : label)));
  const table = element("table", { "aria-label": "Cost" }, head, ...rows.map(([label, said]) => element("tr", {},
    element("th", { scope: "row" }, label), ...columns.map(([, , sum]) => element("td", {}, said(sum))))));
  const parts: Node[] = [element("h3", {}, "Cost"), table];
  const list = element("dl");
  list.append(element("dt", {}, "size of the result"), element("dd", {}, inBytes(graph.size[node])));
  if (runs > 1) list.append(element("dt", {}, "runs"), element("dd", {}, several(runs, "time")));
  parts.push(list);
  const whole = columns[2][2].flops, shares: Node[] = [];
  if (columns[2][2].count > 1) {
    shares.push(element("h3", {}, "Behind it, by order"), bars(view, "Behind it by order", sums(graph, behind, byOrder(graph, search), bodies), whole));
    const ops = sums(graph, behind, byOp(graph, search), bodies).sort((a, b) => b.flops - a.flops).slice(0, TOP);
    shares.push(element("h3", {}, "Behind it, by op"), bars(view, "Behind it by op", ops, whole));
  }
  return { table: parts, behind: shares };
}
