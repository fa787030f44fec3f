// A search at a glance: curves and rungs, the trials below them, and what the hyperparameters did.
import { Suspense, lazy, useMemo, useState } from "react";
import { useGet } from "../../../api";
import { ChartControls, useChartSettings, useColors } from "../../../charts";
import { brushed, foundOf, usualParameters } from "../../../charts/logic/search";
import { Empty, ErrorNote, Skeleton } from "../../../parts";
import { navigate } from "../../../route";
import type { Experiment } from "../useExperiment";
import { MetricChoice, SearchFilters } from "./Filters";
import { LearningCurves } from "./LearningCurves";
import { TopTrials } from "./TopTrials";
import type { Choices } from "./useChoices";
import { tops, useChoices } from "./useChoices";

const SearchCharts = lazy(() => import("./SearchCharts"));
const RungLadder = lazy(() => import("../../../charts/search/RungLadder").then(({ RungLadder: ladder }) => ({ default: ladder })));

function useAnswers(id: number, choices: Choices, hasRungs: boolean) {
  const metric = choices.metric || null;
  const path = { experiment_id: id };
  const at = choices.step ? { steps: choices.step, margin: choices.margin } : {};
  const curves = useGet(["experiment", id, "curves", metric, choices.top], "/api/v1/experiments/{experiment_id}/curves", { path, query: { metric, top: choices.top } });
  const search = useGet(["experiment", id, "search", metric, at], "/api/v1/experiments/{experiment_id}/search", { path, query: { metric, ...at } });
  const rungs = useGet(["experiment", id, "rungs"], "/api/v1/experiments/{experiment_id}/rungs", { path }, { enabled: hasRungs });
  return { curves, search, rungs };
}

/** Which hyperparameters are shown: those chosen, as far as there are any. */
function shownOf(chosen: readonly string[], found: ReturnType<typeof foundOf> | undefined): string[] {
  if (!found) return [];
  const there = found.parameters.map((one) => one.name).filter((name) => chosen.includes(name));
  return there.length ? there : usualParameters(found.parameters);
}

function TopChoice({ choices }: { choices: Choices }) {
  return (
    <label>
      Trials
      <select value={choices.top} onChange={(event) => choices.setTop(Number(event.target.value))}>
        {tops.map((top) => (
          <option key={top} value={top}>
            top {top}
          </option>
        ))}
      </select>
    </label>
  );
}

export default function VisualizationTab({ experiment }: { experiment: Experiment }) {
  const settings = useChartSettings();
  const choices = useChoices(experiment.id);
  const { theme } = useColors();
  const [lit, setLit] = useState<number>();
  const { curves, search, rungs } = useAnswers(experiment.id, choices, experiment.has_rungs);
  const found = useMemo(() => (search.data ? foundOf(search.data) : undefined), [search.data]);
  const shown = useMemo(() => shownOf(choices.parameters, found), [choices.parameters, found]);
  const kept = useMemo(() => (found ? brushed(found, choices.brush) : undefined), [found, choices.brush]);
  if (curves.error && !curves.data) return <ErrorNote error={curves.error} retry={curves.refetch} />;
  const answer = curves.data;
  const metric = answer?.metric ?? choices.metric;
  const hasEpochs = answer?.curves.some((curve) => curve.epochs.some((epoch) => epoch !== null)) ?? true;
  const light = { lit, onLight: setLit };
  return (
    <div className="stack">
      <h2 className="visually-hidden">Curves and rungs</h2>
      <div className="chart-controls">
        <MetricChoice experiment={experiment} shown={metric} choices={choices} />
        <TopChoice choices={choices} />
        <ChartControls settings={settings} hasEpochs={hasEpochs} />
      </div>
      <div className={experiment.has_rungs ? "experiment-top with-rungs" : "experiment-top"}>
        <LearningCurves
          experiment={experiment}
          metric={metric}
          smallerIsBetter={answer?.smaller_is_better ?? experiment.smaller_is_better}
          curves={answer?.curves ?? []}
          total={answer?.trials_total ?? 0}
          top={choices.top}
          isByLength={answer?.is_by_length ?? false}
          said={answer?.said ?? ""}
          settings={settings}
          selected={choices.selected}
          kept={kept}
          isLoading={curves.isLoading}
          {...light}
        />
        {experiment.has_rungs && rungs.data && (
          <Suspense fallback={<Skeleton />}>
            <RungLadder rungs={rungs.data} smallerIsBetter={experiment.smaller_is_better} bestTrialId={experiment.best_trial_id} height={400} onOpen={(id) => navigate(`/trials/${id}`)} {...light} />
          </Suspense>
        )}
      </div>
      {answer && answer.curves.length > 0 && (
        <TopTrials curves={answer.curves} metric={metric.slice(metric.indexOf(".") + 1)} parameters={shown} selected={choices.selected} onSelect={choices.setSelected} kept={kept} theme={theme} {...light} />
      )}
      {search.error && !search.data && <ErrorNote error={search.error} retry={search.refetch} />}
      {found && found.parameters.length > 0 && <SearchFilters found={found} choices={choices} shown={shown} />}
      {search.data?.said && search.data.said !== answer?.said && <Empty>{search.data.said}</Empty>}
      {found && found.results.length > 0 && found.parameters.length > 0 && (
        <Suspense fallback={<Skeleton lines={6} />}>
          <SearchCharts found={found} isUncertain={search.data?.is_uncertain ?? false} shown={shown} choices={choices} kept={kept} {...light} />
        </Suspense>
      )}
    </div>
  );
}
