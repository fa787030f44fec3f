// What a search found, as charts need it: parameters with the kind of their axis, trials with their values.
import type { components } from "../../api";
import { toNumber } from "../../format";

type Answer = components["schemas"]["SearchAnswer"];

export type AxisKind = "linear" | "log" | "category";
export interface Parameter {
  name: string;
  kind: AxisKind;
  /** Of a category axis, in order. */
  categories: readonly string[];
  isWhole: boolean;
  importance: number | null;
}
export interface Result {
  trialId: number;
  name: string;
  values: Readonly<Record<string, unknown>>;
  /** Null if it has none yet, or none that is finite. */
  metric: number | null;
}
export interface Metric {
  name: string;
  smallerIsBetter: boolean;
}
export interface Found {
  metric: Metric;
  parameters: readonly Parameter[];
  results: readonly Result[];
}

/** A log axis has no place for zero and below: then it is linear, whatever was searched. */
function kindOf(one: Answer["hyperparameters"][number], results: Answer["results"]): AxisKind {
  if (one.categories.length) return "category";
  const isPositive = results.every((result) => result.hparams[one.name] === undefined || Number(result.hparams[one.name]) > 0);
  return one.is_log && isPositive ? "log" : "linear";
}

export function foundOf(answer: Answer): Found {
  return {
    metric: { name: answer.metric, smallerIsBetter: answer.smaller_is_better },
    parameters: answer.hyperparameters.map((one) => ({
      name: one.name,
      kind: kindOf(one, answer.results),
      categories: one.categories,
      isWhole: one.is_whole,
      importance: one.importance,
    })),
    results: answer.results.map((result) => {
      const value = toNumber(result.value);
      const metric = value !== undefined && Number.isFinite(value) ? value : null;
      return { trialId: result.trial_id, name: `trial ${result.trial_id}`, values: result.hparams, metric };
    }),
  };
}

/** Text of a category as the server names it. */
export function categoryText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

/** Where a value lies on its axis: a number, or the index of its category; undefined if it has no place there. */
export function placeOn(parameter: Parameter, value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (parameter.kind === "category") {
    const at = parameter.categories.indexOf(categoryText(value));
    return at < 0 ? undefined : at;
  }
  const number = Number(value);
  return Number.isFinite(number) && (parameter.kind !== "log" || number > 0) ? number : undefined;
}

export function best(found: Found): Result | undefined {
  const sign = found.metric.smallerIsBetter ? 1 : -1;
  let winner: Result | undefined;
  for (const one of found.results) {
    if (one.metric !== null && (winner?.metric == null || (one.metric - winner.metric) * sign < 0)) winner = one;
  }
  return winner;
}

/** The worst first, so that the best are drawn over them; without a value before all. */
export function drawOrder({ results, metric }: Found): Result[] {
  const sign = metric.smallerIsBetter ? 1 : -1;
  const key = (result: Result) => (result.metric === null ? Infinity : result.metric * sign);
  return [...results].sort((one, other) => (key(one) === key(other) ? 0 : key(other) - key(one)));
}

/** How good a value is, 0 to 1, among the others. The worst tenth is all 0, so that one that diverged hides no difference. */
export function goodness(values: readonly (number | null)[], smallerIsBetter: boolean): (value: number | null) => number {
  const sign = smallerIsBetter ? 1 : -1;
  const order = values.filter((value): value is number => value !== null).map((value) => value * sign).sort((one, other) => one - other);
  const top = order[0] ?? 0;
  const bottom = order[Math.max(0, Math.ceil(order.length * 0.9) - 1)] ?? 0;
  return (value) => {
    if (value === null) return 0;
    return bottom === top ? 1 : Math.max(0, Math.min(1, (bottom - value * sign) / (bottom - top)));
  };
}

/** Spans that were brushed, by the name of the axis; of several on one axis any may hold. */
export type Brush = Readonly<Record<string, readonly (readonly [number, number])[]>>;
export const metricAxis = "metric:";

export function isInside(result: Result, brush: Brush, parameters: readonly Parameter[]): boolean {
  return Object.entries(brush).every(([name, spans]) => {
    if (!spans.length) return true;
    const parameter = parameters.find((one) => one.name === name);
    const place = name === metricAxis ? (result.metric ?? undefined) : parameter && placeOn(parameter, result.values[name]);
    // An axis that is not shown any more filters nothing.
    if (name !== metricAxis && !parameter) return true;
    return place !== undefined && spans.some(([low, high]) => place >= low && place <= high);
  });
}

/** The trials that all brushes let through; undefined without a brush. */
export function brushed(found: Found, brush: Brush): ReadonlySet<number> | undefined {
  if (!Object.values(brush).some((spans) => spans.length)) return undefined;
  return new Set(found.results.filter((result) => isInside(result, brush, found.parameters)).map((result) => result.trialId));
}

/** The parameters that are shown at first: those that matter most, at most ten, in the order of the configuration. */
export function usualParameters(parameters: readonly Parameter[], most = 10): string[] {
  const byImportance = [...parameters].sort((one, other) => (other.importance ?? 0) - (one.importance ?? 0));
  const kept = new Set(byImportance.slice(0, most).map((one) => one.name));
  return parameters.filter((one) => kept.has(one.name)).map((one) => one.name);
}
