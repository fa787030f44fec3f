// One trial: its header, and its tabs.
import { ThingHeader, useCrumbs } from "../../frame";
import { ErrorNote, Num, Skeleton, Time, isOver } from "../../parts";
import { count, plural } from "../../format";
import type { PageProps } from "../../route";
import { Link } from "../../route";
import { TrialActions } from "./TrialActions";
import { TrialTabs, trialTabs } from "./TrialTabs";
import type { Trial } from "./useTrial";
import { useTrial } from "./useTrial";
import "./trial.css";

export default function TrialPage({ params }: PageProps) {
  const id = Number(params.id);
  const { data: trial, error, refetch } = useTrial(id);
  const experiment = trial ? { label: trial.experiment, to: `/experiments/${trial.experiment_id}` } : undefined;
  useCrumbs({ label: "Experiments", to: "/experiments" }, ...(experiment ? [experiment] : []), { label: `Trial ${id}` });
  if (!trial) return <div className="page">{error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={8} />}</div>;
  const tab = params.tab ?? "overview";
  return (
    <div className="page trial">
      <ThingHeader
        title={`Trial ${id}`}
        state={trial.state}
        reason={trial.state_reason}
        progress={isOver(trial.state) ? null : trial.progress}
        facts={<Facts trial={trial} />}
        actions={<TrialActions trial={trial} />}
        aside={<Aside trial={trial} />}
        tabs={trialTabs}
        current={tab}
        to={(key) => (key === "overview" ? `/trials/${id}` : `/trials/${id}/${key}`)}
      />
      {trial.state === "ERROR" && (
        <p className="reason">
          {trial.state_reason || "The trial failed."} {tab !== "logs" && <Link to={`/trials/${id}/logs`}>Read its log</Link>}
        </p>
      )}
      <TrialTabs trialId={id} tab={tab} />
    </div>
  );
}

function Facts({ trial }: { trial: Trial }) {
  return (
    <>
      {trial.state !== "ERROR" && trial.state_reason && (
        <span className="clip muted trial-reason" title={trial.state_reason}>
          {trial.state_reason}
        </span>
      )}
      <span className="num">{plural(trial.total_batches, "batch", "batches")}</span>
      {trial.best_metric !== null && (
        <span className="clip" title={trial.searcher_metric ?? ""}>
          best {trial.searcher_metric} <Num value={trial.best_metric} />
        </span>
      )}
    </>
  );
}

function Aside({ trial }: { trial: Trial }) {
  return (
    <>
      of{" "}
      <Link className="clip trial-of" to={`/experiments/${trial.experiment_id}`}>
        {trial.experiment}
      </Link>{" "}
      · started <Time at={trial.start_time} />
      {trial.attempts.length > 1 && ` · attempt ${count(trial.attempts.length)}`}
      {trial.restarts > 0 && ` · ${plural(trial.restarts, "restart")}`}
    </>
  );
}
