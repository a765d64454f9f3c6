// What a picture is drawn on: a canvas, or an SVG. The scene draws the same on both.
import { marked } from "./palette";

export interface RectangleStyle {
  fill?: string; stroke?: string; width?: number; radius?: number; dash?: number[];
  /** A pattern in this ink over the fill. */
  pattern?: number; ink?: string;
}

export interface LineStyle { stroke: string; width: number; dash?: number[]; alpha?: number; arrows?: boolean }

export interface TextStyle { size: number; fill: string; bold?: boolean; align?: "left" | "center" | "right" }

export const FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, \"DejaVu Sans Mono\", monospace";
/** Width of a character of FONT for each unit of its size. */
export const CHARACTER = 0.61;

export interface Surface {
  rectangle(x: number, y: number, width: number, height: number, style: RectangleStyle): void;
  /** Cubic curves, each of eight numbers. */
  curves(points: number[], style: LineStyle): void;
  /** The text's middle is at this height. */
  text(text: string, x: number, y: number, style: TextStyle): void;
}

/** The corners of an arrow's head at the end of the k-th curve. */
function head(points: number[], k: number, size: number): number[] {
  let dx = points[k + 6] - points[k + 4], dy = points[k + 7] - points[k + 5];
  const length = Math.hypot(dx, dy) || 1;
  dx *= size / length;
  dy *= size / length;
  const x = points[k + 6], y = points[k + 7];
  return [x, y, x - dx - dy * 0.5, y - dy + dx * 0.5, x - dx + dy * 0.5, y - dy - dx * 0.5];
}

export class CanvasSurface implements Surface {
  private readonly patterns = new Map<string, CanvasPattern>();
  constructor(private readonly context: CanvasRenderingContext2D) {}

  private pattern(pattern: number, ink: string): CanvasPattern | null {
    const key = `${pattern} ${ink}`;
    let made = this.patterns.get(key) ?? null;
    if (made === null) {
      const tile = new OffscreenCanvas(8, 8), context = tile.getContext("2d");
      if (context === null) return null;
      context.fillStyle = ink;
      for (let y = 0; y < 8; y++) for (let x = 0; x < 8; x++) if (marked(pattern, x, y)) context.fillRect(x, y, 1, 1);
      made = this.context.createPattern(tile, "repeat");
      if (made !== null) this.patterns.set(key, made);
    }
    return made;
  }

  rectangle(x: number, y: number, width: number, height: number, style: RectangleStyle): void {
    const { context } = this, round = (style.radius ?? 0) > 1;
    if (round || style.stroke !== undefined) {
      context.beginPath();
      if (round) context.roundRect(x, y, width, height, style.radius);
      else context.rect(x, y, width, height);
    }
    const fill = (paint: string | CanvasPattern): void => {
      context.fillStyle = paint;
      if (round) context.fill();
      else context.fillRect(x, y, width, height);
    };
    if (style.fill !== undefined) fill(style.fill);
    if (style.pattern && style.ink !== undefined) {
      const pattern = this.pattern(style.pattern, style.ink);
      context.globalAlpha = 0.3;
      if (pattern) fill(pattern);
      context.globalAlpha = 1;
    }
    if (style.stroke !== undefined) {
      context.strokeStyle = style.stroke;
      context.lineWidth = style.width ?? 1;
      if (style.dash) context.setLineDash(style.dash);
      context.stroke();
      if (style.dash) context.setLineDash([]);
    }
  }

  curves(points: number[], style: LineStyle): void {
    const { context } = this;
    if (!points.length) return;
    context.globalAlpha = style.alpha ?? 1;
    context.beginPath();
    for (let k = 0; k < points.length; k += 8) {
      context.moveTo(points[k], points[k + 1]);
      context.bezierCurveTo(points[k + 2], points[k + 3], points[k + 4], points[k + 5], points[k + 6], points[k + 7]);
    }
    context.strokeStyle = style.stroke;
    context.lineWidth = style.width;
    if (style.dash) context.setLineDash(style.dash);
    context.stroke();
    if (style.dash) context.setLineDash([]);
    if (style.arrows) {
      context.fillStyle = style.stroke;
      context.beginPath();
      for (let k = 0; k < points.length; k += 8) {
        const corners = head(points, k, 5 + style.width * 1.5);
        context.moveTo(corners[0], corners[1]);
        context.lineTo(corners[2], corners[3]);
        context.lineTo(corners[4], corners[5]);
      }
      context.fill();
    }
    context.globalAlpha = 1;
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    const { context } = this, font = `${style.bold ? "600 " : ""}${style.size}px ${FONT}`;
    if (this.font !== font) context.font = this.font = font;
    context.textAlign = style.align ?? "left";
    context.textBaseline = "middle";
    context.fillStyle = style.fill;
    context.fillText(text, x, y);
  }

  private font = "";
}

function escaped(text: string): string {
  // Characters that XML cannot hold at all are left out.
  return text.replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd")
    .replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}

const round = (value: number): string => String(Math.round(value * 100) / 100);

export class SvgSurface implements Surface {
  private readonly parts: string[] = [];
  private readonly patterns = new Map<string, string>();
  constructor(private readonly width: number, private readonly height: number) {}

  private pattern(pattern: number, ink: string): string {
    const key = `${pattern} ${ink}`;
    if (!this.patterns.has(key)) {
      let marks = "";
      for (let y = 0; y < 8; y++) for (let x = 0; x < 8; x++) if (marked(pattern, x, y)) marks += `M${x} ${y}h1v1h-1z`;
      this.patterns.set(key, `<pattern id="p${this.patterns.size}" width="8" height="8" patternUnits="userSpaceOnUse">`
        + `<path d="${marks}" fill="${escaped(ink)}" fill-opacity="0.3"/></pattern>`);
    }
    return `url(#p${[...this.patterns.keys()].indexOf(key)})`;
  }

  private box(x: number, y: number, width: number, height: number, radius: number, more: string): void {
    const rounded = radius > 1 ? ` rx="${round(Math.min(radius, height / 2, width / 2))}"` : "";
    this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"${rounded} ${more}/>`);
  }

  rectangle(x: number, y: number, width: number, height: number, style: RectangleStyle): void {
    const dash = style.dash ? ` stroke-dasharray="${style.dash.join(" ")}"` : "";
    const stroke = style.stroke === undefined ? "" : ` stroke="${escaped(style.stroke)}" stroke-width="${style.width ?? 1}"${dash}`;
    this.box(x, y, width, height, style.radius ?? 0, `fill="${escaped(style.fill ?? "none")}"${stroke}`);
    if (style.pattern && style.ink !== undefined) {
      this.box(x, y, width, height, style.radius ?? 0, `fill="${this.pattern(style.pattern, style.ink)}"`);
    }
  }

  curves(points: number[], style: LineStyle): void {
    if (!points.length) return;
    let path = "", heads = "";
    for (let k = 0; k < points.length; k += 8) {
      const p = points.slice(k, k + 8).map(round);
      path += `M${p[0]} ${p[1]}C${p.slice(2).join(" ")}`;
      if (style.arrows) heads += `M${head(points, k, 5 + style.width * 1.5).map(round).join(" ")}z`;
    }
    const alpha = style.alpha === undefined ? "" : ` opacity="${style.alpha}"`;
    const dash = style.dash ? ` stroke-dasharray="${style.dash.join(" ")}"` : "", stroke = escaped(style.stroke);
    this.parts.push(`<path d="${path}" fill="none" stroke="${stroke}" stroke-width="${style.width}"${dash}${alpha}/>`);
    if (heads) this.parts.push(`<path d="${heads}" fill="${stroke}"${alpha}/>`);
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    const anchor = { left: "start", center: "middle", right: "end" }[style.align ?? "left"];
    this.parts.push(`<text x="${round(x)}" y="${round(y)}" font-size="${round(style.size)}" fill="${escaped(style.fill)}" `
      + `text-anchor="${anchor}" dominant-baseline="central"${style.bold ? " font-weight=\"600\"" : ""}>${escaped(text)}</text>`);
  }

  written(title: string): string {
    const size = `width="${round(this.width)}" height="${round(this.height)}" viewBox="0 0 ${round(this.width)} ${round(this.height)}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${escaped(FONT)}" xml:space="preserve">`
      + `<title>${escaped(title)}</title><defs>${[...this.patterns.values()].join("")}</defs>${this.parts.join("\n")}</svg>\n`;
  }
}
