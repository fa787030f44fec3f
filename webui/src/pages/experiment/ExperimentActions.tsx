// What can be done with an experiment. What is not possible now stays in its place and says why.
import type { ComponentType } from "react";
import { Suspense, lazy, useState } from "react";
import { api, url, useReadOnly } from "../../api";
import { plural } from "../../format";
import { Icon, Menu, act, confirm } from "../../parts";
import type { Item } from "../../parts";
import { navigate } from "../../route";
import { Action } from "../shared/Action";
import type { Experiment } from "./useExperiment";

type Verb = "activate" | "pause" | "cancel" | "kill" | "archive" | "unarchive" | "delete";
type Open = "fork" | "continue" | "search" | "edit" | "move" | "tensorboard" | undefined;
type Submission = ComponentType<{ experimentId: number; onClose: () => void; onSubmitted: (id: number) => void }>;

// Dialogs are fetched when they are opened: most visits open none.
const dialogs: Record<"fork" | "continue" | "search" | "edit", Submission> = {
  fork: lazy(() => import("../../dialogs/ForkDialog").then(({ ForkDialog }) => ({ default: ForkDialog }))),
  continue: lazy(() => import("../../dialogs/ContinueDialog").then(({ ContinueDialog }) => ({ default: ContinueDialog }))),
  search: lazy(() => import("../../dialogs/SearchDialog").then(({ SearchDialog }) => ({ default: SearchDialog }))),
  edit: lazy(() => import("../../dialogs/EditDialog").then(({ EditDialog }) => ({ default: EditDialog }))),
};
const MoveDialog = lazy(() => import("../../dialogs/MoveDialog").then(({ MoveDialog: dialog }) => ({ default: dialog })));
const TensorBoardDialog = lazy(() => import("../../dialogs/TensorBoardDialog").then(({ TensorBoardDialog: dialog }) => ({ default: dialog })));

const send = (experiment: Experiment, action: Verb) => act(() => api.post("/api/v1/experiments/actions", { body: { action, ids: [experiment.id] } }));

/** How many trials have not ended. */
function going(experiment: Experiment): string {
  const over = ["COMPLETED", "CANCELED", "ERROR"];
  const many = Object.entries(experiment.counts).reduce((sum, [state, each]) => sum + (over.includes(state) ? 0 : each), 0);
  return plural(many, "trial");
}

function question(experiment: Experiment, verb: Verb) {
  const { id, name } = experiment;
  if (verb === "kill") return { title: `Kill experiment ${id}?`, lost: `${going(experiment)} of ${name} end now, without a last checkpoint: what they trained since the one before is lost.`, action: "Kill" };
  if (verb === "cancel") return { title: `Stop experiment ${id}?`, lost: `${going(experiment)} of ${name} save a checkpoint and end. The experiment cannot be activated again.`, action: "Stop", danger: false };
  const sizes = `${plural(experiment.trial_count, "trial")} with metrics and logs, and ${plural(experiment.checkpoint_count, "checkpoint")}`;
  return { title: `Delete experiment ${id}?`, lost: `${sizes} of ${name} are deleted. For a week, "det experiment undelete ${id}" brings them back.`, action: "Delete" };
}

async function ask(experiment: Experiment, verb: Verb): Promise<void> {
  if (!(await confirm(question(experiment, verb)))) return;
  const isDone = await send(experiment, verb);
  if (isDone && verb === "delete") navigate("/experiments");
}

export function ExperimentActions({ experiment }: { experiment: Experiment }) {
  const [open, setOpen] = useState<Open>();
  const readOnly = useReadOnly();
  const why = (name: string) => experiment.actions[name] || readOnly || undefined;
  const isPaused = experiment.state === "PAUSED" || !experiment.actions.activate;
  const close = () => setOpen(undefined);
  const items: Item[] = [
    { label: "Search from here", disabled: why("search"), onSelect: () => setOpen("search") },
    { label: "Edit", disabled: why("edit"), onSelect: () => setOpen("edit") },
    { label: "Move to a project", disabled: why("move"), onSelect: () => setOpen("move") },
    { label: "Open in TensorBoard", disabled: why("tensorboard"), onSelect: () => setOpen("tensorboard") },
    {
      label: "Download code",
      disabled: experiment.has_code ? undefined : "No code was submitted with this experiment.",
      onSelect: () => window.location.assign(url("/api/v1/experiments/{experiment_id}/code/download", { path: { experiment_id: experiment.id } })),
    },
    experiment.archived
      ? { label: "Unarchive", disabled: why("unarchive"), onSelect: () => void send(experiment, "unarchive") }
      : { label: "Archive", disabled: why("archive"), onSelect: () => void send(experiment, "archive") },
    { label: "Delete", danger: true, apart: true, disabled: why("delete"), onSelect: () => void ask(experiment, "delete") },
  ];
  return (
    <>
      {isPaused ? (
        <Action why={why("activate")} onAct={() => void send(experiment, "activate")}>
          Activate
        </Action>
      ) : (
        <Action why={why("pause")} onAct={() => void send(experiment, "pause")}>
          Pause
        </Action>
      )}
      <Menu
        label={<>Stop <Icon name="down" size={12} /></>}
        items={[
          { label: "Stop with a last checkpoint", disabled: why("cancel"), onSelect: () => void ask(experiment, "cancel") },
          { label: "Kill now", danger: true, disabled: why("kill"), onSelect: () => void ask(experiment, "kill") },
        ]}
      />
      <Action why={why("fork")} onAct={() => setOpen("fork")}>
        Fork
      </Action>
      <Action why={why("continue")} onAct={() => setOpen("continue")}>
        Continue
      </Action>
      <Menu name="More actions" label={<Icon name="more" />} items={items} />
      <Suspense>
        <Opened open={open} experiment={experiment} onClose={close} />
      </Suspense>
    </>
  );
}

function Opened({ open, experiment, onClose }: { open: Open; experiment: Experiment; onClose: () => void }) {
  if (!open) return null;
  if (open === "move") return <MoveDialog experimentIds={[experiment.id]} projectId={experiment.project_id} onClose={onClose} />;
  if (open === "tensorboard") return <TensorBoardDialog experiments={[experiment.id]} onClose={onClose} />;
  const Shown = dialogs[open];
  return <Shown experimentId={experiment.id} onClose={onClose} onSubmitted={(id) => id !== experiment.id && navigate(`/experiments/${id}`)} />;
}
