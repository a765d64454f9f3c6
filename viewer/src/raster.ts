// Nodes too small for a name, set pixel by pixel: ten times as fast as asking the canvas for each.
import type { Camera } from "./camera";
import type { Graph } from "./graph";
import { type Colouring, marked } from "./palette";
import type { Placement } from "./placement";

export class Raster {
  readonly canvas = new OffscreenCanvas(1, 1);
  private image: ImageData | null = null;

  /** A picture of the nodes that are seen, of `ratio` pixels for each unit of the screen; 0 in `lit` makes a node faint. */
  draw(graph: Graph, placement: Placement, camera: Camera, colouring: Colouring, lit: Uint8Array | null,
    patterns: boolean, ratio: number): OffscreenCanvas {
    const width = Math.max(1, Math.round(camera.width * ratio)), height = Math.max(1, Math.round(camera.height * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height || this.image === null) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = new ImageData(width, height);
    }
    const pixels = new Uint32Array(this.image.data.buffer);
    pixels.fill(0);
    const scale = camera.scale * ratio, { x, y } = placement, { of, shades } = colouring;
    const halfHeight = graph.height / 2;
    const seen = camera.seen(graph.widest);
    const paint = (node: number): void => {
      const halfWidth = graph.widths[node] / 2, faint = lit !== null && lit[node] === 0;
      const left = Math.round((x[node] - halfWidth - camera.x) * scale), top = Math.round((y[node] - halfHeight - camera.y) * scale);
      const x0 = Math.max(0, left), x1 = Math.min(width, Math.max(left + 1, Math.round((x[node] + halfWidth - camera.x) * scale)));
      const y0 = Math.max(0, top), y1 = Math.min(height, Math.max(top + 1, Math.round((y[node] + halfHeight - camera.y) * scale)));
      if (x0 >= x1) return;
      const { pixels: inks, pattern } = shades[of[node]], fill = inks[faint ? 2 : 0], ink = inks[faint ? 3 : 1];
      for (let row = y0; row < y1; row++) {
        const start = row * width;
        if (!patterns || pattern === 0) pixels.fill(fill, start + x0, start + x1);
        else for (let at = x0; at < x1; at++) pixels[start + at] = marked(pattern, at - left, row - top) ? ink : fill;
      }
    };
    if (lit === null) placement.grid.within(seen, paint);
    else { // what is lit lies above what is not, where several share a pixel
      placement.grid.within(seen, (node) => { if (lit[node] === 0) paint(node); });
      placement.grid.within(seen, (node) => { if (lit[node] !== 0) paint(node); });
    }
    this.canvas.getContext("2d")?.putImageData(this.image, 0, 0);
    return this.canvas;
  }
}
