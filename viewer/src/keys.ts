// What each key does, and the help that says so.
import { element, found } from "./dom";
import type { View } from "./view";

export interface Controls {
  search(): void; colour(): void; patterns(): void; theme(): void; near(): void; peak(): void; exports(): void;
}

interface Key { keys: string[]; does: string; run: (view: View, controls: Controls) => void }

const PAN = 80;
const pan = (x: number, y: number) => (view: View): void => { view.pan(x * PAN, y * PAN); };
const neighbour = (of: "operands" | "readers") => (view: View): void => {
  const there = view.selected < 0 ? [] : view.graph[of](view.selected);
  if (there.length) view.goTo(there[0]);
};

const KEYS: Key[] = [
  { keys: ["/"], does: "search", run: (_, controls) => { controls.search(); } },
  { keys: ["n"], does: "next hit", run: (view) => { view.nextHit(1); } },
  { keys: ["N"], does: "previous hit", run: (view) => { view.nextHit(-1); } },
  { keys: ["f", "0"], does: "all of the graph", run: (view) => { view.fit(); } },
  { keys: ["+", "="], does: "nearer", run: (view) => { view.zoom(1.3); } },
  { keys: ["-"], does: "further away", run: (view) => { view.zoom(1 / 1.3); } },
  { keys: ["ArrowLeft"], does: "to the left", run: pan(1, 0) },
  { keys: ["ArrowRight"], does: "to the right", run: pan(-1, 0) },
  { keys: ["ArrowUp"], does: "up", run: pan(0, 1) },
  { keys: ["ArrowDown"], does: "down", run: pan(0, -1) },
  { keys: ["o"], does: "to the first operand", run: neighbour("operands") },
  { keys: ["u"], does: "to the first user", run: neighbour("readers") },
  { keys: ["p"], does: "the path to the loss", run: (view) => { view.nextPath(); } },
  { keys: ["b"], does: "what is around the selection", run: (_, controls) => { controls.near(); } },
  { keys: ["m"], does: "what is in memory at the peak", run: (_, controls) => { controls.peak(); } },
  { keys: ["c"], does: "the next colouring", run: (_, controls) => { controls.colour(); } },
  { keys: ["t"], does: "patterns besides colours", run: (_, controls) => { controls.patterns(); } },
  { keys: ["d"], does: "light or dark", run: (_, controls) => { controls.theme(); } },
  { keys: ["e"], does: "export", run: (_, controls) => { controls.exports(); } },
  { keys: ["Escape"], does: "let go of path, step, selection", run: (view) => { letGo(view); } },
];

function letGo(view: View): void {
  if (view.path) view.clearPath();
  else if (view.near) view.lookAtAll();
  else if (view.step >= 0) view.setStep(-1);
  else view.select(-1);
}

export function listenForKeys(view: View, controls: Controls): void {
  const dialog = found("help-dialog", HTMLDialogElement), list = element("div", { class: "keys" });
  for (const { keys, does } of [...KEYS, { keys: ["?"], does: "this help" }]) {
    const names = keys.map((key) => element("kbd", {}, key.replace("Arrow", "")));
    list.append(element("span", {}, ...names.flatMap((name) => [name, " "])), element("span", {}, does));
  }
  const licences = found("licences", HTMLTemplateElement).content.textContent ?? "";
  dialog.append(element("h2", {}, "Keys"), list,
    element("p", {}, "Search for words, or for op:tanh, shape:128, scope:conv1, line:train.py, order:>=1, kind:parameter; op:=mul2 is that op alone, behind:v12 is all that v12 is computed from, only:v12 what nothing else needs. "
      + "Click a box to select it, shift-click another one for the paths between both; click a closed group to open it."),
    element("details", {}, element("summary", {}, "Licences of what is in this page"), element("pre", {}, licences)),
    element("form", { method: "dialog" }, element("button", { autofocus: true }, "Close")));
  const help = (): void => { dialog.showModal(); };
  found("help", HTMLButtonElement).addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    const on = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (on instanceof HTMLInputElement || on instanceof HTMLSelectElement) {
      if (event.key === "Escape") on.blur();
      return;
    }
    if (event.key === "?") help();
    const key = KEYS.find(({ keys }) => keys.includes(event.key));
    if (!key) return;
    event.preventDefault();
    key.run(view, controls);
  });
}
