// The graph around the selection as a tree: operands of operands to one side, users of users to the other, opened as asked.
// Arrows, Home, End and Enter work in it as in any tree (the WAI-ARIA pattern), so it is read without seeing the picture.
import { element, shortened } from "./dom";
import type { Graph } from "./graph";
import type { View } from "./view";

const MOST_LISTED = 20;
type Side = "operands" | "readers";

function row(graph: Graph, node: number): HTMLElement[] {
  const heading = element("span", { class: "grow" });
  heading.append(shortened(graph.heading(node), 60));
  if (graph.isFunction(node)) heading.append(" ", element("span", { class: "soft mono" }, shortened(graph.text("name", node), 30)));
  return [heading, element("span", { class: "soft mono" }, graph.text("shape", node))];
}

/** Opens an item, making what is in it the first time; or closes it. */
function setOpen(item: Element, open: boolean): void {
  if (!item.hasAttribute("aria-expanded")) return;
  if (open && !item.querySelector(":scope > ul")) item.dispatchEvent(new CustomEvent("fill"));
  item.setAttribute("aria-expanded", String(open));
}

function itemOf(view: View, node: number, side: Side, level: number): HTMLElement {
  const { graph } = view, inner = graph[side](node), name = graph.isFunction(node) ? ` ${graph.text("name", node)}` : "";
  const line = element("div", { class: "row", click: () => { view.goTo(node); } });
  const item = element("li", {
    role: "treeitem", tabindex: -1, "aria-level": level, "data-node": node,
    "aria-label": `${graph.heading(node)}${name}, ${graph.text("shape", node)}`.slice(0, 200),
    ...(inner.length ? { "aria-expanded": "false" } : {}),
  }, line);
  const twist = element("span", { class: "twist", "aria-hidden": "true", click: (event) => {
    event.stopPropagation();
    setOpen(item, item.getAttribute("aria-expanded") !== "true");
  } });
  line.append(twist, ...row(graph, node));
  item.addEventListener("fill", (event) => {
    event.stopPropagation();
    item.append(groupOf(view, inner, side, level + 1));
  });
  return item;
}

function groupOf(view: View, nodes: number[], side: Side, level: number): HTMLElement {
  const list = element("ul", { role: "group" });
  const part = (from: number): void => {
    const to = Math.min(nodes.length, from + MOST_LISTED);
    for (let k = from; k < to; k++) list.append(itemOf(view, nodes[k], side, level));
    if (to === nodes.length) return;
    const more = element("li", { role: "treeitem", tabindex: -1, "aria-level": level, click: (event) => {
      event.stopPropagation();
      more.remove();
      part(to);
    } }, element("div", { class: "row" }, `${nodes.length - to} more`));
    list.append(more);
  };
  part(0);
  return list;
}

/** The items that are seen, from the top. */
function shownItems(tree: Element): HTMLElement[] {
  return [...tree.querySelectorAll<HTMLElement>("[role=treeitem]")].filter((item) => !item.parentElement?.closest("[aria-expanded=false]"));
}

function listen(tree: HTMLElement): void {
  const focus = (item: HTMLElement | null | undefined): void => {
    if (!item) return;
    for (const other of tree.querySelectorAll<HTMLElement>("[tabindex='0']")) other.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  };
  tree.addEventListener("keydown", (event) => {
    const items = shownItems(tree), at = items.indexOf(document.activeElement as HTMLElement), item = items[at];
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const open = item.getAttribute("aria-expanded");
    const does: Record<string, () => void> = {
      ArrowDown: () => { focus(items[at + 1]); }, ArrowUp: () => { focus(items[at - 1]); },
      Home: () => { focus(items[0]); }, End: () => { focus(items[items.length - 1]); },
      ArrowRight: () => {
        if (open === "false") setOpen(item, true);
        else if (open === "true") focus(item.querySelector<HTMLElement>("[role=treeitem]"));
      },
      ArrowLeft: () => {
        if (open === "true") setOpen(item, false);
        else focus(item.parentElement?.closest<HTMLElement>("[role=treeitem]"));
      },
      Enter: () => { item.querySelector<HTMLElement>(":scope > .row")?.click(); },
      " ": () => { item.querySelector<HTMLElement>(":scope > .row")?.click(); },
    };
    const run = Object.hasOwn(does, event.key) ? does[event.key] : undefined;
    if (!run) return;
    event.preventDefault();
    event.stopPropagation();
    run();
  });
}

/** Operands and users of the selection. */
export function treeDetails(view: View): HTMLElement {
  const { graph, selected: node } = view, tree = element("ul", { role: "tree", "aria-label": "Operands and users", class: "tree" });
  for (const [label, side] of [["Operands", "operands"], ["Users", "readers"]] as [string, Side][]) {
    const nodes = graph[side](node), heading = `${label} (${nodes.length})`;
    const item = element("li", {
      role: "treeitem", tabindex: -1, "aria-level": 1, "aria-label": heading, ...(nodes.length ? { "aria-expanded": "true" } : {}),
    }, element("div", { class: "side row", click: () => { setOpen(item, item.getAttribute("aria-expanded") !== "true"); } }, heading));
    if (nodes.length) item.append(groupOf(view, nodes, side, 2));
    tree.append(item);
  }
  tree.querySelector<HTMLElement>("[role=treeitem]")?.setAttribute("tabindex", "0");
  listen(tree);
  return tree;
}
