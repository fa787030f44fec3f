// What can be done with several runs at once, to which of them it can apply, and what is lost by it. Pure: the server has
// the last word and says for each run what came of it.
import { plural } from "../../format";
import { isOver } from "../../parts/state";
import type { Kind, TableRow } from "../types";

export type Verb = "pause" | "activate" | "cancel" | "stop" | "kill" | "archive" | "unarchive" | "move" | "delete" | "tensorboard";
export type Chosen = Pick<TableRow, "id" | "state" | "unmanaged" | "archived">;

export interface Act {
  verb: Verb;
  label: string;
  /** Why it cannot apply to this run, or empty. */
  refuses: (run: Chosen) => string;
  /** The question before it: what is lost. Undefined: nothing is. */
  lost?: (count: number, thing: string) => string;
  isDanger?: boolean;
  /** Shown as a button, not in the menu. */
  isFirst?: boolean;
}

const unmanaged = "No controller holds a run that was started by hand. Stop its process where it was started.";
const ended = "It has ended.";
const driven = (run: Chosen): string => (run.unmanaged ? unmanaged : isOver(run.state) ? ended : "");
const going = (run: Chosen): string => (isOver(run.state) || (run.unmanaged && run.state === "PAUSED") ? "" : "It has not ended yet. Stop it first.");

const experimentActs: Act[] = [
  { verb: "pause", label: "Pause", isFirst: true, refuses: (run) => driven(run) || (run.state === "PAUSED" ? "It is paused already." : "") },
  { verb: "activate", label: "Activate", isFirst: true, refuses: (run) => driven(run) || (run.state === "PAUSED" ? "" : "Only what is paused can be activated.") },
  {
    verb: "cancel",
    label: "Stop",
    isFirst: true,
    refuses: driven,
    lost: (count, thing) =>
      `${plural(count, thing)} will save a checkpoint and end; ${count === 1 ? "it" : "they"} will not go on by ${count === 1 ? "itself" : "themselves"}.`,
  },
  {
    verb: "kill",
    label: "Kill",
    isDanger: true,
    refuses: driven,
    lost: (count, thing) => `${plural(count, thing)} will end at once. What was trained since the last checkpoint is lost.`,
  },
  { verb: "tensorboard", label: "Open in TensorBoard", refuses: () => "" },
  { verb: "archive", label: "Archive", refuses: (run) => (run.archived ? "It is archived already." : going(run)) },
  { verb: "unarchive", label: "Unarchive", refuses: (run) => (run.archived ? "" : "It is not archived.") },
  { verb: "move", label: "Move to a project", refuses: (run) => (run.archived ? "It is archived. Unarchive it first." : "") },
  {
    verb: "delete",
    label: "Delete",
    isDanger: true,
    refuses: going,
    lost: (count, thing) =>
      `${plural(count, thing)} with all metrics, logs and checkpoints will be deleted. For a week "det experiment undelete" can bring ${count === 1 ? "it" : "them"} back; after that nothing can.`,
  },
];

const trialActs: Act[] = [
  {
    verb: "stop",
    label: "Stop",
    isFirst: true,
    refuses: (run) => (isOver(run.state) ? ended : ""),
    lost: (count, thing) => `${plural(count, thing)} will save a checkpoint and end.`,
  },
  {
    verb: "kill",
    label: "Kill",
    isFirst: true,
    isDanger: true,
    refuses: driven,
    lost: (count, thing) => `${plural(count, thing)} will end at once. What was trained since the last checkpoint is lost.`,
  },
  { verb: "tensorboard", label: "Open in TensorBoard", isFirst: true, refuses: () => "" },
];

export const acts = (kind: Kind): Act[] => (kind === "experiments" ? experimentActs : trialActs);
export const thing = (kind: Kind): string => (kind === "experiments" ? "experiment" : "trial");

/** The runs to which it applies; when there are none, the reason that most of them give. */
export function apply(act: Act, runs: readonly Chosen[]): { fitting: Chosen[]; reason: string } {
  const fitting = runs.filter((run) => act.refuses(run) === "");
  if (fitting.length || !runs.length) return { fitting, reason: "" };
  const votes = new Map<string, number>();
  for (const run of runs) votes.set(act.refuses(run), (votes.get(act.refuses(run)) ?? 0) + 1);
  return { fitting, reason: [...votes].reduce((one, other) => (other[1] > one[1] ? other : one))[0] };
}
