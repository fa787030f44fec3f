// What can be done with a trial: stop it, or go on from it in a new experiment.
import { useState } from "react";
import { api, useReadOnly } from "../../api";
import { ContinueDialog } from "../../dialogs/ContinueDialog";
import { ForkDialog } from "../../dialogs/ForkDialog";
import { SearchDialog } from "../../dialogs/SearchDialog";
import { TensorBoardDialog } from "../../dialogs/TensorBoardDialog";
import { Icon, Menu, act, confirm } from "../../parts";
import { navigate } from "../../route";
import { Action } from "../shared/Action";
import type { Trial } from "./useTrial";

type Open = "fork" | "continue" | "search" | "tensorboard" | undefined;

function order(trial: Trial, action: "stop" | "kill") {
  return act(() => api.post("/api/v1/trials/actions", { body: { action, ids: [trial.id] } }));
}

async function kill(trial: Trial) {
  const question = {
    title: `Kill trial ${trial.id}?`,
    lost: "It ends now, without a last checkpoint: what it trained since the one before is lost.",
    action: "Kill",
  };
  if (await confirm(question)) await order(trial, "kill");
}

export function TrialActions({ trial }: { trial: Trial }) {
  const [open, setOpen] = useState<Open>();
  const readOnly = useReadOnly();
  const reason = (name: string) => trial.actions[name] || readOnly || undefined;
  const close = () => setOpen(undefined);
  const dialog = { experimentId: trial.experiment_id, trialId: trial.id, onClose: close, onSubmitted: (id: number) => navigate(`/experiments/${id}`) };
  return (
    <>
      <Action why={reason("stop")} onAct={() => void order(trial, "stop")}>
        Stop
      </Action>
      <Action why={reason("continue")} onAct={() => setOpen("continue")}>
        Continue as new
      </Action>
      <Action why={reason("fork")} onAct={() => setOpen("fork")}>
        Fork
      </Action>
      <Menu
        name="More actions"
        label={<Icon name="more" />}
        items={[
          { label: "Search from here", disabled: reason("search") ?? reason("fork"), onSelect: () => setOpen("search") },
          { label: "Open in TensorBoard", disabled: reason("tensorboard"), onSelect: () => setOpen("tensorboard") },
          { label: "Kill", danger: true, apart: true, disabled: reason("kill"), onSelect: () => void kill(trial) },
        ]}
      />
      {open === "fork" && <ForkDialog {...dialog} />}
      {open === "continue" && <ContinueDialog {...dialog} />}
      {open === "search" && <SearchDialog {...dialog} />}
      {open === "tensorboard" && <TensorBoardDialog trials={[trial.id]} onClose={close} />}
    </>
  );
}
