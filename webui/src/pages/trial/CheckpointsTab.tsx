// The checkpoints of a trial, the newest first. One is opened in a dialog that the address remembers.
import type { components } from "../../api";
import { useGet } from "../../api";
import { CheckpointDialog } from "../../dialogs/CheckpointDialog";
import { Bytes, Chip, Empty, ErrorNote, Num, Skeleton, State, Time } from "../../parts";
import { codecs, useQueryState } from "../../route";
import { Pager } from "../shared/Pager";
import type { Trial } from "./useTrial";

type Row = components["schemas"]["CheckpointRowAnswer"];
const size = 100;

export function CheckpointsTab({ trial }: { trial: Trial }) {
  const [offset, setOffset] = useQueryState("from", 0, codecs.integer);
  const [open, setOpen] = useQueryState("checkpoint", "");
  const { data, error, refetch } = useGet(["trial", trial.id, "checkpoints", offset], "/api/v1/checkpoints", {
    query: { trial_id: trial.id, offset, limit: size },
  });
  if (!data) return error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={6} />;
  if (data.total === 0) return <Empty>No checkpoint yet. One is saved at the end of training, and when a stop is asked for.</Empty>;
  return (
    <section>
      <div className="scroll">
        <table className="checkpoints">
          <thead>
            <tr>
              <th>Checkpoint</th>
              <th className="num">Batches</th>
              <th className="num">{trial.searcher_metric ?? "Metric"}</th>
              <th>State</th>
              <th className="num">Size</th>
              <th>Saved</th>
              <th>
                <span className="visually-hidden">Marks</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.checkpoints.map((row) => (
              <CheckpointRow key={row.uuid} row={row} onOpen={() => setOpen(row.uuid, { push: true })} />
            ))}
          </tbody>
        </table>
      </div>
      <Pager offset={offset} size={size} total={data.total} onMove={setOffset} />
      {open && <CheckpointDialog uuid={open} onClose={() => setOpen("")} />}
    </section>
  );
}

function CheckpointRow({ row, onOpen }: { row: Row; onOpen: () => void }) {
  return (
    <tr>
      <td>
        <button type="button" className="link mono" title={row.uuid} onClick={onOpen}>
          {row.uuid.slice(0, 8)}
        </button>
      </td>
      <td className="num">
        <Num value={row.steps} />
      </td>
      <td className={row.is_best ? "num best" : "num"}>
        <Num value={row.value} />
      </td>
      <td>
        <State state={row.state} />
      </td>
      <td className="num">
        <Bytes size={row.size} />
      </td>
      <td>
        <Time at={row.time} />
      </td>
      <td>
        <span className="row marks">
          {row.is_best && <Chip>best</Chip>}
          {row.is_registered && <Chip>registered</Chip>}
        </span>
      </td>
    </tr>
  );
}
