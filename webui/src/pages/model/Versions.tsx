// The versions of a model, the newest first.
import type { components } from "../../api";
import { api } from "../../api";
import { Bytes, Icon, Num, Time, act, confirm } from "../../parts";
import { Link } from "../../route";

type Model = components["schemas"]["ModelAnswer"];
type Version = components["schemas"]["VersionAnswer"];

async function remove(model: Model, version: Version): Promise<void> {
  const lost = `Version ${version.version} is taken out of the registry. Checkpoint ${version.checkpoint_uuid.slice(0, 8)} stays.`;
  if (!(await confirm({ title: `Delete version ${version.version}?`, lost, action: "Delete" }))) return;
  await act(() => api.delete("/api/v1/models/{model_id}/versions/{version}", { path: { model_id: model.id, version: version.version } }));
}

/** The metric's name where all versions have the same one. */
function metricOf(versions: Version[]): string {
  const names = new Set(versions.map((version) => version.searcher_metric));
  return names.size === 1 ? ([...names][0] ?? "Metric") : "Metric";
}

export function Versions({ model, versions, onOpen }: { model: Model; versions: Version[]; onOpen: (uuid: string) => void }) {
  const isNamed = versions.some((version) => version.name || version.comment);
  return (
    <div className="scroll">
      <table className="versions">
        <thead>
          <tr>
            <th className="num">Version</th>
            {isNamed && <th>Name</th>}
            <th>Checkpoint</th>
            <th>From</th>
            <th className="num">Batches</th>
            <th className="num">{metricOf(versions)}</th>
            <th className="num">Size</th>
            <th>Registered</th>
            <th className="narrow">
              <span className="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {versions.map((version) => (
            <tr key={version.version}>
              <td className="num">{version.version}</td>
              {isNamed && (
                <td className="clip model-text" title={version.comment}>
                  {version.name} <span className="muted">{version.comment}</span>
                </td>
              )}
              <td>
                <button type="button" className="link mono" title={version.checkpoint_uuid} onClick={() => onOpen(version.checkpoint_uuid)}>
                  {version.checkpoint_uuid.slice(0, 8)}
                </button>
              </td>
              <td>
                <Link to={`/trials/${version.trial_id}`}>trial {version.trial_id}</Link>
              </td>
              <td className="num">
                <Num value={version.steps} />
              </td>
              <td className="num" title={version.searcher_metric ?? ""}>
                <Num value={version.value} />
              </td>
              <td className="num">
                <Bytes size={version.size} />
              </td>
              <td>
                <Time at={version.creation_time} />
              </td>
              <td className="narrow">
                <button type="button" className="plain" aria-label={`Delete version ${version.version}`} title={`Delete version ${version.version}`} onClick={() => void remove(model, version)}>
                  <Icon name="trash" />
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
