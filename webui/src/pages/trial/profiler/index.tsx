// The Profiler tab of a trial: what its machine did, over time.
import { useMemo } from "react";
import type { components } from "../../../api";
import { explain, useGet } from "../../../api";
import type { ChartSettings } from "../../../charts";
import { ChartControls, CrossHair, CrossHairContext, LineChart, toLine, useChartSettings, useColors, useCurves } from "../../../charts";
import { loading } from "../../../charts/shell/ChartShell";
import { Empty, ErrorNote, Skeleton } from "../../../parts";
import { navigate } from "../../../route";
import { token } from "../../../style/theme";
import { logAt } from "../metrics";
import type { SampleChart } from "./samples";
import { sampleCharts } from "./samples";

type Trial = components["schemas"]["TrialAnswer"];

function Chart({ trial, chart, settings }: { trial: Trial; chart: SampleChart; settings: ChartSettings }) {
  const { theme } = useColors();
  const { zoom, smoothing, isLog, setZoom } = settings;
  const series = chart.lines.map(({ series: one }) => `${one.group}:${one.name}`);
  const { curves, error, isLoading } = useCurves({ of: ["trial", trial.id], trials: [trial.id], series, place: "time", zoom });
  const lines = useMemo(
    () =>
      chart.lines.flatMap(({ series: one, name }, at) => {
        const curve = curves?.find((other) => other.group === one.group && other.name === one.name);
        return curve ? [toLine(curve, { name, color: token(`series-${(at % 8) + 1}`), dash: [] }, "time")] : [];
      }),
    [curves, theme, series.join()],
  );
  return (
    <LineChart
      id={chart.title}
      title={chart.title}
      lines={lines}
      place="time"
      amount={chart.amount}
      smoothing={smoothing}
      isLog={isLog}
      zoom={zoom}
      onZoom={setZoom}
      pick={{ label: "Read the log of this moment", onPick: (pick) => navigate(logAt(trial, pick)) }}
      empty={error ? explain(error) : isLoading ? loading : "No samples yet."}
    />
  );
}

export default function ProfilerTab({ trial }: { trial: Trial }) {
  const settings = useChartSettings();
  const hair = useMemo(() => new CrossHair(), []);
  const { data, error, refetch } = useGet(["trial", trial.id, "series", String(trial.id)], "/api/v1/series", { query: { trials: String(trial.id) } });
  if (!data) return error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={6} />;
  const charts = sampleCharts(data.series);
  if (!charts.length) return <Empty command="trainer.fit(profiling_enabled=True)">The machine of this trial was not sampled. Switch that on where it trains:</Empty>;
  return (
    <CrossHairContext value={hair}>
      <div className="stack">
        <h2 className="visually-hidden">Samples of the machine</h2>
        <ChartControls settings={settings} places={["time"]} />
        <div className="chart-grid">
          {charts.map((chart) => (
            <Chart key={chart.title} trial={trial} chart={chart} settings={settings} />
          ))}
        </div>
      </div>
    </CrossHairContext>
  );
}
