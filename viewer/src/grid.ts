// Which nodes are near a place: nodes sorted by the cell of a grid that they are in.

export interface Rectangle { x0: number; y0: number; x1: number; y1: number }

export class Grid {
  private readonly start: Int32Array;
  private readonly sorted: Int32Array;
  private readonly across: number;
  private readonly down: number;

  constructor(
    readonly nodes: Int32Array, readonly x: Float64Array, readonly y: Float64Array,
    readonly bounds: Rectangle, private readonly cellWidth: number, private readonly cellHeight: number,
  ) {
    this.across = Math.max(1, Math.ceil((bounds.x1 - bounds.x0) / cellWidth));
    this.down = Math.max(1, Math.ceil((bounds.y1 - bounds.y0) / cellHeight));
    this.start = new Int32Array(this.across * this.down + 1);
    const cellOf = new Int32Array(nodes.length);
    nodes.forEach((node, k) => { this.start[(cellOf[k] = this.cell(x[node], y[node])) + 1]++; });
    for (let c = 0; c + 1 < this.start.length; c++) this.start[c + 1] += this.start[c];
    const next = this.start.slice();
    this.sorted = new Int32Array(nodes.length);
    nodes.forEach((node, k) => { this.sorted[next[cellOf[k]]++] = node; });
  }

  private columnAt(x: number): number {
    return Math.min(this.across - 1, Math.max(0, Math.floor((x - this.bounds.x0) / this.cellWidth)));
  }

  private rowAt(y: number): number {
    return Math.min(this.down - 1, Math.max(0, Math.floor((y - this.bounds.y0) / this.cellHeight)));
  }

  private cell(x: number, y: number): number {
    return this.rowAt(y) * this.across + this.columnAt(x);
  }

  /** Calls `visit` with each node whose cell meets the rectangle: all whose centres are inside, and some more. */
  within(r: Rectangle, visit: (node: number) => void): void {
    const first = this.columnAt(r.x0), last = this.columnAt(r.x1);
    for (let row = this.rowAt(r.y0); row <= this.rowAt(r.y1); row++) {
      const end = this.start[row * this.across + last + 1];
      for (let k = this.start[row * this.across + first]; k < end; k++) visit(this.sorted[k]);
    }
  }
}
