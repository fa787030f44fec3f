// Each slot as a cell, by machine or by node of the cluster: who holds it.
import { plural } from "../../format";
import { State, isMoving } from "../../parts";
import { Link } from "../../route";
import type { Job, Node, Slot } from "./words";
import { byNode, label } from "./words";

function Cell({ slot, name }: { slot: Slot; name: string | undefined }) {
  if (slot.trial_id === null) {
    return (
      <li className="slot free">
        <span className="muted">{label(slot)}</span>
        <span className="muted">free</span>
      </li>
    );
  }
  return (
    <li className="slot">
      <span className="muted">{label(slot)}</span>
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

function About({ node }: { node: Node }) {
  return (
    <span className="muted">
      {node.slots ? `${node.slots_used} of ${plural(node.slots, "slot")} in use` : "no slots"} · {node.address}
      {node.pools.length > 0 && ` · ${node.pools.length === 1 ? "pool" : "pools"} ${node.pools.join(", ")}`}
    </span>
  );
}

export function Slots({ slots, nodes, jobs }: { slots: Slot[]; nodes: Node[]; jobs: Job[] }) {
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  const known = new Map(nodes.map((node) => [node.name, node]));
  const groups = byNode(slots, nodes);
  return [...groups].map(([name, own]) => {
    const node = known.get(name);
    return (
      <div key={name}>
        {(groups.size > 1 || node) && (
          <div className="slot-node">
            <h3>{name}</h3>
            {node && <About node={node} />}
          </div>
        )}
        {own.length > 0 && (
          <ul className="slots">
            {own.map((slot) => (
              <Cell key={slot.id} slot={slot} name={slot.experiment_id === null ? undefined : names.get(slot.experiment_id)} />
            ))}
          </ul>
        )}
      </div>
    );
  });
}
