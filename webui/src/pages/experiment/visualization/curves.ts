// From the learning curves of a search to lines.
import type { components } from "../../../api";
import type { Line, Place } from "../../../charts";
import type { Envelope } from "../../../charts/logic/envelopes";
import { moment, toNumber } from "../../../format";
import { series } from "../../../style/theme";

export type Curve = components["schemas"]["LearningCurveAnswer"];

const strong = 10;

/** The first ten stand out, or those that were selected. */
export function isStrong(trialId: number, place: number, selected: readonly number[]): boolean {
  return selected.length ? selected.includes(trialId) : place < strong;
}

function xsOf(curve: Curve, place: Place, began: number): (number | null)[] {
  if (place === "batch") return curve.steps;
  return place === "epoch" ? curve.epochs : curve.time.map((time) => (moment(time) - began) / 1000);
}

/** The place of the best value. */
function bestAt(curve: Curve, smallerIsBetter: boolean): number | undefined {
  const best = toNumber(curve.best);
  if (best === undefined) return undefined;
  const sign = smallerIsBetter ? 1 : -1;
  let found: number | undefined;
  for (const [at, value] of curve.value.entries()) {
    if (value !== null && (found === undefined || (value - (curve.value[found] as number)) * sign < 0)) found = at;
  }
  return found;
}

interface Shown {
  place: Place;
  /** When the experiment began, in ms: time is counted from there, so that one sees which trials ran together. */
  began: number;
  selected: readonly number[];
  /** Whose best value is marked. */
  bestTrialId: number | null;
  smallerIsBetter: boolean;
}

export function curveLine(curve: Curve, at: number, shown: Shown): Line {
  const all = xsOf(curve, shown.place, shown.began);
  const kept = all.flatMap((x, place) => (x === null ? [] : [place]));
  const best = curve.trial_id === shown.bestTrialId ? bestAt(curve, shown.smallerIsBetter) : undefined;
  return {
    id: String(curve.trial_id),
    trialId: curve.trial_id,
    name: `trial ${curve.trial_id}`,
    ...series(curve.trial_id),
    isFaint: !isStrong(curve.trial_id, at, shown.selected),
    xs: kept.map((place) => all[place] as number),
    ys: kept.map((place) => curve.value[place] ?? null),
    steps: kept.map((place) => curve.steps[place] as number),
    odd: kept.flatMap((place) => (curve.value[place] === null ? [{ x: all[place] as number, value: "NaN" }] : [])),
    bestX: best === undefined ? undefined : (all[best] ?? undefined),
    shown: kept.length,
    total: curve.points,
  };
}

/** What the server is asked for when a zoom needs more points: curves that say where their steps are. */
export function asEnvelope(curve: Curve): Envelope {
  const steps = curve.steps;
  const empty = steps.map(() => null);
  return {
    trial_id: curve.trial_id, group: "", name: "", steps: steps.map((step, at) => (at ? (steps[at - 1] as number) + 1 : Math.min(0, step))), ends: steps,
    epochs: curve.epochs, seconds: empty, min: empty, mean: curve.value, max: empty, odd: [], shown: steps.length, points: curve.points, total: curve.points, is_sampled: false,
  };
}
