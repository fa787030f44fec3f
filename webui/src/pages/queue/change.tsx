// The dialog that moves an experiment in the queue.
import { useState } from "react";
import { api, queries } from "../../api";
import { Dialog, toast } from "../../parts";
import type { Job } from "./words";

/** A whole number in a field, or undefined. */
export function whole(text: string): number | undefined {
  return /^\d+$/.test(text.trim()) ? Number(text) : undefined;
}

export function ChangePlace({ job, onClose }: { job: Job; onClose: () => void }) {
  const [priority, setPriority] = useState(String(job.priority));
  const [most, setMost] = useState(job.max_slots === null ? "" : String(job.max_slots));
  const rank = whole(priority);
  const wrongPriority = rank === undefined || rank < 1 || rank > 99;
  const limit = most.trim() === "" ? 0 : whole(most);
  const change = async () => {
    const body = { priority: rank ?? null, max_slots: limit ?? null };
    toast((await api.patch("/api/v1/queue/{experiment_id}", { path: { experiment_id: job.id }, body })).said);
    await queries.invalidateQueries();
  };
  return (
    <Dialog
      title={`Place of experiment ${job.id} in the queue`}
      action="Change"
      onAction={change}
      onClose={onClose}
      disabled={wrongPriority || limit === undefined}
    >
      <label className="field">
        Priority, 1 to 99; a smaller one gets slots first
        <input inputMode="numeric" value={priority} aria-invalid={wrongPriority} onChange={(event) => setPriority(event.target.value)} />
      </label>
      <label className="field">
        Most slots at once; empty for no limit
        <input inputMode="numeric" value={most} aria-invalid={limit === undefined} onChange={(event) => setMost(event.target.value)} />
      </label>
    </Dialog>
  );
}
