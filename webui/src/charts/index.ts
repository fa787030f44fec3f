// What other rooms draw with. The charts of a search are in `charts/search`, to be imported lazily: they bring ECharts.
export type { Moment } from "./small/moments";
export { Sparkline } from "./small/Sparkline";
export { Timeline } from "./small/Timeline";
