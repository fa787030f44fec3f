// Hyperparameters against the metric. Fetched apart, with ECharts.
import { HeatMaps, ImportanceBars, ParallelCoordinates, ScatterGrid } from "../../../charts/search";
import type { Found } from "../../../charts/logic/search";
import { useRested } from "./useRested";
import { navigate } from "../../../route";
import type { Choices } from "./useChoices";

interface SearchChartsProps {
  found: Found;
  isUncertain: boolean;
  shown: readonly string[];
  choices: Choices;
  kept: ReadonlySet<number> | undefined;
  lit: number | undefined;
  onLight: (trialId: number | undefined) => void;
}

export default function SearchCharts({ found, isUncertain, shown, choices, kept, lit, onLight }: SearchChartsProps) {
  const [brush, setBrush] = useRested(choices.brush, choices.setBrush);
  const open = (trialId: number) => navigate(`/trials/${trialId}`);
  const shared = { found, shown, isLogMetric: choices.isLogMetric, lit, onLight, onOpen: open };
  return (
    <>
      <ParallelCoordinates {...shared} brush={brush} onBrush={setBrush} />
      <section className="experiment-halves">
        <div>
          <h2>Each hyperparameter against the metric</h2>
          <ScatterGrid {...shared} kept={kept} />
        </div>
        <ImportanceBars found={found} isUncertain={isUncertain} />
      </section>
      {shown.length > 1 && (
        <section>
          <div className="row">
            <h2>Pairs of hyperparameters</h2>
            <span className="segments" role="group" aria-label="Layout of the heat maps">
              {(["grid", "list"] as const).map((one) => (
                <button key={one} type="button" aria-pressed={choices.layout === one} onClick={() => choices.setLayout(one)}>
                  {one === "grid" ? "Grid" : "List"}
                </button>
              ))}
            </span>
          </div>
          <HeatMaps found={found} shown={shown} layout={choices.layout} />
        </section>
      )}
    </>
  );
}
