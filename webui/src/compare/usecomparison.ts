// The comparison of several trials, and the look of each of them, the same in all tabs.
import { useMemo } from "react";
import { useGet } from "../api";
import { series, useTheme } from "../style/theme";
import type { ComparedTrial, Comparison } from "./values";
import { names, slots } from "./values";

export interface Item {
  trial: ComparedTrial;
  id: number;
  name: string;
  color: string;
  dash: readonly number[];
  /** The page of what was chosen: the experiment, or the trial. */
  to: string;
}

export interface Comparing {
  items: Item[];
  answer: Comparison | undefined;
  error: unknown;
  retry: () => unknown;
  isOld: boolean;
}

export function useComparison(trials: readonly number[] | undefined, experiments: readonly number[] | undefined): Comparing {
  const query = trials ? { trials: trials.join(",") } : { experiments: (experiments ?? []).join(",") };
  const { data, error, refetch, isPlaceholderData } = useGet(["compare", query], "/api/v1/compare", { query });
  const { shown } = useTheme();
  const items = useMemo(() => {
    const all = data?.trials ?? [];
    const called = names(all, experiments !== undefined);
    const places = slots(all.map(({ id }) => id));
    return all.map((trial) => ({
      trial,
      id: trial.id,
      name: called.get(trial.id) ?? String(trial.id),
      ...series((places.get(trial.id) ?? 0) + 1),
      to: experiments ? `/experiments/${trial.experiment_id}` : `/trials/${trial.id}`,
    }));
  }, [data, shown, experiments === undefined]);
  return { items, answer: data, error, retry: refetch, isOld: isPlaceholderData };
}
