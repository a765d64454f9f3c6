// Which part of the world is seen, and how large.
import type { Rectangle } from "./grid";

export class Camera {
  scale = 1;
  x = 0;
  y = 0;
  constructor(public width = 1, public height = 1) {}

  screenX(x: number): number { return (x - this.x) * this.scale; }
  screenY(y: number): number { return (y - this.y) * this.scale; }
  worldX(x: number): number { return x / this.scale + this.x; }
  worldY(y: number): number { return y / this.scale + this.y; }

  pan(dx: number, dy: number): void {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
  }

  /** Zooms by a factor; what is at this place of the screen stays there. */
  zoom(factor: number, atX = this.width / 2, atY = this.height / 2): void {
    const x = this.worldX(atX), y = this.worldY(atY);
    this.scale = Math.min(8, Math.max(1e-5, this.scale * factor));
    this.x = x - atX / this.scale;
    this.y = y - atY / this.scale;
  }

  /** All of a rectangle, in the middle of what the margins at the side, above and below leave. */
  fit(r: Rectangle, side = 20, above = 38, below = 52, most = 2): void {
    const width = Math.max(1, this.width - 2 * side), height = Math.max(1, this.height - above - below);
    this.scale = Math.min(most, width / Math.max(1e-9, r.x1 - r.x0), height / Math.max(1e-9, r.y1 - r.y0));
    this.centre((r.x0 + r.x1) / 2, (r.y0 + r.y1) / 2 + (below - above) / 2 / this.scale);
  }

  centre(x: number, y: number): void {
    this.x = x - this.width / 2 / this.scale;
    this.y = y - this.height / 2 / this.scale;
  }

  seen(margin = 0): Rectangle {
    return {
      x0: this.worldX(0) - margin, y0: this.worldY(0) - margin,
      x1: this.worldX(this.width) + margin, y1: this.worldY(this.height) + margin,
    };
  }
}
