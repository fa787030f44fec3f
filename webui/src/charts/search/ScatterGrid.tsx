// The metric against each hyperparameter: one small chart per parameter.
import { useMemo, useRef } from "react";
import { plural } from "../../format";
import { toCsv } from "../logic/csv";
import type { Found, Parameter } from "../logic/search";
import { best, drawOrder, goodness, placeOn } from "../logic/search";
import { ChartShell } from "../shell/ChartShell";
import type { Colors } from "../shell/palette";
import { useColors } from "../shell/palette";
import { EChart, useHighlight } from "./EChart";
import type { ECharts, Option } from "./echarts";
import { axisLook, rampColor, tipLook, trialText } from "./looks";
import "./search.css";

export interface ScatterGridProps {
  found: Found;
  shown: readonly string[];
  isLogMetric?: boolean;
  /** Trials that brushes leave; undefined: all. */
  kept?: ReadonlySet<number> | undefined;
  lit?: number | undefined;
  onLight?: (trialId: number | undefined) => void;
  onOpen?: (trialId: number) => void;
}

interface Point {
  trialId: number;
  at: number;
  value: number;
}

function pointsOf(found: Found, parameter: Parameter, isLog: boolean): Point[] {
  return drawOrder(found).flatMap((result) => {
    const at = placeOn(parameter, result.values[parameter.name]);
    return at === undefined || result.metric === null || (isLog && result.metric <= 0) ? [] : [{ trialId: result.trialId, at, value: result.metric }];
  });
}

function optionOf(props: ScatterGridProps, parameter: Parameter, points: Point[], colors: Colors): Option {
  const { found, isLogMetric = false, kept } = props;
  const look = axisLook(colors);
  const good = goodness(found.results.map((result) => result.metric), found.metric.smallerIsBetter);
  const winner = best(found)?.trialId;
  const isCategory = parameter.kind === "category";
  return {
    grid: { left: 8, right: 12, top: 8, bottom: 4, containLabel: true },
    xAxis: {
      ...look,
      type: isCategory ? "category" : parameter.kind === "log" ? "log" : "value",
      ...(isCategory ? { data: [...parameter.categories] } : { scale: true }),
      ...(parameter.isWhole ? { minInterval: 1 } : {}),
      axisLabel: { ...look.axisLabel, ...(isCategory ? { hideOverlap: false, interval: 0, width: Math.floor(200 / parameter.categories.length), overflow: "truncate" } : {}) },
    },
    yAxis: { ...look, type: isLogMetric ? "log" : "value", scale: true, splitNumber: 4, splitLine: { show: true, lineStyle: { color: colors.line } }, axisLine: { show: false } },
    tooltip: {
      ...tipLook(colors),
      formatter: (item: { dataIndex: number }) => {
        const result = found.results.find((one) => one.trialId === points[item.dataIndex]?.trialId);
        return result ? trialText(result, found.metric, [parameter.name]) : "";
      },
    },
    series: [
      {
        type: "scatter",
        symbolSize: 7,
        data: points.map((point) => ({
          name: String(point.trialId),
          value: [point.at, point.value],
          itemStyle: {
            color: point.trialId === winner ? colors.best : rampColor(0.25 + 0.75 * good(point.value), colors),
            opacity: kept && !kept.has(point.trialId) ? 0.12 : 0.85,
          },
        })),
        emphasis: { scale: 1.8, itemStyle: { color: colors.text, opacity: 1 } },
      },
    ],
  };
}

function Scatter({ parameter, ...props }: ScatterGridProps & { parameter: Parameter }) {
  const { found, isLogMetric = false, kept, lit } = props;
  const colors = useColors();
  const chart = useRef<ECharts>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const points = useMemo(() => pointsOf(found, parameter, isLogMetric), [found, parameter, isLogMetric]);
  const option = useMemo(() => optionOf(props, parameter, points, colors), [points, colors, kept]);
  const ready = (made: ECharts | undefined) => {
    chart.current = made;
    made?.on("mouseover", (event) => latest.current.onLight?.(Number(event.name)));
    made?.on("mouseout", () => latest.current.onLight?.(undefined));
    made?.on("click", (event) => latest.current.onOpen?.(Number(event.name)));
  };
  useHighlight(chart, () => points.findIndex((point) => point.trialId === lit), [lit, option]);
  const csv = () => toCsv(["trial", parameter.name, found.metric.name], points.map((point) => [point.trialId, parameter.categories[point.at] ?? point.at, point.value]));
  return (
    <ChartShell
      id={`scatter ${parameter.name}`}
      title={parameter.name}
      height={210}
      empty={points.length ? undefined : "No trial has a value here yet."}
      unit={parameter.kind === "log" ? "log" : ""}
      canvas={() => chart.current?.renderToCanvas({ pixelRatio: window.devicePixelRatio })}
      csv={csv}
    >
      <EChart option={option} onReady={ready} label={`${found.metric.name} against ${parameter.name} (${parameter.kind}) of ${plural(points.length, "trial")}`} data={{ "data-axes": JSON.stringify([{ name: parameter.name, kind: parameter.kind }]) }} />
    </ChartShell>
  );
}

export function ScatterGrid(props: ScatterGridProps) {
  const parameters = props.found.parameters.filter((one) => props.shown.includes(one.name));
  return (
    <div className="small-charts">
      {parameters.map((parameter) => (
        <Scatter key={parameter.name} parameter={parameter} {...props} />
      ))}
    </div>
  );
}
