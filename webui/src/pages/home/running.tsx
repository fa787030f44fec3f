// What runs now: how far it is, when it will be done, what it has reached.
import { Sparkline } from "../../charts/small/Sparkline";
import { duration, listed, plural } from "../../format";
import { Command, Named, Num, Progress, State, Time } from "../../parts";
import { Link } from "../../route";
import type { HomeAnswer } from ".";

type Run = HomeAnswer["running"][number];

/** "9 of 16 trials done, 2 running": what there is, in the words of the states. */
export function trialsIn(run: Pick<Run, "trial_count" | "counts">): string {
  if (run.trial_count <= 1) return "1 trial";
  const words: Record<string, string> = { COMPLETED: "done", RUNNING: "running", ACTIVE: "running", PAUSED: "paused", ERROR: "failed", CANCELED: "stopped", QUEUED: "waiting", STARTING: "starting" };
  const sums = new Map<string, number>();
  for (const [state, many] of Object.entries(run.counts)) {
    const word = words[state];
    if (word && many) sums.set(word, (sums.get(word) ?? 0) + many);
  }
  const parts = [...sums].map(([word, many]) => `${many} ${word}`);
  return parts.length ? `${plural(run.trial_count, "trial")}: ${listed(parts)}` : plural(run.trial_count, "trial");
}

function Card({ run }: { run: Run }) {
  const { id, name, state, searcher_metric: metric, best_metric: best } = run;
  return (
    <li className="home-run">
      <Named to={`/experiments/${id}`} name={name} id={id} />
      <State state={state} />
      <div className="home-progress">
        {run.progress === null ? <span className="muted">length unknown</span> : <Progress share={run.progress} state={state} />}
        {run.seconds_left !== null && <span className="muted num">{duration(run.seconds_left)} left</span>}
      </div>
      <div className="home-best">
        {metric && best !== null && (
          <>
            <span className="clip muted" title={metric}>
              best {metric.replace(/^validation[._]/, "")}
            </span>
            <Num value={best} />
          </>
        )}
      </div>
      {run.spark.length > 1 && <Sparkline values={run.spark} name={metric ?? "metric"} width={96} />}
      <div className="home-facts muted num">
        {trialsIn(run)} · {plural(run.slots, "slot")} · started <Time at={run.start_time} />
      </div>
    </li>
  );
}

export function Running({ home }: { home: HomeAnswer }) {
  return (
    <section>
      <header>
        <h2>Running now</h2>
        <Link to="/queue" className="muted num">
          {home.slots_used} of {plural(home.slots_total, "slot")} in use
        </Link>
      </header>
      {home.running.length === 0 ? (
        <p className="muted">
          Nothing runs now. Start something: <Command>python train.py</Command>
        </p>
      ) : (
        <ul className="home-runs">
          {home.running.map((run) => (
            <Card key={run.id} run={run} />
          ))}
        </ul>
      )}
    </section>
  );
}
