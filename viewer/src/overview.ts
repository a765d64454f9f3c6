// What is said while nothing is selected: how large the graph is, what costs most, its groups.
import { bars, byOp, byOrder } from "./costs";
import { element, shortened } from "./dom";
import { type Graph, Kind } from "./graph";
import { sums } from "./needed";
import { amount, inBytes, several, share } from "./numbers";
import { nodeList } from "./panel";
import type { View } from "./view";

const FEW = 6;

const MOST_GROUPS = 400;

/** Groups as nested lists; those in closed ones are left out. */
function groupTree(view: View): HTMLElement {
  const { graph } = view, root = element("ul", { "aria-label": "Groups" });
  const within = (group: number): number[] => (group < 0 ? graph.groups.map((_, g) => g).filter((g) => graph.groups[g].parent < 0)
    : graph.groups[group].children).filter((g) => graph.groups[g].count > 0);
  const work: [number, HTMLElement][] = within(-1).map((g): [number, HTMLElement] => [g, root]).reverse();
  let made = 0;
  for (let next = work.pop(); next !== undefined; next = work.pop()) {
    const [group, list] = next, { name, times, kind, count } = graph.groups[group], open = !view.closed.has(group);
    if (++made > MOST_GROUPS) {
      root.append(element("li", { class: "soft" }, "and more: close some to see them"));
      break;
    }
    const item = element("li", {}, element("button", {
      class: "row", "aria-expanded": String(open), "data-group": group, click: () => { view.setClosed([group], open); },
    }, element("span", { "aria-hidden": "true" }, open ? "▾" : "▸"),
    element("span", { class: "grow" }, shortened(times > 1 && kind !== "rest" ? `${name} × ${times}` : name, 60)),
    element("span", { class: "soft mono" }, several(count, "node"))));
    list.append(item);
    const inner = open ? within(group) : [];
    if (!inner.length) continue;
    const nested = element("ul");
    item.append(nested);
    work.push(...inner.map((g): [number, HTMLElement] => [g, nested]).reverse());
  }
  return root;
}

export function overviewDetails(view: View): Node[] {
  const { graph } = view, { totals } = graph, parts: Node[] = [element("h2", {}, shortened(graph.title, 200))];
  const list = element("dl");
  const rows: [string, string][] = [
    ["functions", totals.functions.toLocaleString("en")], ["operations", amount(totals.flops)],
    ["bytes read and written", inBytes(totals.bytes)], ["peak of memory", inBytes(totals.peak)],
  ];
  for (const [term, value] of rows) list.append(element("dt", {}, term), element("dd", {}, value));
  parts.push(list);
  const ops = sums(graph, null, byOp(graph)).sort((a, b) => b.flops - a.flops).slice(0, FEW);
  parts.push(element("h3", {}, "Operations by order"), bars(view, "Operations by order", sums(graph, null, byOrder(graph)), totals.flops));
  parts.push(element("h3", {}, "Operations by op"), bars(view, "Operations by op", ops, totals.flops));
  const functions = [...graph.flops.keys()].filter((node) => graph.isFunction(node) && graph.kind[node] !== Kind.InBody);
  const flops = (node: number): number => graph.flops[node] * graph.runs[node];
  const dearest = functions.sort((a, b) => flops(b) - flops(a)).slice(0, FEW);
  parts.push(element("h3", {}, "Most operations"),
    nodeList(view, "Most operations", dearest, (node) => `${amount(flops(node))}  ${share(flops(node), totals.flops)}`));
  if (graph.groups.length) {
    parts.push(element("h3", {}, "Groups"), element("div", { class: "actions" },
      element("button", { click: () => { view.setClosed(graph.groups.keys(), false); } }, "Open all"),
      element("button", { click: () => { view.setClosed(foldable(graph), true); } }, "Close all")), groupTree(view));
  }
  return parts;
}

/** What "close all" closes: the outermost groups within each column. */
export function foldable(graph: Graph): number[] {
  return graph.groups.map((_, g) => g).filter((g) => {
    const { kind, parent } = graph.groups[g];
    return kind !== "order" && (parent < 0 || graph.groups[parent].kind === "order");
  });
}

/** What is alive at the step that is looked at. */
export function aliveDetails(view: View): Node[] {
  const { graph, step } = view, { memory } = graph, alive = view.alive();
  if (memory === null) return [];
  const node = memory.step[step];
  return [
    element("h2", {}, `In memory at step ${step + 1} of ${memory.live.length}`),
    element("p", {}, `${inBytes(memory.live[step])}${step === memory.peak ? ", the peak" : ""}; ${several(alive.length, "value")}`),
    ...(node >= 0 ? [element("h3", {}, "Runs now"), nodeList(view, "Runs now", [node], (at) => graph.text("shape", at))] : []),
    element("h3", {}, "Alive, the largest first"), nodeList(view, "Alive", alive, (at) => inBytes(graph.size[at])),
  ];
}

/** The way that is shown, from node to node. */
export function pathDetails(view: View): Node[] {
  const { graph, path } = view;
  if (path === null) return [];
  return [
    element("h3", {}, `Shortest path (${path.shortest.length})`),
    nodeList(view, "Shortest path", path.shortest, (node) => graph.text("shape", node)),
    element("p", { class: "soft" }, `${several(path.count, "node")} on all the ways`),
  ];
}
