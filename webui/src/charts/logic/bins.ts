// Pairs of parameters as cells: numbers in bins, categories as they are.
import { short } from "../../format";
import type { Found, Parameter, Result } from "./search";
import { placeOn } from "./search";

export interface Axis {
  labels: readonly string[];
  /** As short as an axis needs: of a bin, where it begins. */
  marks: readonly string[];
  /** The bin of a value, or -1. */
  binOf(value: unknown): number;
}
export interface Cell {
  x: number;
  y: number;
  /** The mean of its trials. */
  mean: number;
  best: number;
  trials: readonly number[];
}

function edges(low: number, high: number, bins: number, isLog: boolean): number[] {
  const [from, to] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
  return Array.from({ length: bins + 1 }, (_, place) => {
    const at = from + ((to - from) * place) / bins;
    return isLog ? 10 ** at : at;
  });
}

/** Bins of a parameter; with few values, each has its own. */
export function axisOf(parameter: Parameter, results: readonly Result[], most = 8): Axis {
  if (parameter.kind === "category") return { labels: parameter.categories, marks: parameter.categories, binOf: (value) => placeOn(parameter, value) ?? -1 };
  const values = results.map((result) => placeOn(parameter, result.values[parameter.name])).filter((value): value is number => value !== undefined);
  const distinct = [...new Set(values)].sort((one, other) => one - other);
  if (distinct.length <= most) {
    const labels = distinct.map((value) => short(value, 3));
    return { labels, marks: labels, binOf: (value) => distinct.indexOf(placeOn(parameter, value) ?? Number.NaN) };
  }
  const low = distinct[0] as number;
  const high = distinct.at(-1) as number;
  const limits = edges(low, high, most, parameter.kind === "log");
  return {
    labels: limits.slice(0, -1).map((limit, place) => `${short(limit, 2)} to ${short(limits[place + 1] as number, 2)}`),
    marks: limits.slice(0, -1).map((limit) => short(limit, 2)),
    binOf: (value) => {
      const place = placeOn(parameter, value);
      if (place === undefined) return -1;
      return Math.min(most - 1, Math.max(0, limits.findLastIndex((limit) => place >= limit)));
    },
  };
}

export function cells(found: Found, x: Parameter, y: Parameter): { x: Axis; y: Axis; cells: Cell[] } {
  const results = found.results.filter((result) => result.metric !== null);
  const [across, up] = [axisOf(x, results), axisOf(y, results)];
  const inCell = new Map<string, Result[]>();
  for (const result of results) {
    const key = `${across.binOf(result.values[x.name])} ${up.binOf(result.values[y.name])}`;
    if (!key.includes("-1")) inCell.set(key, [...(inCell.get(key) ?? []), result]);
  }
  const better = found.metric.smallerIsBetter ? Math.min : Math.max;
  const made = [...inCell].map(([key, inside]) => {
    const [column, row] = key.split(" ").map(Number) as [number, number];
    const values = inside.map((result) => result.metric as number);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return { x: column, y: row, mean, best: better(...values), trials: inside.map((result) => result.trialId) };
  });
  return { x: across, y: up, cells: made };
}

/** Every two of the parameters, once. */
export function pairs<T>(items: readonly T[]): [T, T][] {
  return items.flatMap((one, place) => items.slice(place + 1).map((other): [T, T] => [one, other]));
}
