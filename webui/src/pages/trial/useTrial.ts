// A trial as the server tells it; live under the key of the trial.
import type { components } from "../../api";
import { useGet } from "../../api";

export type Trial = components["schemas"]["TrialAnswer"];

export function useTrial(id: number) {
  return useGet(["trial", id], "/api/v1/trials/{trial_id}", { path: { trial_id: id } });
}

/** The `group:name` of a series, as the server's curves are asked for. */
export const seriesKey = (group: string, name: string): string => `${group}:${name}`;
