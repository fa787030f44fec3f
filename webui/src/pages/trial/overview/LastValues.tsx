// Every metric's last value, with its extremes. The searcher metric comes first.
import { Num } from "../../../parts";
import { JsonValue } from "../../shared/JsonValue";
import type { Trial } from "../useTrial";
import { sorted } from "./metrics";

export function LastValues({ trial }: { trial: Trial }) {
  const metrics = sorted(trial);
  return (
    <section>
      <h2>Last values</h2>
      {metrics.length === 0 && <p className="muted">Nothing has been reported yet.</p>}
      {metrics.length > 0 && (
        <div className="last-values" tabIndex={metrics.length > 12 ? 0 : undefined} role="region" aria-label="Last values">
          <table>
            <thead>
              <tr>
                <th>Metric</th>
                <th className="num">last</th>
                <th className="num">min</th>
                <th className="num">max</th>
              </tr>
            </thead>
            <tbody>
              {metrics.map((metric) => (
                <tr key={`${metric.group} ${metric.name}`}>
                  <td className="clip" title={`${metric.group}: ${metric.name}, ${metric.points} reports`}>
                    {metric.name} <span className="muted">{metric.group}</span>
                  </td>
                  <td className="num">
                    <JsonValue value={metric.last} />
                  </td>
                  <td className="num muted">
                    <Num value={metric.min} />
                  </td>
                  <td className="num muted">
                    <Num value={metric.max} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
