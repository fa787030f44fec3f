// The curve of the metric that the search goes by; without one, of the metric that says most.
import { useMemo } from "react";
import type { ChartOf } from "../../../charts";
import { MetricChart, charts, useChartSettings } from "../../../charts";
import { useGet } from "../../../api";
import type { Trial } from "../useTrial";
import { telling } from "./metrics";

/** The chart that holds this metric, with training and validation of its base name. */
function chartOf(all: ChartOf[], metric: { group: string; name: string } | undefined): ChartOf | undefined {
  return all.find((chart) => chart.series.some((one) => one.group === metric?.group && one.name === metric.name));
}

export function MetricCurve({ trial }: { trial: Trial }) {
  const settings = useChartSettings();
  const query = { trials: String(trial.id) };
  const { data } = useGet(["trial", trial.id, "series", query.trials], "/api/v1/series", { query });
  const [main] = telling(trial, 1);
  const best = trial.best_checkpoint?.steps;
  const trials = useMemo(() => [{ id: trial.id, name: `trial ${trial.id}`, bestStep: best }], [trial.id, best]);
  const chart = data && chartOf(charts(data.series, trial.searcher_metric), main);
  if (!chart) return null;
  return (
    <section>
      <h2 className="visually-hidden">Curve</h2>
      <MetricChart of={["trial", trial.id]} chart={chart} trials={trials} settings={settings} height={240} />
    </section>
  );
}
