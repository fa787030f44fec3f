// Doing something with the selected runs: ask first where something is lost, then show what came of each.
import { useCallback, useRef, useState } from "react";
import { api, queries } from "../../api";
import { plural } from "../../format";
import { confirm, toast, toastError } from "../../parts";
import type { Kind, Outcome } from "../types";
import type { Act, Chosen, Verb } from "./verbs";
import { apply, thing } from "./verbs";

export interface Result {
  act: Act;
  outcomes: Outcome[];
}

export interface Bulk {
  run: (act: Act, chosen: readonly Chosen[]) => Promise<void>;
  /** Waits for a project to be chosen. */
  moving: readonly Chosen[] | undefined;
  move: (projectId: number) => Promise<void>;
  stopMoving: () => void;
  /** What was refused, and why; shown until it is closed. */
  result: Result | undefined;
  close: () => void;
}

type ExperimentVerb = Exclude<Verb, "stop" | "tensorboard">;

async function sent(kind: Kind, verb: Verb, ids: number[], projectId?: number): Promise<Outcome[]> {
  if (kind === "trials") {
    return (await api.post("/api/v1/trials/actions", { body: { action: verb as "stop" | "kill", ids } })).outcomes;
  }
  const body = { action: verb as ExperimentVerb, ids, ...(projectId === undefined ? {} : { project_id: projectId }) };
  return (await api.post("/api/v1/experiments/actions", { body })).outcomes;
}

async function openTensorBoard(kind: Kind, ids: number[]): Promise<void> {
  const started = await api.post("/api/v1/tensorboards", { body: { experiments: kind === "experiments" ? ids : [], trials: kind === "trials" ? ids : [] } });
  // The browser may refuse a window that opens this late after the click, and does not say so.
  window.open(started.address, "_blank", "noopener");
  toast(`TensorBoard runs at ${started.address}. If no window opened, its link is under Tasks.`);
}

function said(act: Act, kind: Kind, outcomes: readonly Outcome[], rest: number): string {
  const done = outcomes.length === 1 ? (outcomes[0]?.said ?? "") : `${act.label}: done for ${plural(outcomes.length, thing(kind))}.`;
  return rest ? `${done} ${plural(rest, "other")} left alone.` : done;
}

/** `onGone` hears which runs were deleted. */
export function useBulk(kind: Kind, onGone: (ids: readonly number[]) => void): Bulk {
  const [moving, setMoving] = useState<readonly Chosen[]>();
  const [result, setResult] = useState<Result>();

  const latest = useRef(onGone);
  latest.current = onGone;

  const perform = useCallback(
    async (act: Act, ids: number[], rest: number, projectId?: number) => {
      try {
        const outcomes = await sent(kind, act.verb, ids, projectId);
        const refused = outcomes.filter(({ is_done }) => !is_done);
        if (refused.length) setResult({ act, outcomes });
        else toast(said(act, kind, outcomes, rest));
        if (act.verb === "delete") latest.current(outcomes.filter(({ is_done }) => is_done).map(({ id }) => id));
      } catch (error) {
        toastError(error);
      } finally {
        void queries.invalidateQueries({ queryKey: ["table"] });
      }
    },
    [kind],
  );

  const run = useCallback(
    async (act: Act, chosen: readonly Chosen[]) => {
      const { fitting } = apply(act, chosen);
      const ids = fitting.map(({ id }) => id);
      if (!ids.length) return;
      if (act.verb === "move") return setMoving(fitting);
      if (act.verb === "tensorboard") return openTensorBoard(kind, ids).catch(toastError);
      const rest = chosen.length - ids.length;
      const spared = rest ? ` ${plural(rest, "other")} that ${rest === 1 ? "is" : "are"} selected will be left alone: ${rest === 1 ? "its state does" : "their states do"} not allow it.` : "";
      const question = act.lost && {
        title: `${act.label} ${plural(ids.length, thing(kind))}?`,
        lost: act.lost(ids.length, thing(kind)) + spared,
        action: act.label,
        danger: Boolean(act.isDanger),
      };
      if (!question || (await confirm(question))) await perform(act, ids, rest);
    },
    [kind, perform],
  );
  const move = async (projectId: number) => {
    const act: Act = { verb: "move", label: "Move", refuses: () => "" };
    await perform(act, (moving ?? []).map(({ id }) => id), 0, projectId);
  };
  return { run, moving, move, stopMoving: () => setMoving(undefined), result, close: () => setResult(undefined) };
}
