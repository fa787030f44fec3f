// One experiment: its header, and the tabs of its search, or of its only trial.
import { Suspense, lazy } from "react";
import { ThingHeader, useCrumbs } from "../../frame";
import { Empty, ErrorNote, Skeleton, isOver } from "../../parts";
import type { PageProps } from "../../route";
import { CodeTab } from "../shared/CodeTab";
import { NotesTab } from "../shared/NotesTab";
import { TrialTabs, trialTabs } from "../trial/TrialTabs";
import { ExperimentActions } from "./ExperimentActions";
import { Aside, Facts, Under } from "./Facts";
import type { Experiment } from "./useExperiment";
import { useExperiment } from "./useExperiment";
import "./experiment.css";

const VisualizationTab = lazy(() => import("./visualization/VisualizationTab"));
const TrialsTab = lazy(() => import("./TrialsTab"));

const searchTabs = [
  { key: "visualization", label: "Visualization" },
  { key: "trials", label: "Trials" },
  { key: "code", label: "Code" },
  { key: "notes", label: "Notes" },
];

export default function ExperimentPage({ params }: PageProps) {
  const id = Number(params.id);
  const { data: experiment, error, refetch } = useExperiment(id);
  const project = experiment ? { label: experiment.project, to: `/projects/${experiment.project_id}` } : undefined;
  useCrumbs({ label: "Experiments", to: "/experiments" }, ...(project ? [project] : []), { label: experiment?.name ?? `Experiment ${id}` });
  if (!experiment) return <div className="page">{error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={8} />}</div>;
  const tabs = experiment.single_trial_id === null ? searchTabs : trialTabs;
  const usual = tabs[0]?.key ?? "";
  const tab = params.tab ?? usual;
  return (
    <div className="page experiment">
      <ThingHeader
        title={experiment.name}
        id={id}
        state={experiment.state}
        reason={experiment.state_reason}
        progress={isOver(experiment.state) ? null : experiment.progress}
        facts={<Facts experiment={experiment} />}
        actions={<ExperimentActions experiment={experiment} />}
        aside={<Aside experiment={experiment} />}
        tabs={tabs}
        current={tab}
        to={(key) => (key === usual ? `/experiments/${id}` : `/experiments/${id}/${key}`)}
      />
      <Under experiment={experiment} />
      <Suspense fallback={<Skeleton lines={8} />}>
        <Content experiment={experiment} tab={tab} />
      </Suspense>
    </div>
  );
}

function Content({ experiment, tab }: { experiment: Experiment; tab: string }) {
  const { id, single_trial_id: trialId } = experiment;
  if (trialId !== null) return <TrialTabs trialId={trialId} tab={tab} logs={`/experiments/${id}/logs`} />;
  if (tab === "visualization") return <VisualizationTab experiment={experiment} />;
  if (tab === "trials") return <TrialsTab experiment={experiment} />;
  if (tab === "code") return <CodeTab experimentId={id} />;
  if (tab === "notes") return <NotesTab experimentId={id} />;
  return <Empty>An experiment with many trials has no tab named {tab}. Choose one of those above.</Empty>;
}
