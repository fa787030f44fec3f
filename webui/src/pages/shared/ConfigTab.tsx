// The configuration of an experiment: with all defaults, or as it was written.
import { useGet } from "../../api";
import { Copy, ErrorNote, Skeleton } from "../../parts";
import { TextView } from "./TextView";
import { save } from "./save";
import "./shared.css";

export type Version = "effective" | "submitted";

const titles: Record<Version, string> = { effective: "Configuration with all defaults", submitted: "Configuration as submitted" };

export function ConfigTab({ experimentId, version = "effective" }: { experimentId: number; version?: Version }) {
  const { data, error, refetch } = useGet(["experiment", experimentId, "config"], "/api/v1/experiments/{experiment_id}/config", {
    path: { experiment_id: experimentId },
  });
  if (!data) return error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={12} />;
  const text = data[version];
  return (
    <section className="viewer">
      <header className="row">
        <h2 className="grow clip">{titles[version]}</h2>
        <Copy text={text} label="Copy the configuration" />
        <button type="button" onClick={() => save(`experiment-${experimentId}-${version}.yaml`, text)}>
          Download
        </button>
      </header>
      {text ? <TextView text={text} label={titles[version]} /> : <p className="muted">This experiment was not submitted with a file: it recorded itself.</p>}
    </section>
  );
}
