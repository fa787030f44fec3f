// What the header of an experiment says besides its name and state.
import { count, duration, plural, toNumber } from "../../format";
import { Chip, Duration, Icon, Num, Time, isOver } from "../../parts";
import { Link } from "../../route";
import type { Experiment } from "./useExperiment";

/** "12 of 16 trials" while it runs: those that ended, of those that there are. */
function Trials({ experiment }: { experiment: Experiment }) {
  if (experiment.single_trial_id !== null) return null;
  const ended = Object.entries(experiment.counts).reduce((sum, [state, many]) => sum + (isOver(state) ? many : 0), 0);
  const all = plural(experiment.trial_count, "trial");
  return <span className="num">{isOver(experiment.state) || ended === experiment.trial_count ? all : `${count(ended)} of ${all} ended`}</span>;
}

export function Facts({ experiment }: { experiment: Experiment }) {
  const failed = experiment.counts.ERROR ?? 0;
  const { best_trial_id: best } = experiment;
  return (
    <>
      <Trials experiment={experiment} />
      {toNumber(experiment.best_metric) !== undefined && (
        <span className="clip" title={experiment.searcher_metric ?? ""}>
          best {experiment.searcher_metric}{" "}
          {best === null ? <Num value={experiment.best_metric} /> : <Link to={`/trials/${best}`} title={`Trial ${best}`}><Num value={experiment.best_metric} /></Link>}
        </span>
      )}
      {failed > 0 && experiment.single_trial_id === null && <span className="is-error">{plural(failed, "trial")} failed</span>}
      {experiment.restarts > 0 && <span className="muted">{plural(experiment.restarts, "restart")}</span>}
      {experiment.archived && <span className="muted">archived</span>}
    </>
  );
}

export function Aside({ experiment }: { experiment: Experiment }) {
  const isRunning = !isOver(experiment.state);
  return (
    <span className="num">
      started <Time at={experiment.start_time} /> · {isRunning ? <Duration since={experiment.start_time} /> : <Duration seconds={experiment.seconds} />}
      {isRunning && experiment.seconds_left !== null && ` · about ${duration(experiment.seconds_left)} left`}
      {isRunning && experiment.slots > 0 && ` · ${plural(experiment.slots, "slot")}`}
    </span>
  );
}

/** Below the header, where there is something to say: why it failed, what it is about, labels, where it comes from, warnings. */
export function Under({ experiment }: { experiment: Experiment }) {
  const { description, labels, parent_id: parent, warnings, state, state_reason: reason } = experiment;
  const isFailed = state === "ERROR" && reason;
  if (!description && !labels.length && parent === null && !warnings.length && !isFailed && !experiment.unmanaged) return null;
  return (
    <div className="experiment-under">
      {isFailed && <p className="reason">{reason}</p>}
      {warnings.map((warning) => (
        <p key={warning} className="warning">
          <Icon name="warning" /> <span>{warning}</span>
        </p>
      ))}
      {(description || labels.length > 0 || parent !== null || experiment.unmanaged) && (
        <div className="row muted">
          {parent !== null && (
            <span>
              from <Link to={`/experiments/${parent}`}>experiment {parent}</Link>
            </span>
          )}
          {experiment.unmanaged && experiment.script && (
            <span className="clip">
              run by <code>{experiment.script}</code>
            </span>
          )}
          {labels.map((label) => (
            <Chip key={label}>{label}</Chip>
          ))}
          {description && <span className="experiment-description">{description}</span>}
        </div>
      )}
    </div>
  );
}
