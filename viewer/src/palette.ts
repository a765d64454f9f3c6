// What nodes are coloured by. Every class has a pattern and a label besides its colour, so that it is read without it.
import { type Graph, Kind, State } from "./graph";
import { amount, inBytes } from "./numbers";

export const COLOURINGS = {
  order: "order of differentiation", cost: "operations", memory: "size of the result",
  recompute: "kept or recomputed",
} as const;
export type ColourBy = keyof typeof COLOURINGS;

export interface Shade {
  label: string;
  fill: string;
  /** Of text upon the fill, and of its pattern. */
  ink: string;
  pattern: number;
  /** Fill, pattern, and the two of nodes that are not in question, as pixels. */
  pixels: [number, number, number, number];
  dim: string;
}

export interface Colouring { by: ColourBy; shades: Shade[]; of: Uint8Array; present: boolean[] }

type Rgb = [number, number, number];

function rgb(hex: string): Rgb {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function mixed(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * share)) as Rgb;
}

function css([r, g, b]: Rgb): string {
  return `rgb(${r},${g},${b})`;
}

function pixel([r, g, b]: Rgb): number {
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

function shade(label: string, hex: string, pattern: number, paper: string): Shade {
  const fill = rgb(hex), light = 0.299 * fill[0] + 0.587 * fill[1] + 0.114 * fill[2] > 140;
  const ink: Rgb = light ? [22, 24, 29] : [255, 255, 255], dim = mixed(fill, rgb(paper), 0.82);
  const marks = mixed(fill, ink, 0.45);
  return {
    label, pattern, fill: css(fill), ink: css(ink), dim: css(dim),
    pixels: [pixel(fill), pixel(marks), pixel(dim), pixel(mixed(dim, ink, 0.12))],
  };
}

// Hues that remain apart for those who see no red or no green (after Okabe and Ito), in two strengths.
const LIGHT = {
  neutral: "#dfe3ea", parameter: "#5b6678", leaf: "#b3bccb",
  orders: ["#8fc1ea", "#f5bf5f", "#74c9a2", "#dd9bc6", "#e58e67", "#a59be6"],
  ramp: ["#eef3d5", "#cfe8c0", "#9dd6bb", "#62bcc0", "#3a97bd", "#2b6aa9", "#26367f"],
  kept: ["#f5bf5f", "#8fc1ea", "#74c9a2"],
};
const DARK: typeof LIGHT = {
  neutral: "#39414e", parameter: "#aeb9cc", leaf: "#667287",
  orders: ["#3a7fb8", "#c98a1b", "#2d9a6c", "#b0588f", "#c05e33", "#7467cc"],
  ramp: ["#27304b", "#2b4a78", "#2b6f97", "#2f98a3", "#58bd95", "#a8da7c", "#f4ec8a"],
  kept: ["#c98a1b", "#3a7fb8", "#2d9a6c"],
};

/** Patterns below STEPS are lines, from there on dots that grow denser. */
const STEPS = 8;
const BAYER = [0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5];

/** Whether a pattern marks this pixel. */
export function marked(pattern: number, x: number, y: number): boolean {
  switch (pattern) {
    case 0: return false;
    case 1: return ((x + y) & 7) < 2;
    case 2: return ((x - y) & 7) < 2;
    case 3: return (y & 3) === 0;
    case 4: return (x & 3) === 0;
    case 5: return (x & 3) === 0 && (y & 3) === 0;
    case 6: return ((x + y) & 7) === 0 || ((x - y) & 7) === 0;
    case 7: return (x & 7) === 0 || (y & 7) === 0;
    default: return BAYER[(y & 3) * 4 + (x & 3)] < (pattern - STEPS) * 2;
  }
}

type Classes = { labels: [string, string, number][]; of: (node: number) => number };

function orders(graph: Graph, hues: typeof LIGHT): Classes {
  const name = (order: number): string => graph.columns.find((column) => column.order === order)?.label ?? `order ${order}`;
  const last = hues.orders.length - 1;
  return {
    labels: [
      ["parameter", hues.parameter, 7], ["input or constant", hues.leaf, 5],
      ...hues.orders.map((hue, order): [string, string, number] => (
        [order === last ? `order ${order} and more` : name(order), hue, [0, 1, 2, 3, 4, 6][order]])),
    ],
    of: (node) => {
      const kind = graph.kind[node];
      return kind === Kind.Parameter ? 0 : kind === Kind.Leaf || kind === Kind.Constant ? 1 : 2 + Math.min(last, graph.order[node]);
    },
  };
}

/** Seven classes of equal ratio, of at most a factor of ten each, up to the largest value; what is 0 is in none of them. */
function ramp(values: (node: number) => number, graph: Graph, hues: typeof LIGHT, said: (value: number) => string): Classes {
  let most = 0, least = Infinity;
  for (let i = 0; i < graph.count; i++) {
    const value = values(i);
    if (value > most) most = value;
    if (value > 0 && value < least) least = value;
  }
  const count = hues.ramp.length, ratio = most > 0 ? Math.min(10, Math.max(1.5, (most / least) ** (1 / count))) : 10;
  const bottom = most / ratio ** count;
  return {
    labels: [["none", hues.neutral, 0], ...hues.ramp.map((hue, k): [string, string, number] => (
      [k === 0 ? `up to ${said(bottom * ratio)}` : `from ${said(bottom * ratio ** k)}`, hue, STEPS + k]))],
    of: (node) => {
      const value = values(node);
      if (!(value > 0)) return 0;
      return 1 + Math.min(count - 1, Math.max(0, Math.floor(Math.log(value / bottom) / Math.log(ratio) + 1e-9)));
    },
  };
}

function classes(graph: Graph, by: ColourBy, hues: typeof LIGHT): Classes {
  switch (by) {
    case "order": return orders(graph, hues);
    case "cost": return ramp((node) => graph.flops[node] * graph.runs[node], graph, hues, amount);
    case "memory": return ramp((node) => graph.size[node], graph, hues, inBytes);
    case "recompute": return {
      labels: [["neither", hues.neutral, 0], ["kept for a gradient", hues.kept[0], 1],
        ["computed again later", hues.kept[1], 2], ["computes again", hues.kept[2], 3]],
      of: (node) => (graph.state[node] <= State.Recomputation ? graph.state[node] : 0),
    };
  }
}

export function colouring(graph: Graph, by: ColourBy, dark: boolean): Colouring {
  const hues = dark ? DARK : LIGHT, paper = dark ? "#14171d" : "#fbfaf8";
  const { labels, of } = classes(graph, by, hues);
  const classOf = new Uint8Array(graph.count), present = labels.map(() => false);
  for (let node = 0; node < graph.count; node++) present[classOf[node] = of(node)] = true;
  return { by, present, of: classOf, shades: labels.map(([label, hue, pattern]) => shade(label, hue, pattern, paper)) };
}
