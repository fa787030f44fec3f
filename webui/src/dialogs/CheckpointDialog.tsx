// A checkpoint with all that is known of it, and what can be done with it.
import { useState } from "react";
import type { components } from "../api";
import { api, useGet } from "../api";
import { bytes, count, plural } from "../format";
import { Bytes, Command, Copy, Dialog, ErrorNote, Icon, Num, Skeleton, State, Time, act, confirm } from "../parts";
import { Link } from "../route";
import { Action } from "../pages/shared/Action";
import { JsonValue, asText } from "../pages/shared/JsonValue";
import { RegisterDialog } from "./RegisterDialog";
import { flat } from "./search/form";
import "./dialogs.css";

type Checkpoint = components["schemas"]["CheckpointAnswer"];
type Verified = components["schemas"]["Verified"];

export function CheckpointDialog({ uuid, onClose }: { uuid: string; onClose: () => void }) {
  const [isRegistering, setRegistering] = useState(false);
  const { data, error, refetch } = useGet(["checkpoint", uuid], "/api/v1/checkpoints/{uuid}", { path: { uuid } }, { staleTime: 0 });
  const registered = () => void refetch();
  return (
    <>
      <Dialog wide title={`Checkpoint ${uuid.slice(0, 8)}`} onClose={onClose} footer={data && <Doings checkpoint={data} onRegister={() => setRegistering(true)} onDeleted={onClose} />}>
        <ErrorNote error={error} retry={refetch} />
        {!data && !error && <Skeleton lines={8} />}
        {data && <Shown checkpoint={data} />}
      </Dialog>
      {isRegistering && <RegisterDialog uuid={uuid} onClose={() => setRegistering(false)} onSubmitted={registered} />}
    </>
  );
}

function Doings({ checkpoint, onRegister, onDeleted }: { checkpoint: Checkpoint; onRegister: () => void; onDeleted: () => void }) {
  const remove = async () => {
    const versions = checkpoint.versions.length ? ` ${plural(checkpoint.versions.length, "model version")} would point at nothing.` : "";
    const lost = `${plural(filesOf(checkpoint).length, "file")} with ${bytes(checkpoint.size)} are deleted from ${checkpoint.location}.${versions}`;
    if (!(await confirm({ title: `Delete checkpoint ${checkpoint.uuid.slice(0, 8)}?`, lost, action: "Delete" }))) return;
    if (await act(() => api.delete("/api/v1/checkpoints/{uuid}", { path: { uuid: checkpoint.uuid } }))) onDeleted();
  };
  return (
    <>
      <Action why={checkpoint.actions.delete} className="danger" onAct={() => void remove()}>
        Delete
      </Action>
      <span className="grow" />
      <Action why={checkpoint.actions.register} onAct={onRegister}>
        Register
      </Action>
    </>
  );
}

function Shown({ checkpoint }: { checkpoint: Checkpoint }) {
  const metrics = flat(checkpoint.validation_metrics);
  return (
    <>
      <dl className="facts">
        <dt>Id</dt>
        <dd>
          <span className="mono">{checkpoint.uuid}</span> <Copy text={checkpoint.uuid} label="Copy the id" />
        </dd>
        <dt>Source</dt>
        <dd>
          <Link to={`/experiments/${checkpoint.experiment_id}`}>{checkpoint.experiment}</Link>, <Link to={`/trials/${checkpoint.trial_id}`}>trial {checkpoint.trial_id}</Link>, after{" "}
          {count(checkpoint.steps)} batches
        </dd>
        <dt>State</dt>
        <dd>
          <State state={checkpoint.state} />, saved <Time at={checkpoint.time} />
        </dd>
        {checkpoint.searcher_metric && (
          <>
            <dt>{checkpoint.searcher_metric}</dt>
            <dd>
              <Num value={checkpoint.value} />
            </dd>
          </>
        )}
        <dt>Location</dt>
        <dd>
          <span className="mono">{checkpoint.location}</span> <Copy text={checkpoint.location} label="Copy the location" />
        </dd>
        {checkpoint.versions.length > 0 && (
          <>
            <dt>Registered as</dt>
            <dd>{checkpoint.versions.map((one) => `${one.model} version ${one.version}`).join(", ")}</dd>
          </>
        )}
      </dl>
      {checkpoint.load_line && <Labelled title="Load it in Python" text={checkpoint.load_line} />}
      {checkpoint.download_command && <Labelled title="Fetch its files" text={checkpoint.download_command} />}
      <Files checkpoint={checkpoint} />
      <Pairs title="Validation metrics" pairs={metrics} />
      <Pairs title="Metadata" pairs={flat(checkpoint.metadata)} />
    </>
  );
}

function Labelled({ title, text }: { title: string; text: string }) {
  return (
    <section className="checkpoint-line">
      <h3>{title}</h3>
      <Command block>{text}</Command>
    </section>
  );
}

/** Directories are listed too, and have nothing to show. */
const filesOf = (checkpoint: Checkpoint) => checkpoint.files.filter((file) => !file.path.endsWith("/"));

function Files({ checkpoint }: { checkpoint: Checkpoint }) {
  const files = filesOf(checkpoint);
  const [verified, setVerified] = useState<Verified>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const verify = async () => {
    setBusy(true);
    setError(undefined);
    try {
      setVerified(await api.post("/api/v1/checkpoints/{uuid}/verify", { path: { uuid: checkpoint.uuid } }));
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return (
    <section>
      <div className="row tab-bar">
        <h3>Files</h3>
        <span className="muted num">
          {plural(files.length, "file")}, {bytes(checkpoint.size)}
        </span>
        <span className="grow" />
        <Action why={busy ? "The files are being read." : checkpoint.actions.verify} onAct={() => void verify()}>
          {busy ? "Verifying…" : "Verify"}
        </Action>
      </div>
      <ErrorNote error={error} />
      {verified && (
        <div className={verified.is_whole ? "verified" : "verified bad"} role="status">
          <Icon name={verified.is_whole ? "check" : "warning"} />
          <div>
            {verified.said}
            {verified.problems.map((problem) => (
              <div key={problem} className="mono">
                {problem}
              </div>
            ))}
          </div>
        </div>
      )}
      <div className="scroll file-list">
        <table>
          <tbody>
            {files.map((file) => (
              <tr key={file.path}>
                <td className="mono clip" title={file.path}>
                  {file.path}
                </td>
                <td className="num">
                  <Bytes size={file.size} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Pairs({ title, pairs }: { title: string; pairs: [string, unknown][] }) {
  if (pairs.length === 0) return null;
  return (
    <section>
      <h3>{title}</h3>
      <dl className="facts">
        {pairs.map(([name, value]) => (
          <div key={name} className="pair">
            <dt className="clip" title={name}>
              {name}
            </dt>
            <dd>{typeof value === "number" ? <JsonValue value={value} /> : <span className="mono">{asText(value).slice(0, 2000)}</span>}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
