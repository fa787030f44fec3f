// What is known of a trial besides its metrics: where and how it ran, what it left behind, and what it said about itself.
import type { ReactNode } from "react";
import { flat } from "../../../dialogs/search/form";
import { plural } from "../../../format";
import { Bytes, Duration, Time, isMoving, isOver } from "../../../parts";
import { asText } from "../../shared/JsonValue";
import type { Trial } from "../useTrial";

export function Facts({ trial }: { trial: Trial }) {
  const isDone = isOver(trial.state);
  const isRunning = isMoving(trial.state);
  const last = trial.attempts.at(-1);
  const rows: [string, ReactNode][] = [
    ["Runner", isDone ? "ended" : trial.runner_state.toLowerCase() || "–"],
    ["Started", <Time key="start" at={trial.start_time} />],
    [isRunning ? "Running for" : "Took", isRunning ? <Duration key="took" since={trial.start_time} /> : <Duration key="took" seconds={trial.seconds} />],
    ["Slots", trial.slots || "none"],
    ["Checkpoints", <Checkpoints key="checkpoints" trial={trial} />],
    ["Logs kept", trial.log_retention_days === null ? "for ever" : plural(trial.log_retention_days, "day")],
    ["Seed", trial.seed],
  ];
  if (last) rows.push([trial.attempts.length > 1 ? `Attempt ${last.attempt}` : "Process", attempt(last)]);
  if (trial.warm_start_checkpoint_uuid) rows.push(["Began from", <code key="warm">{trial.warm_start_checkpoint_uuid.slice(0, 8)}</code>]);
  if (trial.log_policy_matched) rows.push(["Log policy", trial.log_policy_matched]);
  return (
    <>
      <section>
        <h2>Facts</h2>
        <dl className="facts">
          {rows.map(([name, value]) => (
            <Fact key={name} name={name}>
              {value}
            </Fact>
          ))}
        </dl>
      </section>
      <Pairs title="Metadata" values={trial.metadata} open />
      <Pairs title="Environment" values={trial.environment} />
    </>
  );
}

function Checkpoints({ trial }: { trial: Trial }) {
  if (!trial.checkpoint_count) return "none";
  return (
    <>
      {trial.checkpoint_count}, <Bytes size={trial.checkpoint_size} />
    </>
  );
}

function attempt(one: Trial["attempts"][number]): string {
  const where = [one.pid === null ? "" : `pid ${one.pid}`, one.node].filter(Boolean).join(" on ");
  const how = one.exit_reason ?? (one.exit_code === null ? "" : `exit code ${one.exit_code}`);
  return [where, how].filter(Boolean).join("; ") || one.state.toLowerCase();
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="clip" title={name}>
        {name}
      </dt>
      <dd>{children}</dd>
    </>
  );
}

function Pairs({ title, values, open = false }: { title: string; values: Record<string, unknown>; open?: boolean }) {
  const pairs = flat(values).filter(([, value]) => value !== null && value !== "");
  if (pairs.length === 0) return null;
  return (
    <details className="pairs-more" open={open && pairs.length <= 12}>
      <summary>
        <h2>{title}</h2> <span className="muted num">{pairs.length}</span>
      </summary>
      <dl className="facts">
        {pairs.map(([name, value]) => (
          <Fact key={name} name={name}>
            <span className="mono">{asText(value).slice(0, 2000)}</span>
          </Fact>
        ))}
      </dl>
    </details>
  );
}
