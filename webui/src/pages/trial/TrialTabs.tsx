// The tabs of a trial, on its own page and on the page of an experiment that has only this one.
import { Suspense, lazy } from "react";
import type { Tab } from "../../parts";
import { Empty, ErrorNote, Skeleton } from "../../parts";
import { CodeTab } from "../shared/CodeTab";
import { NotesTab } from "../shared/NotesTab";
import { CheckpointsTab } from "./CheckpointsTab";
import { HyperparametersTab } from "./HyperparametersTab";
import { LogStrip } from "./logs/LogStrip";
import { OverviewTab } from "./overview/OverviewTab";
import type { Trial } from "./useTrial";
import { useTrial } from "./useTrial";
import "./trial.css";

export const trialTabs: Tab[] = [
  { key: "overview", label: "Overview" },
  { key: "metrics", label: "Metrics" },
  { key: "hyperparameters", label: "Hyperparameters" },
  { key: "checkpoints", label: "Checkpoints" },
  { key: "logs", label: "Logs" },
  { key: "profiler", label: "Profiler" },
  { key: "code", label: "Code" },
  { key: "notes", label: "Notes" },
];

const LogsTab = lazy(() => import("./logs/LogsTab"));
const MetricsTab = lazy(() => import("./metrics"));
const ProfilerTab = lazy(() => import("./profiler"));

interface TrialTabsProps {
  trialId: number;
  tab: string;
  /** The path of the logs, for the strip below the other tabs. */
  logs?: string;
}

export function TrialTabs({ trialId, tab, logs = `/trials/${trialId}/logs` }: TrialTabsProps) {
  const { data: trial, error, refetch } = useTrial(trialId);
  if (!trial) return error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={8} />;
  return (
    <>
      <Suspense fallback={<Skeleton lines={8} />}>
        <Content trial={trial} tab={tab} />
      </Suspense>
      {tab !== "logs" && <LogStrip trialId={trialId} to={logs} />}
    </>
  );
}

function Content({ trial, tab }: { trial: Trial; tab: string }) {
  if (tab === "overview") return <OverviewTab trial={trial} />;
  if (tab === "metrics") return <MetricsTab trial={trial} />;
  if (tab === "hyperparameters") return <HyperparametersTab trial={trial} />;
  if (tab === "checkpoints") return <CheckpointsTab trial={trial} />;
  if (tab === "logs") return <LogsTab trial={trial} />;
  if (tab === "profiler") return <ProfilerTab trial={trial} />;
  if (tab === "code") return <CodeTab experimentId={trial.experiment_id} />;
  if (tab === "notes") return <NotesTab experimentId={trial.experiment_id} />;
  return <Empty>A trial has no tab named {tab}. Choose one of those above.</Empty>;
}
