// The hyperparameters of a trial, sorted by name; nested ones with dots.
import { useDeferredValue } from "react";
import { flat } from "../../dialogs/search/form";
import { plural } from "../../format";
import { Copy, Empty } from "../../parts";
import { useQueryState } from "../../route";
import { JsonValue, asText } from "../shared/JsonValue";
import type { Trial } from "./useTrial";

export function HyperparametersTab({ trial }: { trial: Trial }) {
  const [filter, setFilter] = useQueryState("filter", "");
  const wanted = useDeferredValue(filter).toLowerCase();
  const all = flat(trial.hparams);
  const shown = all.filter(([name]) => name.toLowerCase().includes(wanted));
  if (all.length === 0) return <Empty>This trial has no hyperparameters.</Empty>;
  return (
    <section>
      <div className="row tab-bar">
        <input type="search" value={filter} placeholder="Filter by name" aria-label="Filter by name" onChange={(event) => setFilter(event.target.value)} />
        <span className="muted num">{shown.length === all.length ? plural(all.length, "hyperparameter") : `${shown.length} of ${all.length}`}</span>
        <Copy text={JSON.stringify(trial.hparams, null, 2)} label="Copy all as JSON" />
      </div>
      {shown.length === 0 && <Empty>No name contains "{filter}".</Empty>}
      {shown.length > 0 && (
        <div className="scroll">
          <table className="pairs">
            <thead>
              <tr>
                <th>Name</th>
                <th>Value</th>
                <th>
                  <span className="visually-hidden">Copy</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map(([name, value]) => (
                <tr key={name}>
                  <td className="clip mono" title={name}>
                    {name}
                  </td>
                  <td className="mono">
                    <JsonValue value={value} />
                  </td>
                  <td>
                    <Copy text={asText(value)} label={`Copy the value of ${name}`} />
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
