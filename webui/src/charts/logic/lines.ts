// A line as charts draw it, and what can be asked of it: its extremes, its value at a place.
import type { Span } from "./ticks";

export type Place = "batch" | "epoch" | "time";

/** A point that was NaN or infinite: `value` is its word. */
export interface Odd {
  x: number;
  value: string;
}

export interface Line {
  /** Stays the same while data comes and goes. */
  id: string;
  name: string;
  trialId: number;
  color: string;
  dash: readonly number[];
  /** Drawn thin and pale: one of many, not one of the best. */
  isFaint?: boolean;
  xs: readonly number[];
  ys: readonly (number | null)[];
  /** Extremes of each bucket; without them each point is one report. */
  lows?: readonly (number | null)[] | undefined;
  highs?: readonly (number | null)[] | undefined;
  steps: readonly number[];
  /** Since the trial began. */
  seconds?: readonly (number | null)[] | undefined;
  odd: readonly Odd[];
  /** Where the best checkpoint lies. */
  bestX?: number | undefined;
  /** How many points are drawn, and how many there are. */
  shown: number;
  total: number;
}

/** The index of the last x that is not above `at`, or -1. */
export function lastNotAbove(xs: readonly number[], at: number): number {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((xs[middle] as number) <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The index of the x nearest to `at`, or -1 if there is none. */
export function nearest(xs: readonly number[], at: number): number {
  const below = lastNotAbove(xs, at);
  if (below < 0) return xs.length ? 0 : -1;
  if (below === xs.length - 1) return below;
  return at - (xs[below] as number) <= (xs[below + 1] as number) - at ? below : below + 1;
}

/** First and last index to draw for a span of x: one beyond each edge, so that lines reach the edge. */
export function window(xs: readonly number[], [from, to]: Span): [number, number] {
  return [Math.max(0, lastNotAbove(xs, from)), Math.min(xs.length - 1, lastNotAbove(xs, to) + 1)];
}

/** From the first to the last x; from zero where that is not far, so that charts of one page begin alike. */
export function extentX(lines: readonly Line[]): Span | undefined {
  let low = Infinity;
  let high = -Infinity;
  for (const line of lines) {
    if (!line.xs.length) continue;
    low = Math.min(low, line.xs[0] as number);
    high = Math.max(high, line.xs.at(-1) as number);
  }
  for (const { x } of lines.flatMap((line) => line.odd)) {
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  if (low > high) return undefined;
  if (low > 0 && (low <= high / 2 || low === high)) return [0, high];
  return low === high ? [low - 1, high + 1] : [low, high];
}

/** The lowest and highest value within a span of x, extremes of buckets included. */
export function extentY(lines: readonly Line[], span: Span, isLog: boolean): Span | undefined {
  let low = Infinity;
  let high = -Infinity;
  for (const line of lines) {
    const [from, to] = window(line.xs, span);
    for (let place = from; place <= to; place++) {
      const x = line.xs[place] as number;
      if (x < span[0] || x > span[1]) continue;
      for (const value of [line.ys[place], line.lows?.[place], line.highs?.[place]]) {
        if (value === null || value === undefined || (isLog && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  return low > high ? undefined : [low, high];
}

/** Some air above and below, and a height for what is flat. */
export function padded([low, high]: Span, isLog: boolean): Span {
  if (isLog) {
    const room = low === high ? 2 : (high / low) ** 0.06;
    return [low / room, high * room];
  }
  const room = (high - low || Math.abs(low) || 1) * 0.06;
  return [low - room, high + room];
}
