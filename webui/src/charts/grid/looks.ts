// How the lines of a chart differ: of one trial by group, of several by trial.
import { series as ofTrial, token } from "../../style/theme";
import type { ChartOf, Series } from "../logic/charts";
import { seriesName } from "../logic/charts";
import type { Envelope, Look } from "../logic/envelopes";

export interface ShownTrial {
  id: number;
  name: string;
  /** Steps of its best checkpoint. */
  bestStep?: number | undefined;
  /** One of many: pale. */
  isFaint?: boolean;
  /** Instead of the colour of its number, where two of the same would meet. */
  look?: Pick<Look, "color" | "dash">;
}

const groups = ["validation", "training"];

/** Validation and training have the same colours in every chart; other groups take those that follow. */
function groupLook(one: Series, all: readonly Series[]): Pick<Look, "color" | "dash"> {
  const custom = [...new Set(all.map((other) => other.group))].filter((group) => !groups.includes(group));
  const place = groups.includes(one.group) ? groups.indexOf(one.group) : groups.length + custom.indexOf(one.group);
  const nth = all.filter((other) => other.group === one.group).indexOf(one);
  const dashes = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
  // Several of one group: neighbours in colour first, dashes when colours run out.
  const isAlone = all.length === 1 || all.every((other) => other.group !== one.group || other === one);
  const color = isAlone ? place : place + nth;
  return { color: token(`series-${(color % 8) + 1}`), dash: isAlone ? [] : (dashes[Math.floor(color / 8) % 4] ?? []) };
}

/** The look of each curve of a chart. */
export function lookOf(curve: Envelope, chart: ChartOf, trials: readonly ShownTrial[]): Look | undefined {
  const trial = trials.find((one) => one.id === curve.trial_id);
  const one = chart.series.find((other) => other.group === curve.group && other.name === curve.name);
  if (!trial || !one) return undefined;
  const bestStep = curve.group === "validation" ? trial.bestStep : undefined;
  if (trials.length === 1) return { name: seriesName(one, chart.series), bestStep, ...groupLook(one, chart.series) };
  const isFirst = one === chart.series[0];
  const name = chart.series.length === 1 ? trial.name : `${trial.name} ${seriesName(one, chart.series)}`;
  // Of several groups the first is strong: twenty trials in two groups each would hide each other.
  return { name, bestStep, ...(trial.look ?? ofTrial(trial.id)), isFaint: trial.isFaint || !isFirst };
}
