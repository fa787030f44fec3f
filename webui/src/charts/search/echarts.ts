// The parts of ECharts that are used, and nothing else of it.
import { BarChart, HeatmapChart, ParallelChart, ScatterChart } from "echarts/charts";
import { GridComponent, ParallelComponent, TooltipComponent, VisualMapComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([BarChart, HeatmapChart, ParallelChart, ScatterChart, GridComponent, ParallelComponent, TooltipComponent, VisualMapComponent, CanvasRenderer]);

export { init };
export type { ECharts, EChartsCoreOption as Option } from "echarts/core";
