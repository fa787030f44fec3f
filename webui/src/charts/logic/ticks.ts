// Where an axis has its marks and how they read: at most six, on round numbers.
import { count, duration } from "../../format";

export type Span = readonly [number, number];

function roundUp(rough: number, steps: readonly number[]): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  // A hair of tolerance, because 0.3 / 3 is not quite 0.1.
  return (steps.find((step) => step * power >= rough * 0.999999) ?? 10) * power;
}

function every(step: number, [low, high]: Span): number[] {
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const digits = Math.max(0, Math.min(100, -Math.floor(Math.log10(step)) + 1));
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => Number(((first + place) * step).toFixed(digits)));
}

/** Round numbers within the span; `whole` keeps steps of batches whole. */
export function linearTicks(span: Span, most = 6, whole = false): number[] {
  const width = span[1] - span[0];
  if (!(width > 0) || !Number.isFinite(width)) return [];
  const step = roundUp(width / most, [1, 2, 2.5, 5]);
  return every(whole ? Math.max(1, Math.ceil(step)) : step, span);
}

/** Powers of ten; with 2 and 5 between them where there is room; round numbers where the span is less than a decade. */
export function logTicks(span: Span, most = 6): number[] {
  const [low, high] = span;
  if (!(low > 0) || !(high > low)) return [];
  const decades = Math.log10(high / low);
  const from = Math.floor(Math.log10(low));
  const to = Math.ceil(Math.log10(high));
  const step = Math.max(1, Math.ceil(decades / most));
  const powers: number[] = [];
  for (let power = from; power <= to; power += step) powers.push(10 ** power);
  const inside = (values: number[]) => values.filter((value) => value >= low * 0.999999 && value <= high * 1.000001);
  if (inside(powers).length > 2) return inside(powers);
  for (const digits of [[1, 2, 5], [1, 2, 3, 4, 6, 8]]) {
    const between = inside(powers.flatMap((power) => digits.map((digit) => Number((digit * power).toPrecision(1)))));
    if (between.length > 2 && between.length <= most + 1) return between;
  }
  return linearTicks(span, most);
}

const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Seconds on the steps that clocks have. */
export function timeTicks(span: Span, most = 6): number[] {
  const rough = (span[1] - span[0]) / most;
  if (!(rough > 0)) return [];
  if (rough < 1) return linearTicks(span, most);
  const step = seconds.find((candidate) => candidate >= rough);
  return every(step ?? 86400 * Math.ceil(rough / 86400), span);
}

/** A tick's number, as short as its neighbours allow: 1.5k, 20M, 0.05, 1e-5. */
export function tickText(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= unit && (unit > 1e3 || size >= 1e4)) return `${Number((value / unit).toPrecision(4))}${letter}`.replace("-", "−");
  }
  if (Number.isInteger(value)) return count(value);
  if (size < 1e-3) return value.toExponential().replace("e+", "e").replace(/^-/, "−");
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

/** A tick of time; whole units lose the second one: "2 min", not "2 min 0 s". */
export const timeText = (value: number): string => (value === 0 ? "0" : duration(value));
