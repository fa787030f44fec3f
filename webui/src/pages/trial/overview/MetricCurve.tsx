// The curve of the metric that the search goes by.
import type { Trial } from "../useTrial";

export function MetricCurve({ trial }: { trial: Trial }) {
  return <section className="metric-curve" aria-label={`Curve of ${trial.searcher_metric ?? "nothing"}`} />;
}
