// An experiment as the server tells it; live under the key of the experiment.
import type { components } from "../../api";
import { useGet } from "../../api";

export type Experiment = components["schemas"]["ExperimentAnswer"];

export function useExperiment(id: number) {
  return useGet(["experiment", id], "/api/v1/experiments/{experiment_id}", { path: { experiment_id: id } });
}
