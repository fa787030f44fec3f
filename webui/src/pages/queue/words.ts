// What the queue calls its jobs, slots and nodes.
import type { Answer } from "../../api";

export type QueueAnswer = Answer<"/api/v1/queue">;
export type Job = QueueAnswer["jobs"][number];
export type Slot = QueueAnswer["slots"][number];
export type Node = QueueAnswer["nodes"][number];

/** When a job gets slots, in words. */
export function place(job: Pick<Job, "ahead" | "slots_used" | "state" | "waiting">): string {
  if (job.waiting && job.state !== "RUNNING") return "waiting";
  if (job.slots_used > 0) return "has slots";
  if (job.state === "PAUSED") return "paused";
  if (job.ahead === null) return "waits for nobody";
  return job.ahead === 0 ? "next" : `${job.ahead} ahead`;
}

/** The slots of each node; a node without any is there, too. */
export function byNode(slots: Slot[], known: Node[]): Map<string, Slot[]> {
  const nodes = new Map<string, Slot[]>(known.map((node) => [node.name, []]));
  for (const slot of slots) nodes.set(slot.node, [...(nodes.get(slot.node) ?? []), slot]);
  return nodes;
}

/** What a slot is called on its node: `CPU 0`, `GPU 1`. */
export function label(slot: Pick<Slot, "id" | "device">): string {
  const number = slot.id.slice(slot.id.lastIndexOf("/") + 1);
  return slot.device === slot.id || slot.device.endsWith(` ${number}`) ? slot.device : `${slot.device} ${number}`;
}
