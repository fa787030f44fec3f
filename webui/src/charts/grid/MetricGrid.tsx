// All metrics of one or several trials: one chart per name, with one cross-hair, zoom and smoothing for all.
import type { QueryKey } from "@tanstack/react-query";
import { useMemo } from "react";
import { useGet } from "../../api";
import { Empty, ErrorNote, Skeleton } from "../../parts";
import { useQueryState } from "../../route";
import type { LineChartProps } from "../line/LineChart";
import { ChartControls, useChartSettings } from "../line/settings";
import { CrossHair, CrossHairContext } from "../line/together";
import type { Series } from "../logic/charts";
import { charts, isPlace, namesLike } from "../logic/charts";
import type { ShownTrial } from "./looks";
import { MetricChart } from "./MetricChart";

interface MetricGridProps extends Pick<LineChartProps, "lit" | "onLight" | "pick"> {
  of: QueryKey;
  trials: readonly ShownTrial[];
  searcherMetric?: string | null | undefined;
  /** Which series to show at all; by default all but those of the profiler. */
  shows?: (series: Series) => boolean;
  empty?: string;
}

export function MetricGrid({ of, trials, searcherMetric, shows = () => true, empty = "No metrics have been reported yet.", ...rest }: MetricGridProps) {
  const settings = useChartSettings();
  const [filter, setFilter] = useQueryState("metrics", "");
  const hair = useMemo(() => new CrossHair(), []);
  const ids = trials.map((trial) => trial.id).join(",");
  const { data, error, refetch } = useGet([...of, "series", ids], "/api/v1/series", { query: { trials: ids } }, { enabled: ids !== "" });
  if (!data) return error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={6} />;
  const all = charts(data.series.filter((one) => shows(one) && !isPlace(one.name)), searcherMetric);
  if (!all.length) return <Empty>{empty}</Empty>;
  const { shown, problem } = namesLike(all, filter);
  return (
    <CrossHairContext value={hair}>
      <div className="stack">
        <h2 className="visually-hidden">Metrics</h2>
        <div className="row">
          <ChartControls settings={settings} hasEpochs={data.series.some((one) => one.name.startsWith("epoch"))} />
          {all.length > 3 && (
            <input
              type="search"
              placeholder="Show metrics like loss|acc"
              aria-label="Show only metrics whose names fit this regular expression"
              aria-invalid={Boolean(problem)}
              title={problem}
              value={filter}
              onChange={(event) => setFilter(event.target.value)}
            />
          )}
        </div>
        <div className="chart-grid">
          {shown.map((chart) => (
            <MetricChart key={chart.name} of={of} chart={chart} trials={trials} settings={settings} {...rest} />
          ))}
        </div>
        {!shown.length && <Empty>No metric is named like {filter}.</Empty>}
      </div>
    </CrossHairContext>
  );
}
