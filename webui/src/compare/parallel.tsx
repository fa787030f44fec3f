// The hyperparameters that differ and the metric, as parallel coordinates: one line per item, in its colour.
import { useMemo, useState } from "react";
import { ParallelCoordinates } from "../charts/search";
import type { Brush } from "../charts/logic/search";
import { Empty } from "../parts";
import { navigate } from "../route";
import { foundIn } from "./found";
import type { Item } from "./usecomparison";
import type { Comparison } from "./values";

interface ParallelProps {
  answer: Comparison;
  items: readonly Item[];
  lit: number | undefined;
  onLight: (id: number | undefined) => void;
}

export function Parallel({ answer, items, lit, onLight }: ParallelProps) {
  const [brush, setBrush] = useState<Brush>({});
  const found = useMemo(() => foundIn(answer, items), [answer, items.map(({ id, color }) => `${id} ${color}`).join()]);
  const shown = useMemo(() => found.parameters.map(({ name }) => name), [found]);
  if (!shown.length) return <Empty>No hyperparameter differs, so there is no axis to draw.</Empty>;
  return (
    <ParallelCoordinates
      found={found}
      shown={shown}
      brush={brush}
      onBrush={setBrush}
      lit={lit}
      onLight={onLight}
      onOpen={(id) => navigate(items.find((item) => item.id === id)?.to ?? `/trials/${id}`)}
      colorOf={(id) => items.find((item) => item.id === id)?.color}
      id="compare-parallel"
    />
  );
}
