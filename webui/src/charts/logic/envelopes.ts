// From the server's curves to lines: which x, which colour, and which steps to ask for when zoomed.
import type { components } from "../../api";
import type { Line, Place } from "./lines";
import type { Span } from "./ticks";

export type Envelope = components["schemas"]["Envelope"];
export interface Look {
  name: string;
  color: string;
  dash: readonly number[];
  isFaint?: boolean;
  bestStep?: number | undefined;
}

export function xsOf(curve: Pick<Envelope, "ends" | "epochs" | "seconds">, place: Place): (number | null)[] {
  return place === "batch" ? curve.ends : place === "epoch" ? curve.epochs : curve.seconds;
}

/** x of a step: that of the bucket which holds it, or of the nearest. */
function xOfStep(curve: Envelope, xs: readonly (number | null)[], step: number, place: Place): number | undefined {
  if (place === "batch") return step;
  const at = curve.ends.findIndex((end) => end >= step);
  return xs[at < 0 ? xs.length - 1 : at] ?? undefined;
}

/** A line of a curve. Points without an x (no epoch was reported) are left out; x never runs backwards. */
export function toLine(curve: Envelope, look: Look, place: Place): Line {
  const all = xsOf(curve, place);
  const kept: number[] = [];
  let last = -Infinity;
  for (const [at, x] of all.entries()) {
    // The clock of a second machine may lag: a point is not drawn left of the one before it.
    if (x === null || x < last) continue;
    last = x;
    kept.push(at);
  }
  const pick = <T>(column: readonly T[]) => kept.map((at) => column[at] as T);
  const isBucketed = curve.shown < curve.points;
  const odd = curve.odd.flatMap(({ steps, value }) => {
    const x = xOfStep(curve, all, steps, place);
    return x === undefined ? [] : [{ x, value: String(value) }];
  });
  const bestX = look.bestStep === undefined ? undefined : xOfStep(curve, all, look.bestStep, place);
  return {
    id: `${curve.trial_id} ${curve.group}:${curve.name}`,
    trialId: curve.trial_id,
    name: look.name,
    color: look.color,
    dash: look.dash,
    ...(look.isFaint ? { isFaint: true } : {}),
    xs: pick(all) as number[],
    ys: pick(curve.mean),
    lows: isBucketed ? pick(curve.min) : undefined,
    highs: isBucketed ? pick(curve.max) : undefined,
    steps: pick(curve.ends),
    seconds: pick(curve.seconds),
    odd,
    bestX,
    shown: curve.shown,
    total: curve.points,
  };
}

/** The steps to ask for, so that a span of x is covered in all curves, one bucket beyond each edge. */
export function stepsOf(curves: readonly Envelope[], place: Place, span: Span): { first: number; last: number } | undefined {
  let first = Infinity;
  let last = -Infinity;
  for (const curve of curves) {
    const xs = xsOf(curve, place);
    for (const [at, x] of xs.entries()) {
      if (x === null) continue;
      const before = xs[at - 1] ?? x;
      const after = xs[at + 1] ?? x;
      if (after < span[0] || before > span[1]) continue;
      first = Math.min(first, curve.steps[at] as number);
      last = Math.max(last, curve.ends[at] as number);
    }
  }
  return first > last ? undefined : { first, last };
}

/** True if a finer answer exists for what is shown. */
export const isCoarse = (curves: readonly Envelope[]): boolean => curves.some((curve) => curve.shown < curve.points);
