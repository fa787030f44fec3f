// In which order the metrics of a trial are read. Pure.
import { isPlace, isProfiler } from "../../../charts/logic/charts";
import type { Trial } from "../useTrial";

export type Metric = Trial["metrics"][number];
type Known = Pick<Trial, "metrics" | "searcher_metric">;

/** Batches and epochs count; the profiler's groups are about the machine. Neither says how well the model does. */
const isBeside = (metric: Metric): boolean => isPlace(metric.name) || isProfiler(metric.group);

/** The searcher metric, then validation, then the rest; what only counts, and what the profiler says, last. */
export function sorted({ metrics, searcher_metric }: Known): Metric[] {
  const rank = (metric: Metric) => {
    if (isBeside(metric)) return isPlace(metric.name) ? 4 : 5;
    if (metric.group === "validation") return metric.name === searcher_metric ? 0 : 1;
    return metric.group === "training" ? 2 : 3;
  };
  return [...metrics].sort((a, b) => rank(a) - rank(b) || a.group.localeCompare(b.group, "en") || a.name.localeCompare(b.name, "en"));
}

/** The first few that say something, for columns. */
export function telling(known: Known, most: number): Metric[] {
  const all = sorted(known);
  const some = all.filter((metric) => !isBeside(metric)).slice(0, most);
  return some.length ? some : all.slice(0, most);
}
