// Elements of the page. What names say becomes text, never markup.

type Attributes = Record<string, string | number | boolean | ((event: Event) => void)>;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

export function found<T extends Element>(id: string, type: new () => T): T {
  const there = document.getElementById(id);
  if (!(there instanceof type)) throw new Error(`the page has no ${type.name} #${id}`);
  return there;
}

/** A long text, cut, with the whole of it where the pointer rests. */
export function shortened(text: string, most: number): HTMLElement {
  const letters = text.length > 4 * most ? [...text.slice(0, 4 * most)] : [...text];
  if (letters.length <= most) return element("span", {}, text);
  return element("span", { title: text.slice(0, 2000) }, `${letters.slice(0, most - 1).join("")}…`);
}

export interface Drawable { context: CanvasRenderingContext2D; width: number; height: number }

/** A canvas made as large as it is shown, in pixels of the device; one unit is one CSS pixel. */
export function drawable(canvas: HTMLCanvasElement): Drawable {
  const ratio = window.devicePixelRatio, width = canvas.clientWidth, height = canvas.clientHeight;
  const across = Math.max(1, Math.round(width * ratio)), down = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const context = canvas.getContext("2d", { alpha: false });
  if (context === null) throw new Error("this browser gives no canvas to draw on");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}
