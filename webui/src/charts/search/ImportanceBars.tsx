// How much of the metric's variance each hyperparameter explains.
import { useMemo, useRef } from "react";
import { percent } from "../../format";
import { toCsv } from "../logic/csv";
import type { Found } from "../logic/search";
import { ChartShell } from "../shell/ChartShell";
import type { Colors } from "../shell/palette";
import { useColors } from "../shell/palette";
import { EChart } from "./EChart";
import type { ECharts, Option } from "./echarts";
import { axisLook, font } from "./looks";
import "./search.css";

type Bar = readonly [string, number];

function optionOf(bars: readonly Bar[], colors: Colors): Option {
  const look = axisLook(colors);
  return {
    grid: { left: 4, right: 48, top: 0, bottom: 0, containLabel: true },
    xAxis: { type: "value", show: false, max: Math.max(...bars.map(([, share]) => share)) || 1 },
    yAxis: {
      ...look,
      type: "category",
      inverse: true,
      data: bars.map(([name]) => name),
      axisLine: { show: false },
      axisLabel: { ...look.axisLabel, color: colors.text, fontSize: 12, width: 140, overflow: "truncate", hideOverlap: false },
    },
    series: [
      {
        type: "bar",
        data: bars.map(([, share]) => share),
        barWidth: 10,
        itemStyle: { color: colors.accent, borderRadius: 2 },
        label: { show: true, position: "right", color: colors.muted, fontSize: 11, fontFamily: font, formatter: (item: { value: number }) => percent(item.value) },
        emphasis: { disabled: true },
      },
    ],
  };
}

export interface ImportanceBarsProps {
  found: Found;
  /** Too few trials for it to say much. */
  isUncertain?: boolean;
}

export function ImportanceBars({ found, isUncertain = false }: ImportanceBarsProps) {
  const colors = useColors();
  const chart = useRef<ECharts>(undefined);
  const bars = useMemo(() => {
    const known = found.parameters.flatMap((one): Bar[] => (one.importance === null ? [] : [[one.name, one.importance]]));
    return known.sort((one, other) => other[1] - one[1]).slice(0, 20);
  }, [found]);
  const option = useMemo(() => optionOf(bars, colors), [bars, colors]);
  return (
    <ChartShell
      id="importance"
      title="Importance"
      height={52 + 26 * Math.max(2, bars.length)}
      note={isUncertain ? "few trials: a rough guess" : `share of the variance of ${found.metric.name}`}
      empty={bars.length ? undefined : "Importance needs more trials that have a value of the metric."}
      canvas={() => chart.current?.renderToCanvas({ pixelRatio: window.devicePixelRatio })}
      csv={() => toCsv(["hyperparameter", "importance"], bars)}
    >
      <EChart option={option} onReady={(one) => (chart.current = one)} label={`Importance of hyperparameters: ${bars.map(([name, share]) => `${name} ${percent(share)}`).join(", ")}`} />
    </ChartShell>
  );
}
