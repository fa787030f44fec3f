// One metric of one or several trials, asked for when it comes on the screen and live while it is there.
import type { QueryKey } from "@tanstack/react-query";
import { useMemo } from "react";
import { explain, url } from "../../api";
import type { LineChartProps } from "../line/LineChart";
import { LineChart } from "../line/LineChart";
import type { ChartSettings } from "../line/settings";
import { useCurves } from "../line/useCurves";
import type { ChartOf } from "../logic/charts";
import { toLine } from "../logic/envelopes";
import { loading } from "../shell/ChartShell";
import { useColors } from "../shell/palette";
import type { ShownTrial } from "./looks";
import { lookOf } from "./looks";
import { useVisible } from "./useVisible";

export interface MetricChartProps extends Pick<LineChartProps, "lit" | "onLight" | "pick" | "height"> {
  /** Under which query key it is live: `["trial", 7]` or `["compare", ...]`. */
  of: QueryKey;
  chart: ChartOf;
  trials: readonly ShownTrial[];
  settings: ChartSettings;
}

/** As fine as a chart of half a screen shows; coarser where many lie over each other. */
const bucketsFor = (lines: number): number => (lines <= 4 ? 800 : lines <= 20 ? 400 : 200);

function emptyText(place: string, isLoading: boolean, error: unknown): string {
  if (error) return explain(error);
  if (isLoading) return loading;
  return place === "epoch" ? "No epochs were reported for this metric. Choose batches or time." : "Nothing has been reported yet.";
}

export function MetricChart({ of, chart, trials, settings, ...rest }: MetricChartProps) {
  const [ref, isVisible] = useVisible<HTMLDivElement>();
  const { theme } = useColors();
  const { place, smoothing, isLog, zoom, setZoom } = settings;
  const ids = trials.map((trial) => trial.id);
  const names = chart.series.map((one) => `${one.group}:${one.name}`);
  const buckets = bucketsFor(ids.length * names.length);
  const { curves, error, isLoading } = useCurves({ of, trials: ids, series: names, place, zoom, buckets, isWanted: isVisible });
  // By content, because callers make new lists with each render.
  const same = JSON.stringify([trials, chart]);
  const lines = useMemo(
    () =>
      (curves ?? []).flatMap((curve) => {
        const look = lookOf(curve, chart, trials);
        return look ? [toLine(curve, look, place)] : [];
      }),
    [curves, place, theme, same],
  );
  const csvFrom = url("/api/v1/curves/csv", { query: { trials: ids.join(","), series: names } });
  return (
    <div ref={ref}>
      <LineChart
        {...rest}
        id={chart.name}
        title={chart.name}
        lines={lines}
        place={place}
        smoothing={smoothing}
        isLog={isLog}
        zoom={zoom}
        onZoom={setZoom}
        // Of several trials there is a legend for all charts together.
        {...(trials.length > 1 ? { mostNamed: 0 } : {})}
        csvFrom={csvFrom}
        empty={emptyText(place, isLoading || !isVisible, error)}
      />
    </div>
  );
}
