// Numbers as people read them.

const LARGE = ["", " k", " M", " G", " T", " P", " E"];

export function amount(value: number): string {
  let step = 0;
  for (; Math.abs(value) >= 999.5 && step + 1 < LARGE.length; step++) value /= 1000;
  return `${Number(value.toPrecision(3))}${LARGE[step]}`;
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function inBytes(value: number): string {
  let step = 0;
  for (; Math.abs(value) >= 1023.5 && step + 1 < BINARY.length; step++) value /= 1024;
  return `${Number(value.toPrecision(3))} ${BINARY[step]}`;
}

export function share(part: number, whole: number): string {
  if (!(whole > 0)) return "";
  const percent = 100 * part / whole;
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${Number(percent.toPrecision(2))} %`;
}

export function several(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
