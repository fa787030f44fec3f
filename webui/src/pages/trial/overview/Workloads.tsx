// What the trial reported, step by step: chosen metrics in columns, a mark where a checkpoint was saved.
import type { components } from "../../../api";
import { useGet } from "../../../api";
import { Empty, ErrorNote, Icon, Num, Skeleton, Time } from "../../../parts";
import { codecs, useQueryState } from "../../../route";
import { JsonValue } from "../../shared/JsonValue";
import { Pager } from "../../shared/Pager";
import type { Trial } from "../useTrial";
import { seriesKey } from "../useTrial";
import { ColumnPicker } from "./ColumnPicker";
import { sorted, telling } from "./metrics";

type Report = components["schemas"]["Report"];
const size = 50;
const usual = 4;

export function Workloads({ trial }: { trial: Trial }) {
  const all = sorted(trial).map((metric) => ({ key: seriesKey(metric.group, metric.name), ...metric }));
  const [which, setWhich] = useQueryState("show", "all", codecs.oneOf("all", "validation", "checkpoint"));
  const [offset, setOffset] = useQueryState("from", 0, codecs.integer);
  const [chosen, setChosen] = useQueryState<string[]>("columns", telling(trial, usual).map((metric) => seriesKey(metric.group, metric.name)), codecs.list);
  const columns = all.filter((metric) => chosen.includes(metric.key));
  const { data, error, refetch } = useGet(["trial", trial.id, "reports", which, offset], "/api/v1/trials/{trial_id}/reports", {
    path: { trial_id: trial.id },
    query: { which, offset, limit: size },
  });
  const choose = (next: typeof which) => {
    setOffset(0);
    setWhich(next);
  };
  return (
    <section className="overview-reports">
      <header className="row tab-bar">
        <h2>Reports</h2>
        <select aria-label="Which reports" value={which} onChange={(event) => choose(event.target.value as typeof which)}>
          <option value="all">all</option>
          <option value="validation">with a validation</option>
          <option value="checkpoint">with a checkpoint</option>
        </select>
        <ColumnPicker all={all} chosen={chosen} onChoose={setChosen} />
      </header>
      {error && !data && <ErrorNote error={error} retry={refetch} />}
      {!data && !error && <Skeleton />}
      {data?.total === 0 && <Empty>{which === "all" ? "Nothing has been reported yet." : `No report ${which === "validation" ? "of a validation" : "with a checkpoint"}.`}</Empty>}
      {data && data.total > 0 && (
        <>
          <div className="scroll">
            <table className="reports">
              <thead>
                <tr>
                  <th className="num">Batch</th>
                  <th>Reported</th>
                  {columns.map((metric) => (
                    <th key={metric.key} className="num" title={`${metric.group}: ${metric.name}`}>
                      <span className="clip head-name">{metric.name}</span>
                      {all.some((other) => other.name === metric.name && other.group !== metric.group) && <small>{metric.group}</small>}
                    </th>
                  ))}
                  <th className="narrow">
                    <span className="visually-hidden">Checkpoint</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {data.reports.map((report) => (
                  <Row key={`${report.steps} ${report.attempt}`} report={report} columns={columns} />
                ))}
              </tbody>
            </table>
          </div>
          <Pager offset={offset} size={size} total={data.total} onMove={setOffset} />
        </>
      )}
    </section>
  );
}

function Row({ report, columns }: { report: Report; columns: { key: string; group: string; name: string }[] }) {
  return (
    <tr>
      <td className="num">
        <Num value={report.steps} />
      </td>
      <td>
        <Time at={report.time} />
      </td>
      {columns.map((metric) => (
        <td key={metric.key} className="num">
          <JsonValue value={report.values[metric.group]?.[metric.name]} />
        </td>
      ))}
      <td className="narrow">
        {report.checkpoint_uuid && (
          <span className="has-checkpoint" title={`Checkpoint ${report.checkpoint_uuid}`}>
            <Icon name="models" size={14} /> <span className="visually-hidden">checkpoint</span>
          </span>
        )}
      </td>
    </tr>
  );
}
