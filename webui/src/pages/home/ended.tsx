// What is over: what failed with its last line, and what ended well or was stopped.
import { plural } from "../../format";
import { Duration, Named, Num, State, Time } from "../../parts";
import { Link } from "../../route";
import type { HomeAnswer } from ".";

type Run = HomeAnswer["ended"][number];

export function Failed({ failed }: { failed: Run[] }) {
  if (failed.length === 0) return null;
  return (
    <section>
      <header>
        <h2>Failed</h2>
      </header>
      <ul className="home-failed">
        {failed.map((run) => (
          <li key={run.id}>
            <Named to={`/experiments/${run.id}`} name={run.name} id={run.id}>
              <State state={run.state} />
              <span className="muted home-when">
                <Time at={run.end_time ?? run.start_time} />
              </span>
            </Named>
            {run.reason && <div>{run.reason}</div>}
            {run.last_line && (
              <code className="clip" title={run.last_line}>
                {run.last_line}
              </code>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Ended({ ended, since }: { ended: Run[]; since: string | undefined }) {
  return (
    <section>
      <header>
        <h2>Ended {since ? "since your last visit" : "in the last day"}</h2>
        {since && (
          <span className="muted">
            <Time at={since} />
          </span>
        )}
      </header>
      {ended.length === 0 ? <p className="muted">Nothing has ended. {since && <Link to="/experiments">See all experiments</Link>}</p> : <EndedTable ended={ended} />}
    </section>
  );
}

function EndedTable({ ended }: { ended: Run[] }) {
  return (
    <table className="home-ended">
      <thead>
        <tr>
          <th>Experiment</th>
          <th>State</th>
          <th className="num">Best value</th>
          <th className="roomy">Metric</th>
          <th className="num roomy">Trials</th>
          <th className="num roomy">Took</th>
          <th>Ended</th>
        </tr>
      </thead>
      <tbody>
        {ended.map((run) => (
          <tr key={run.id}>
            <td>
              <Named to={`/experiments/${run.id}`} name={run.name} id={run.id} />
            </td>
            <td>
              <State state={run.state} title={run.reason} />
            </td>
            <td className="num">
              <Num value={run.best_metric} />
            </td>
            <td className="roomy clip muted">{run.searcher_metric}</td>
            <td className="num roomy" title={plural(run.trial_count, "trial")}>
              {run.trial_count}
            </td>
            <td className="num roomy">
              <Duration seconds={run.seconds} />
            </td>
            <td className="muted">
              <Time at={run.end_time} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
