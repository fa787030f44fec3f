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

/** Groups that the profiler writes: the machine, not the model. */
export const isProfiler = (group: string): boolean => ["gpu", "cpu", "memory", "disk", "network"].includes(group);

/** Batches and epochs that are reported beside metrics: they are places, their curves are diagonals. */
export const isPlace = (name: string): boolean => ["batches", "epochs", "epoch"].includes(name);

/** What a series is called in a legend: its group, and its name where the chart holds several of that group. */
export function seriesName(one: Series, all: readonly Series[]): string {
  const alone = all.filter((other) => other.group === one.group).length === 1;
  return alone ? one.group : `${one.group} ${one.name}`;
}

/** Charts whose name fits a regular expression; one that is none yet (still being typed) is looked for as it is. */
export function namesLike(all: readonly ChartOf[], text: string): { shown: readonly ChartOf[]; problem?: string } {
  if (!text.trim()) return { shown: all };
  try {
    const wanted = new RegExp(text.trim(), "i");
    return { shown: all.filter((chart) => wanted.test(chart.name)) };
  } catch (error) {
    const plain = text.trim().toLowerCase();
    return { shown: all.filter((chart) => chart.name.toLowerCase().includes(plain)), problem: (error as Error).message };
  }
}
