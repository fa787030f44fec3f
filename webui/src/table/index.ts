// The table of experiments and of trials. `<RunTable kind="experiments" projectId={3} />` fills the window below its place.
export { RunTable } from "./runtable";
