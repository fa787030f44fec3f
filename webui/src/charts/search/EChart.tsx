// A chart of ECharts in the page: made when it is on the screen, resized with its place, replaced in place.
import type { DependencyList, RefObject } from "react";
import { useEffect, useRef } from "react";
import { useVisible } from "../grid/useVisible";
import type { ECharts, Option } from "./echarts";
import { init } from "./echarts";

interface EChartProps {
  option: Option;
  /** What is seen, in words. */
  label: string;
  /** Told of the chart once it is there, and again with undefined before it goes; hear its events here. */
  onReady?: (chart: ECharts | undefined) => void;
  /** After each change of `option`. */
  onDrawn?: (chart: ECharts) => void;
  least?: number;
  data?: Record<`data-${string}`, string>;
}

export function EChart({ option, label, onReady, onDrawn, least = 0, data = {} }: EChartProps) {
  const [host, isVisible] = useVisible<HTMLDivElement>();
  const chart = useRef<ECharts>(undefined);
  const wasVisible = useRef(false);
  wasVisible.current ||= isVisible;
  const isNeeded = wasVisible.current;

  useEffect(() => {
    const element = host.current;
    if (!element || !isNeeded) return undefined;
    const made = init(element);
    chart.current = made;
    onReady?.(made);
    const watcher = new ResizeObserver(() => made.resize());
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      onReady?.(undefined);
      chart.current = undefined;
      made.dispose();
    };
  }, [isNeeded]);

  useEffect(() => {
    if (!chart.current) return;
    chart.current.setOption({ animation: false, ...option }, { replaceMerge: ["series", "xAxis", "yAxis", "parallelAxis"] });
    onDrawn?.(chart.current);
  }, [option, isNeeded]);

  return (
    <div className="echart-scroll">
      <div ref={host} className="echart" role="img" aria-label={label} style={{ minWidth: least }} {...data} />
    </div>
  );
}

/** Let one item stand out (its index, or -1 for none) when the mouse rests: a dozen charts redraw for it. */
export function useHighlight(chart: RefObject<ECharts | undefined>, which: () => number, changes: DependencyList): void {
  const isLit = useRef(false);
  useEffect(() => {
    const timer = setTimeout(() => {
      const at = which();
      if (isLit.current) chart.current?.dispatchAction({ type: "downplay", seriesIndex: 0 });
      if (at >= 0) chart.current?.dispatchAction({ type: "highlight", seriesIndex: 0, dataIndex: at });
      isLit.current = at >= 0;
    }, 40);
    return () => clearTimeout(timer);
  }, changes);
}
