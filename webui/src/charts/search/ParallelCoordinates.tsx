// Each trial a line across its hyperparameters to the metric; brushes on axes leave only what passes all of them.
import { useMemo, useRef } from "react";
import { plural } from "../../format";
import { toCsv } from "../logic/csv";
import type { Brush, Found, Parameter } from "../logic/search";
import { best, brushed, drawOrder, goodness, metricAxis, placeOn } from "../logic/search";
import { ChartShell } from "../shell/ChartShell";
import type { Colors } from "../shell/palette";
import { useColors } from "../shell/palette";
import { EChart, useHighlight } from "./EChart";
import type { ECharts, Option } from "./echarts";
import { axisLook, rampColor, tipLook, trialText } from "./looks";
import "./search.css";

export interface ParallelCoordinatesProps {
  found: Found;
  /** Names of the parameters that have an axis. */
  shown: readonly string[];
  isLogMetric?: boolean;
  brush: Brush;
  onBrush: (brush: Brush) => void;
  lit?: number | undefined;
  onLight?: (trialId: number | undefined) => void;
  onOpen?: (trialId: number) => void;
  /** The colour of a trial where it has one of its own; by default how good it is. */
  colorOf?: (trialId: number) => string | undefined;
  height?: number;
  id?: string;
  empty?: string | undefined;
}

const brushOpacity = 0.18;

interface AxisOf {
  name: string;
  title: string;
  kind: Parameter["kind"];
  parameter?: Parameter;
}

function axesOf({ found, shown, isLogMetric }: ParallelCoordinatesProps): AxisOf[] {
  const parameters = found.parameters.filter((one) => shown.includes(one.name));
  const isLog = Boolean(isLogMetric) && found.results.every((result) => result.metric === null || result.metric > 0);
  return [
    ...parameters.map((parameter): AxisOf => ({ name: parameter.name, title: parameter.name, kind: parameter.kind, parameter })),
    { name: metricAxis, title: found.metric.name, kind: isLog ? "log" : "linear" },
  ];
}

function valueOn(axis: AxisOf, result: Found["results"][number]): number | undefined {
  return axis.parameter ? placeOn(axis.parameter, result.values[axis.name]) : (result.metric ?? undefined);
}

/** Whole decades, so that a log axis begins and ends at a mark. */
function extent(axis: AxisOf, found: Found): { min?: number; max?: number } {
  if (axis.kind !== "log") return {};
  const values = found.results.map((result) => valueOn(axis, result)).filter((value): value is number => value !== undefined);
  if (!values.length) return {};
  const low = Math.floor(Math.log10(Math.min(...values)) + 1e-9);
  const high = Math.ceil(Math.log10(Math.max(...values)) - 1e-9);
  return { min: 10 ** low, max: 10 ** Math.max(high, low + 1) };
}

function axisOption(axis: AxisOf, place: number, found: Found, colors: Colors) {
  const look = axisLook(colors);
  const isCategory = axis.kind === "category";
  return {
    ...look,
    id: axis.name,
    dim: place,
    name: axis.title,
    nameLocation: "end",
    nameGap: 12,
    nameTruncate: { maxWidth: 120, ellipsis: "…" },
    nameTextStyle: { ...look.nameTextStyle, color: colors.text },
    type: isCategory ? "category" : axis.kind === "log" ? "log" : "value",
    ...(isCategory ? { data: [...(axis.parameter?.categories ?? [])] } : { scale: true }),
    ...(axis.parameter?.isWhole ? { minInterval: 1 } : {}),
    ...extent(axis, found),
    axisLine: { lineStyle: { color: colors.faint } },
    axisLabel: { ...look.axisLabel, width: 72, overflow: "truncate", textBorderColor: colors.bg, textBorderWidth: 3 },
    areaSelectStyle: { width: 16, borderWidth: 1, borderColor: colors.accent, color: colors.accent, opacity: brushOpacity },
    realtime: true,
  };
}

function seriesOption(props: ParallelCoordinatesProps, axes: AxisOf[], colors: Colors) {
  const { found, brush } = props;
  // The best are drawn last, over the others.
  const results = drawOrder(found);
  const good = goodness(found.results.map((result) => result.metric), found.metric.smallerIsBetter);
  const winner = best(found)?.trialId;
  const inside = brushed(found, brush);
  return {
    type: "parallel",
    smooth: false,
    progressive: 0,
    inactiveOpacity: 0.04,
    activeOpacity: 0.9,
    data: results.map((result) => {
      const isBest = result.trialId === winner && (!inside || inside.has(winner));
      const color = props.colorOf?.(result.trialId) ?? (isBest ? colors.best : rampColor(good(result.metric), colors));
      return {
        name: String(result.trialId),
        value: axes.map((axis) => valueOn(axis, result) ?? null),
        lineStyle: { color, width: isBest ? 2.5 : 1.25, opacity: result.metric === null ? 0.25 : 0.85 },
      };
    }),
    emphasis: { focus: "self", lineStyle: { width: 3, opacity: 1, color: colors.text } },
    blur: { lineStyle: { opacity: 0.12 } },
  };
}

function optionOf(props: ParallelCoordinatesProps, axes: AxisOf[], colors: Colors): Option {
  const names = axes.filter((axis) => axis.parameter).map((axis) => axis.name);
  return {
    parallel: { left: 56, right: 72, top: 36, bottom: 16, axisExpandable: false },
    parallelAxis: axes.map((axis, place) => axisOption(axis, place, props.found, colors)),
    series: [seriesOption(props, axes, colors)],
    tooltip: {
      ...tipLook(colors),
      trigger: "item",
      formatter: (item: { dataIndex: number }) => {
        const result = drawOrder(props.found)[item.dataIndex];
        return result ? trialText(result, props.found.metric, names) : "";
      },
    },
  };
}

interface Cover {
  __brushOption?: { brushStyle: object };
}

/** ECharts paints brushes that come from an action, as after a reload, in a colour of its own; give them ours. */
function paintBrushes(chart: ECharts, colors: Colors): void {
  const style = { lineWidth: 1, stroke: colors.accent, fill: colors.accent, opacity: brushOpacity };
  for (const shape of chart.getZr().storage.getDisplayList(true)) {
    const cover = shape.parent as unknown as Cover | null;
    if (!cover?.__brushOption || shape.name !== "main") continue;
    cover.__brushOption.brushStyle = style;
    shape.useStyle({ ...style });
  }
}

interface AreaEvent {
  parallelAxisId?: string;
  intervals?: [number, number][];
}

export function ParallelCoordinates(props: ParallelCoordinatesProps) {
  const { found, brush, lit, height = 320, id = "parallel" } = props;
  const colors = useColors();
  const latest = useRef(props);
  latest.current = props;
  const chart = useRef<ECharts>(undefined);
  const axes = useMemo(() => axesOf(props), [found, props.shown, props.isLogMetric]);
  const option = useMemo(() => optionOf(props, axes, colors), [found, axes, colors, JSON.stringify(brush)]);

  const ready = (made: ECharts | undefined) => {
    chart.current = made;
    const trialOf = (event: { name?: string }) => Number(event.name);
    made?.on("mouseover", (event) => latest.current.onLight?.(trialOf(event)));
    made?.on("mouseout", () => latest.current.onLight?.(undefined));
    made?.on("click", (event) => latest.current.onOpen?.(trialOf(event)));
    made?.on("axisareaselected", (event) => {
      const { parallelAxisId, intervals } = event as AreaEvent;
      if (parallelAxisId === undefined) return;
      const { [parallelAxisId]: _, ...others } = latest.current.brush;
      const spans = (intervals ?? []).filter((span) => span.every(Number.isFinite));
      latest.current.onBrush(spans.length ? { ...others, [parallelAxisId]: spans } : others);
    });
  };
  const drawn = (made: ECharts) => {
    for (const axis of axes) {
      const intervals = (latest.current.brush[axis.name] ?? []).map(([low, high]) => [low, high]);
      made.dispatchAction({ type: "axisAreaSelect", parallelAxisId: axis.name, intervals }, { silent: true });
    }
    paintBrushes(made, colors);
  };
  useHighlight(chart, () => drawOrder(found).findIndex((result) => result.trialId === lit), [lit, option]);

  const inside = brushed(found, brush);
  const label = `Parallel coordinates of ${plural(found.results.length, "trial")}: ${axes.map((axis) => `${axis.title} (${axis.kind})`).join(", ")}`;
  const csv = () =>
    toCsv(
      ["trial", ...axes.map((axis) => axis.title)],
      found.results.filter((result) => !inside || inside.has(result.trialId)).map((result) => [result.trialId, ...axes.map((axis) => (axis.parameter ? cell(result.values[axis.name]) : result.metric))]),
    );
  return (
    <ChartShell
      id={id}
      title="Parallel coordinates"
      height={height}
      empty={props.empty}
      note={inside ? `${plural(inside.size, "trial")} of ${found.results.length} pass the brushes` : "drag along an axis to keep only the trials that pass there"}
      legend={inside && <button type="button" className="plain" onClick={() => props.onBrush({})}>Clear brushes</button>}
      canvas={() => chart.current?.renderToCanvas({ pixelRatio: window.devicePixelRatio })}
      csv={csv}
    >
      <EChart option={option} label={label} onReady={ready} onDrawn={drawn} least={axes.length * 88} data={{ "data-axes": JSON.stringify(axes.map(({ name, title, kind }) => ({ name: name === metricAxis ? title : name, kind }))) }} />
    </ChartShell>
  );
}

const cell = (value: unknown) => (typeof value === "number" || typeof value === "string" || typeof value === "boolean" ? value : JSON.stringify(value));
