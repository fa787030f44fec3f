// The hyperparameters that differ and the metric, as parallel coordinates.
import { Empty } from "../parts";
import type { Item } from "./usecomparison";
import type { Comparison } from "./values";

interface ParallelProps {
  answer: Comparison;
  items: readonly Item[];
  lit: number | undefined;
  onLight: (id: number | undefined) => void;
}

export function Parallel({ answer }: ParallelProps) {
  if (!answer.hyperparameters.length) return <Empty>No hyperparameter differs.</Empty>;
  return <Empty>{answer.hyperparameters.join(", ")}</Empty>;
}
