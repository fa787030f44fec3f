// What a chart says about the place under the mouse.
import type { Line } from "../logic/lines";
import { nearest } from "../logic/lines";
import type { Span } from "../logic/ticks";

export interface Row {
  line: Line;
  value: number | null;
  /** The smoothed value, if the chart smooths. */
  smoothed?: number | null | undefined;
  low?: number | null | undefined;
  high?: number | null | undefined;
  /** NaN or an infinity that was reported near here. */
  odd?: string | undefined;
  step: number | undefined;
  seconds: number | undefined;
  x: number;
  isBest: boolean;
}

/** The value of each line at x, the highest first. A line that does not reach x within `slack` is left out. */
export function rowsAt(
  lines: readonly Line[],
  smoothed: ReadonlyMap<string, readonly (number | null)[]>,
  x: number,
  slack: number,
): Row[] {
  const rows = lines.flatMap((line): Row[] => {
    const at = nearest(line.xs, x);
    const odd = line.odd.find((one) => Math.abs(one.x - x) <= slack)?.value;
    if (at < 0 && odd === undefined) return [];
    const own = line.xs[at] ?? x;
    const first = line.xs[0] ?? own;
    const last = line.xs.at(-1) ?? own;
    if (odd === undefined && (x < first - slack || x > last + slack)) return [];
    const isBest = line.bestX !== undefined && Math.abs(line.bestX - x) <= slack;
    const value = line.ys[at] ?? null;
    return [
      { line, x: own, value, smoothed: smoothed.get(line.id)?.[at], low: line.lows?.[at], high: line.highs?.[at], odd, step: line.steps[at], seconds: line.seconds?.[at] ?? undefined, isBest },
    ];
  });
  const key = (row: Row) => row.smoothed ?? row.value ?? -Infinity;
  return rows.sort((one, other) => key(other) - key(one));
}

/** At most `most` rows, around the one that matters. */
export function around(rows: readonly Row[], lit: number | undefined, most: number): readonly Row[] {
  if (rows.length <= most) return rows;
  const at = Math.max(0, rows.findIndex((row) => row.line.trialId === lit));
  const from = Math.min(Math.max(0, at - (most >> 1)), rows.length - most);
  return rows.slice(from, from + most);
}

/** The line nearest to a point in pixels, if it is near enough. `toPixel` gives the height of a value. */
export function lineNear(rows: readonly Row[], top: number, toPixel: (value: number) => number, near: number): Row | undefined {
  let found: Row | undefined;
  let least = near;
  for (const row of rows) {
    const value = row.smoothed ?? row.value;
    if (value === null || value === undefined) continue;
    const away = Math.abs(toPixel(value) - top);
    if (away < least) [found, least] = [row, away];
  }
  return found;
}

/** A span that was dragged, or undefined if it is too narrow to mean anything. */
export function dragged(from: number, to: number, pixels: number): Span | undefined {
  return pixels < 5 || from === to ? undefined : [Math.min(from, to), Math.max(from, to)];
}
