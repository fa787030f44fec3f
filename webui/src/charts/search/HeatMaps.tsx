// Each pair of hyperparameters: numbers in bins, the colour is the mean of the metric there.
import { useMemo, useRef, useState } from "react";
import { plural, short } from "../../format";
import { cells, pairs } from "../logic/bins";
import { toCsv } from "../logic/csv";
import type { Found, Parameter } from "../logic/search";
import { goodness } from "../logic/search";
import { ChartShell } from "../shell/ChartShell";
import type { Colors } from "../shell/palette";
import { useColors } from "../shell/palette";
import { EChart } from "./EChart";
import type { ECharts, Option } from "./echarts";
import { axisLook, plain, rampColor, tipLook } from "./looks";
import "./search.css";

type Made = ReturnType<typeof cells>;

function optionOf(found: Found, made: Made, names: [string, string], isLarge: boolean, colors: Colors): Option {
  const look = axisLook(colors);
  const good = goodness(made.cells.map((cell) => cell.mean), found.metric.smallerIsBetter);
  const label = { ...look.axisLabel, width: isLarge ? 110 : 56, overflow: "truncate" };
  const axis = { ...look, type: "category", splitArea: { show: false }, axisLabel: label };
  return {
    grid: { left: 4, right: 4, top: 4, bottom: 4, containLabel: true },
    xAxis: { ...axis, data: [...made.x.marks] },
    yAxis: { ...axis, data: [...made.y.marks], axisLine: { show: false } },
    tooltip: {
      ...tipLook(colors),
      formatter: (item: { dataIndex: number }) => {
        const cell = made.cells[item.dataIndex];
        if (!cell) return "";
        const where = `${names[0]}: ${made.x.labels[cell.x]}\n${names[1]}: ${made.y.labels[cell.y]}`;
        return plain(`${where}\nmean ${short(cell.mean)}, best ${short(cell.best)}\n${plural(cell.trials.length, "trial")}`);
      },
    },
    visualMap: { type: "continuous", show: false, min: 0, max: 1, dimension: 3, inRange: { color: [0, 0.25, 0.5, 0.75, 1].map((share) => rampColor(share, colors)) } },
    series: [
      {
        type: "heatmap",
        data: made.cells.map((cell) => [cell.x, cell.y, cell.mean, good(cell.mean)]),
        itemStyle: { borderColor: colors.bg, borderWidth: 1 },
        label: { show: isLarge, color: colors.text, textBorderColor: colors.bg, textBorderWidth: 2, fontSize: 11, formatter: (item: { dataIndex: number }) => short(made.cells[item.dataIndex]?.mean ?? 0, 3) },
        emphasis: { itemStyle: { borderColor: colors.text, borderWidth: 1 } },
      },
    ],
  };
}

function HeatMap({ found, x, y, isLarge }: { found: Found; x: Parameter; y: Parameter; isLarge: boolean }) {
  const colors = useColors();
  const chart = useRef<ECharts>(undefined);
  const made = useMemo(() => cells(found, x, y), [found, x, y]);
  const option = useMemo(() => optionOf(found, made, [x.name, y.name], isLarge, colors), [made, isLarge, colors]);
  const title = `${y.name} by ${x.name}`;
  return (
    <ChartShell
      id={`heat ${x.name} ${y.name}`}
      title={title}
      height={isLarge ? 340 : 230}
      empty={made.cells.length ? undefined : "No trial has values here yet."}
      canvas={() => chart.current?.renderToCanvas({ pixelRatio: window.devicePixelRatio })}
      csv={() => toCsv([x.name, y.name, `mean ${found.metric.name}`, "best", "trials"], made.cells.map((cell) => [made.x.labels[cell.x], made.y.labels[cell.y], cell.mean, cell.best, cell.trials.length]))}
    >
      <EChart option={option} onReady={(one) => (chart.current = one)} label={`Heat map of the mean of ${found.metric.name}: ${title}, ${plural(made.cells.length, "cell")}`} />
    </ChartShell>
  );
}

const most = 6;
const weight = ([x, y]: [Parameter, Parameter]) => (x.importance ?? 0) + (y.importance ?? 0);

export interface HeatMapsProps {
  found: Found;
  shown: readonly string[];
  layout: "grid" | "list";
}

export function HeatMaps({ found, shown, layout }: HeatMapsProps) {
  const [isAll, setAll] = useState(false);
  // Those that matter most first: of ten parameters there are 45 pairs.
  const parameters = found.parameters.filter((one) => shown.includes(one.name)).sort((one, other) => (other.importance ?? 0) - (one.importance ?? 0));
  const all = pairs(parameters);
  const few = all.length <= most ? all : all.sort((one, other) => weight(other) - weight(one)).slice(0, most);
  if (parameters.length < 2) return <p className="muted">A heat map needs two hyperparameters that differ.</p>;
  return (
    <div className="stack">
      <div className={layout === "list" ? "small-charts list" : "small-charts"}>
        {(isAll ? all : few).map(([x, y]) => (
          <HeatMap key={`${x.name} ${y.name}`} found={found} x={x} y={y} isLarge={layout === "list"} />
        ))}
      </div>
      {few.length < all.length && (
        <div>
          <button type="button" onClick={() => setAll(!isAll)}>
            {isAll ? `Show the ${few.length} that matter most` : `Show all ${all.length} pairs`}
          </button>
        </div>
      )}
    </div>
  );
}
