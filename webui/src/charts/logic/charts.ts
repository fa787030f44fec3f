// Which series share a chart, and how a group looks.
import type { components } from "../../api";

export type Series = components["schemas"]["SeriesAnswer"];
export interface ChartOf {
  /** Base name: training and validation of one name together. */
  name: string;
  series: Series[];
}

const usual = ["validation", "training"];
const rank = (group: string) => (usual.includes(group) ? usual.indexOf(group) : usual.length);

/** Charts in the order people look: the searcher metric, what is validated, the rest, custom groups last. */
export function charts(series: readonly Series[], metric: string | null | undefined): ChartOf[] {
  const byName = new Map<string, Series[]>();
  for (const one of series) byName.set(one.chart, [...(byName.get(one.chart) ?? []), one]);
  const all = [...byName].map(([name, found]) => ({
    name,
    series: found.sort((one, other) => rank(one.group) - rank(other.group) || compare(one.group, other.group) || compare(one.name, other.name)),
  }));
  const place = (chart: ChartOf) => (chart.series.some((one) => one.name === metric) ? -1 : Math.min(...chart.series.map((one) => rank(one.group))));
  return all.sort((one, other) => place(one) - place(other) || compare(one.name, other.name));
}

const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);

export const isProfiler = (group: string): boolean => !usual.includes(group) && /^(system|profil|gpu|cpu|memory|disk|network)/i.test(group);

/** What a series is called in a legend: its group, and its name where the chart holds several of that group. */
export function seriesName(one: Series, all: readonly Series[]): string {
  const alone = all.filter((other) => other.group === one.group).length === 1;
  return alone ? one.group : `${one.group} ${one.name}`;
}
