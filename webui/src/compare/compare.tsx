import type { CompareTab } from "./tabs";

interface CompareProps {
  trials?: readonly number[];
  experiments?: readonly number[];
  tab: CompareTab;
  total: number;
}

export function Compare({ tab }: CompareProps) {
  return <p>{tab}</p>;
}
