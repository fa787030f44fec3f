// The Metrics tab of a trial.
import type { components } from "../../../api";
import { MetricGrid, isProfiler } from "../../../charts";
import type { Pick as Picked } from "../../../charts";
import { moment } from "../../../format";
import { address, navigate } from "../../../route";

type Trial = components["schemas"]["TrialAnswer"];

/** The log of a trial at the moment of a point. */
export function logAt(trial: Pick<Trial, "id" | "start_time">, { seconds }: Picked): string {
  const time = seconds === undefined ? undefined : new Date(moment(trial.start_time) + seconds * 1000).toISOString();
  return address(`/trials/${trial.id}/logs`, { time });
}

export default function MetricsTab({ trial }: { trial: Trial }) {
  const shown = [{ id: trial.id, name: `trial ${trial.id}`, bestStep: trial.best_checkpoint?.steps }];
  return (
    <MetricGrid
      of={["trial", trial.id]}
      trials={shown}
      searcherMetric={trial.searcher_metric}
      shows={(series) => !isProfiler(series.group)}
      pick={{ label: "Read the log of this moment", onPick: (pick) => navigate(logAt(trial, pick)) }}
      empty="This trial has reported no metrics yet. They appear here as soon as it does."
    />
  );
}
