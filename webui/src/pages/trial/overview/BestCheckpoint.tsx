// The checkpoint one would take, and the line of Python that loads it.
import { CheckpointDialog } from "../../../dialogs/CheckpointDialog";
import { count } from "../../../format";
import { Bytes, Command, Num, Time } from "../../../parts";
import { useQueryState } from "../../../route";
import type { Trial } from "../useTrial";

export function BestCheckpoint({ trial }: { trial: Trial }) {
  const [open, setOpen] = useQueryState("checkpoint", "");
  const best = trial.best_checkpoint ?? trial.latest_checkpoint;
  return (
    <section>
      <h2>{trial.best_checkpoint || !best ? "Best checkpoint" : "Latest checkpoint"}</h2>
      {!best && <p className="muted">No checkpoint yet. One is saved at the end of training, and when a stop is asked for.</p>}
      {best && (
        <p>
          <button type="button" className="link mono" title={best.uuid} onClick={() => setOpen(best.uuid, { push: true })}>
            {best.uuid.slice(0, 8)}
          </button>{" "}
          <span className="muted">
            after {count(best.steps)} batches
            {best.value !== null && (
              <>
                , {trial.searcher_metric} <Num value={best.value} />
              </>
            )}
            , <Bytes size={best.size} />, <Time at={best.time} />
          </span>
        </p>
      )}
      {trial.load_line && <Command block>{trial.load_line}</Command>}
      {open && <CheckpointDialog uuid={open} onClose={() => setOpen("")} />}
    </section>
  );
}
