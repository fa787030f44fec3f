// The charts of a search. Import it lazily: it brings ECharts.
export { HeatMaps } from "./HeatMaps";
export { ImportanceBars } from "./ImportanceBars";
export { ParallelCoordinates } from "./ParallelCoordinates";
export { RungLadder } from "./RungLadder";
export { ScatterGrid } from "./ScatterGrid";
