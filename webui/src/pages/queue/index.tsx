// The queue: who runs, who waits, which slots are taken, and the process that gives them out.
import { useState } from "react";
import { useGet, useReadOnly } from "../../api";
import { plural } from "../../format";
import { useCrumbs } from "../../frame";
import { Command, Empty, ErrorNote, Named, Skeleton, State, Time, Tip } from "../../parts";
import { ChangePlace } from "./change";
import "./queue.css";
import { Slots } from "./slots";
import type { Job, QueueAnswer } from "./words";
import { place } from "./words";

function Controller({ controller }: { controller: QueueAnswer["controller"] }) {
  if (!controller.is_alive) {
    return (
      <p className="muted">
        No controller runs{controller.pending ? `, and ${plural(controller.pending, "trial")} wait for one` : ""}. Submitting an experiment starts
        it; so does <Command>det controller start</Command>
      </p>
    );
  }
  return (
    <p className="muted">
      {controller.launcher === "ray" ? "Trials run on Ray" : "Trials run on this machine"}; the controller is process {controller.pid} on {controller.node}
      , started <Time at={controller.since} />, last heard <Time at={controller.last_beat} />.
    </p>
  );
}

function JobRow({ job, locked, onChange }: { job: Job; locked: string; onChange: () => void }) {
  return (
    <tr>
      <td className="phoneless muted">{place(job)}</td>
      <td>
        <Named to={`/experiments/${job.id}`} name={job.name} id={job.id} />
        <div className="phone-only muted num">
          {place(job) === "has slots" ? `${job.slots_used} of ${plural(job.slots_asked, "slot")}` : place(job)} · priority {job.priority}
        </div>
        {job.waiting && <div className="waiting muted">{job.waiting}</div>}
      </td>
      <td>
        <State state={job.state} />
      </td>
      <td className="num phoneless">
        {job.slots_used} of {job.slots_asked}
        {job.max_slots !== null && <span className="muted"> (at most {job.max_slots})</span>}
      </td>
      <td className="num phoneless">{job.priority}</td>
      <td className="roomy muted">
        <Time at={job.submitted} />
      </td>
      <td className="roomy muted clip">{job.owner}</td>
      <td>
        <Tip text={locked}>
          <button type="button" disabled={Boolean(locked)} onClick={onChange} aria-label={`Change the place of experiment ${job.id}`}>
            Change
          </button>
        </Tip>
      </td>
    </tr>
  );
}

function Jobs({ jobs }: { jobs: Job[] }) {
  const [changed, setChanged] = useState<number>();
  const locked = useReadOnly();
  const job = jobs.find((one) => one.id === changed);
  if (jobs.length === 0) return <Empty command="det experiment create experiment.yaml .">Nothing runs and nothing waits.</Empty>;
  return (
    <div className="scroll">
      <table className="queue-jobs">
        <thead>
          <tr>
            <th className="phoneless">Place</th>
            <th>Experiment</th>
            <th>State</th>
            <th className="num phoneless">Slots</th>
            <th className="num phoneless">Priority</th>
            <th className="roomy">Submitted</th>
            <th className="roomy">Owner</th>
            <th>
              <span className="visually-hidden">Change</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((one) => (
            <JobRow key={one.id} job={one} locked={locked} onChange={() => setChanged(one.id)} />
          ))}
        </tbody>
      </table>
      {job && <ChangePlace job={job} onClose={() => setChanged(undefined)} />}
    </div>
  );
}

export default function Queue() {
  useCrumbs({ label: "Queue" });
  const queue = useGet(["queue"], "/api/v1/queue", {});
  if (!queue.data) return <div className="page">{queue.error ? <ErrorNote error={queue.error} retry={queue.refetch} /> : <Skeleton />}</div>;
  const { jobs, slots, nodes, controller } = queue.data;
  return (
    <div className="page">
      <h1 className="visually-hidden">Queue</h1>
      <section>
        <header>
          <h2>Jobs</h2>
          <span className="muted">a smaller priority gets slots first; then the earlier one</span>
        </header>
        <Jobs jobs={jobs} />
      </section>
      <section>
        <header>
          <h2>Slots</h2>
          <span className="muted num">
            {slots.filter((slot) => slot.trial_id !== null).length} of {slots.length} in use
          </span>
        </header>
        <Slots slots={slots} nodes={nodes} jobs={jobs} />
        <Controller controller={controller} />
      </section>
    </div>
  );
}
