// Puts the page together: reads the graph, and wires what is clicked to the view and what changes to what is shown.
import { drawable, element, found } from "./dom";
import { dot, modelExplorer, save, svg } from "./exports";
import { Graph } from "./graph";
import { listenForKeys } from "./keys";
import { aliveDetails, overviewDetails, pathDetails } from "./overview";
import { COLOURINGS, type ColourBy, marked } from "./palette";
import { selectionDetails } from "./panel";
import { Stage, themeOf } from "./stage";
import { Timeline } from "./timeline";
import { View } from "./view";
import { readWritten } from "./written";

/** Nodes of a graph from which on it is shown whole at first, with every repetition: closed groups would leave little to see of it. */
const MANY = 3000;

function details(view: View): Node[] {
  if (view.selected >= 0) return [...(view.path ? pathDetails(view) : []), ...selectionDetails(view)];
  if (view.step >= 0) return aliveDetails(view);
  return view.path ? pathDetails(view) : overviewDetails(view);
}

function legend(view: View): void {
  const { by, shades, present } = view.colouring, box = found("legend", HTMLElement);
  const rows = shades.flatMap((shade, k) => {
    if (!present[k]) return [];
    const swatch = element("canvas", { width: 22, height: 12, "aria-hidden": "true" }), context = swatch.getContext("2d");
    if (context) {
      context.fillStyle = shade.fill;
      context.fillRect(0, 0, 22, 12);
      context.fillStyle = shade.ink;
      context.globalAlpha = 0.5;
      for (let y = 0; y < 12; y++) for (let x = 0; x < 22; x++) if (marked(shade.pattern, x, y)) context.fillRect(x, y, 1, 1);
    }
    return [element("div", { class: "class" }, swatch, shade.label)];
  });
  box.replaceChildren(element("strong", {}, COLOURINGS[by]), ...rows);
}

function exportMenu(view: View, stage: Stage): void {
  const menu = found("export", HTMLDetailsElement), list = menu.querySelector(".menu");
  const name = view.graph.title.replace(/[^\w.-]+/g, "_").slice(0, 60) || "graph";
  const png = (): void => { found("graph-canvas", HTMLCanvasElement).toBlob((blob) => { if (blob) save(blob, `${name}.png`, "image/png"); }); };
  const choices: [string, () => void][] = [
    ["SVG, what is seen", () => { save(svg(view, stage.theme, false), `${name}.svg`, "image/svg+xml"); }],
    ["SVG, all of it", () => { save(svg(view, stage.theme, true), `${name}.svg`, "image/svg+xml"); }],
    ["PNG, what is seen", png],
    ["Graphviz DOT", () => { save(dot(view.graph), `${name}.dot`, "text/vnd.graphviz"); }],
    ["Model Explorer JSON", () => { save(modelExplorer(view.graph), `${name}.json`, "application/json"); }],
  ];
  for (const [label, run] of choices) {
    list?.append(element("button", { click: () => {
      run();
      menu.open = false;
    } }, label));
  }
}

function hooks(view: View, stage: Stage): void {
  const state = {
    get selected() { return view.selected < 0 ? null : view.graph.text("name", view.selected); },
    get search() { return view.searched; }, get hits() { return view.hits.length; },
    get colourBy() { return view.colouring.by; }, get openGroups() { return view.openGroups; },
    get path() { return view.path && { shortest: view.path.shortest.map((node) => view.graph.text("name", node)), count: view.path.count }; },
    get timelineStep() { return view.step; }, get alive() { return view.alive().map((node) => view.graph.text("name", node)); },
    get visibleNodes() { return view.visibleNodes; }, get frames() { return view.frames; },
    get firstPaint() { return view.firstPaint; }, get message() { return view.message; },
  };
  Object.assign(window, { nngradView: {
    state,
    select: (name: string) => { view.goTo(view.graph.named(name)); }, search: (text: string) => { view.find(text); },
    fit: () => { view.fit(); }, setColour: (by: ColourBy) => { view.setColour(by); },
    openGroup: (group: number) => { view.setClosed([group], false); }, closeGroup: (group: number) => { view.setClosed([group], true); },
    path: (from: string, to: string) => view.showPath(view.graph.named(from), view.graph.named(to)),
    at: (name: string) => {
      const node = view.graph.named(name), { placement, camera } = view;
      return [camera.screenX(placement.x[node]), camera.screenY(placement.y[node])];
    },
    exportSVG: () => svg(view, stage.theme, true), exportDOT: () => dot(view.graph), exportModelExplorer: () => modelExplorer(view.graph),
    frames: () => view.frames,
  } });
}

async function start(): Promise<void> {
  const graph = new Graph(await readWritten(found("graph", HTMLScriptElement))), view = new View(graph);
  document.title = graph.title || "nngrad";
  found("title", HTMLElement).textContent = graph.title;
  const root = document.documentElement, prefers = window.matchMedia("(prefers-color-scheme: dark)");
  root.dataset.theme = prefers.matches ? "dark" : "light";
  view.setDark(prefers.matches);
  if (graph.count > MANY) view.setClosed(graph.groups.keys(), false);
  const stage = new Stage(view), timeline = new Timeline(view, () => stage.theme), panel = found("panel", HTMLElement);
  const said = found("said", HTMLElement), hits = found("hits", HTMLOutputElement), search = found("search", HTMLInputElement);
  const colourBy = found("colour-by", HTMLSelectElement), patterns = found("patterns", HTMLButtonElement);
  const near = found("near", HTMLButtonElement);
  for (const [by, label] of Object.entries(COLOURINGS)) colourBy.append(element("option", { value: by }, label));
  const setTheme = (dark: boolean): void => {
    root.dataset.theme = dark ? "dark" : "light";
    stage.theme = themeOf(root);
    view.setDark(dark);
  };
  const fill = (): void => { panel.replaceChildren(...details(view)); };
  let asked = false;
  view.listen((change) => {
    if (change === "message") said.textContent = view.message;
    if (change === "colours") legend(view);
    if (change === "search" && document.activeElement !== search) search.value = view.searched;
    if (change === "search") hits.textContent = view.searched ? `${view.hit >= 0 ? `${view.hit + 1} / ` : ""}${view.hits.length}` : "";
    near.setAttribute("aria-pressed", String(view.near > 0));
    if (asked || !["selection", "placement", "step", "path"].includes(change)) return;
    asked = true;
    queueMicrotask(() => {
      asked = false;
      fill();
    });
  });
  const controls = {
    search: () => { search.select(); },
    colour: () => {
      colourBy.selectedIndex = (colourBy.selectedIndex + 1) % colourBy.options.length;
      view.setColour(colourBy.value as ColourBy);
    },
    patterns: () => {
      view.setPatterns(!view.patterns);
      patterns.setAttribute("aria-pressed", String(view.patterns));
    },
    theme: () => { setTheme(!view.dark); },
    near: () => {
      if (view.near) view.lookAtAll();
      else view.lookNear(view.selected);
    },
    peak: () => {
      view.select(-1);
      if (graph.memory) view.setStep(view.step === graph.memory.peak ? -1 : graph.memory.peak);
    },
    exports: () => { found("export", HTMLDetailsElement).open = true; },
  };
  const clicks: [string, () => void][] = [
    ["fit", () => { view.fit(); }], ["path", () => { view.nextPath(); }], ["near", controls.near], ["peak", controls.peak],
    ["theme", controls.theme], ["patterns", controls.patterns],
    ["next-hit", () => { view.nextHit(1); }], ["previous-hit", () => { view.nextHit(-1); }],
  ];
  for (const [id, run] of clicks) found(id, HTMLButtonElement).addEventListener("click", run);
  found("peak", HTMLButtonElement).disabled = graph.memory === null;
  colourBy.addEventListener("change", () => { view.setColour(colourBy.value as ColourBy); });
  search.addEventListener("input", () => { view.find(search.value); });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") view.nextHit(event.shiftKey ? -1 : 1); });
  prefers.addEventListener("change", () => { setTheme(prefers.matches); });
  exportMenu(view, stage);
  listenForKeys(view, controls);
  hooks(view, stage);
  legend(view);
  fill(); // which on a narrow screen takes room from the canvas
  const canvas = drawable(stage.canvas);
  view.resize(canvas.width, canvas.height);
  view.begin();
  stage.draw();
  timeline.draw();
}

start().catch((error: unknown) => {
  const hint = found("hint", HTMLElement);
  hint.hidden = false;
  hint.textContent = `The graph cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
  throw error;
});
