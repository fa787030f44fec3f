// The tabs of a trial, on its own page and on the page of an experiment that has only this one.
import type { ComponentType } from "react";
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

type Load = () => Promise<{ default: ComponentType<{ trial: Trial }> }>;

const LogsTab = lazy(() => import("./logs/LogsTab"));
// Until both have landed.
const found = import.meta.glob<{ default: ComponentType<{ trial: Trial }> }>(["./metrics/index.tsx", "./profiler/index.tsx"]);
const missing: Load = async () => ({ default: () => <Empty>This tab is not there yet.</Empty> });
const MetricsTab = lazy(found["./metrics/index.tsx"] ?? missing);
const ProfilerTab = lazy(found["./profiler/index.tsx"] ?? missing);

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
