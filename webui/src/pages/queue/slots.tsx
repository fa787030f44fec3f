// Each slot as a cell, by machine: who holds it.
import { State, isMoving } from "../../parts";
import { Link } from "../../route";
import type { Job, QueueAnswer } from ".";

type Slot = QueueAnswer["slots"][number];

function byNode(slots: Slot[]): Map<string, Slot[]> {
  const nodes = new Map<string, Slot[]>();
  for (const slot of slots) nodes.set(slot.node, [...(nodes.get(slot.node) ?? []), slot]);
  return nodes;
}

function Cell({ slot, name }: { slot: Slot; name: string | undefined }) {
  const label = `${slot.device} ${slot.id}`;
  if (slot.trial_id === null) {
    return (
      <li className="slot free">
        <span className="muted">{label}</span>
        <span className="muted">free</span>
      </li>
    );
  }
  return (
    <li className="slot">
      <span className="muted">{label}</span>
      <Link to={`/trials/${slot.trial_id}`} className="clip" title={name}>
        {name ?? `Experiment ${slot.experiment_id}`}
      </Link>
      <span className="muted num">
        trial {slot.trial_id}
        {slot.attempt !== null && slot.attempt > 1 && `, attempt ${slot.attempt}`}
      </span>
      {slot.state && !isMoving(slot.state) && <State state={slot.state} />}
    </li>
  );
}

export function Slots({ slots, jobs }: { slots: Slot[]; jobs: Job[] }) {
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  const nodes = byNode(slots);
  return [...nodes].map(([node, own]) => (
    <div key={node}>
      {nodes.size > 1 && <h3>{node}</h3>}
      <ul className="slots">
        {own.map((slot) => (
          <Cell key={slot.id} slot={slot} name={slot.experiment_id === null ? undefined : names.get(slot.experiment_id)} />
        ))}
      </ul>
    </div>
  ));
}
