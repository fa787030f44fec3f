// What other rooms draw with. The charts of a search are in `charts/search`, to be imported lazily: they bring ECharts.
export type { LineChartProps, Pick } from "./line/LineChart";
export { LineChart } from "./line/LineChart";
export type { ChartSettings } from "./line/settings";
export { ChartControls, useChartSettings } from "./line/settings";
export { CrossHair, CrossHairContext } from "./line/together";
export { useCurves } from "./line/useCurves";
export { charts, seriesName } from "./logic/charts";
export type { Look } from "./logic/envelopes";
export { toLine } from "./logic/envelopes";
export type { Line, Place } from "./logic/lines";
export type { Span } from "./logic/ticks";
export { ChartShell } from "./shell/ChartShell";
export { useColors } from "./shell/palette";
export type { Moment } from "./small/moments";
export { Sparkline } from "./small/Sparkline";
export { Timeline } from "./small/Timeline";
