// Heat colours: how strongly a cell is tinted, from the extremes of its column among all rows that fit.
import type { Range } from "../types";

const strongest = 38;

/** Where a value stands between the extremes, 0 to 1; by magnitude where they are three powers of ten apart. */
export function share(value: number, { low, high }: Range): number | undefined {
  if (!Number.isFinite(value) || !(high > low)) return undefined;
  const isLog = low > 0 && high / low >= 1000;
  const scale = (one: number): number => (isLog ? Math.log(one) : one);
  const part = (scale(value) - scale(low)) / (scale(high) - scale(low));
  return Math.min(1, Math.max(0, part));
}

/** The tint as CSS, or undefined for none. Text on it keeps a contrast of at least 4.5 in both themes. */
export function tint(value: number, range: Range | undefined): string | undefined {
  const part = range && share(value, range);
  if (part === undefined) return undefined;
  return `color-mix(in srgb, var(--accent) ${Math.round(3 + part * (strongest - 3))}%, transparent)`;
}
