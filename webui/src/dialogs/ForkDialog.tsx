// Submit an experiment's code again with a changed configuration, as a new experiment.
import { useState } from "react";
import { api } from "../api";
import { Dialog, ErrorNote, Skeleton, YamlEditor, toast } from "../parts";
import { Checks, lineErrors } from "./Checks";
import { useChecked } from "./useChecked";
import type { SubmissionDialogProps } from "./useDraft";
import { useDraft } from "./useDraft";
import "./dialogs.css";

export function ForkDialog({ experimentId, trialId, onClose, onSubmitted }: SubmissionDialogProps) {
  return (
    <NewExperimentDialog
      title={trialId === undefined ? `Fork experiment ${experimentId}` : `Fork trial ${trialId}`}
      action="Fork"
      purpose="fork"
      experimentId={experimentId}
      {...(trialId !== undefined && { trialId })}
      onClose={onClose}
      onSubmitted={onSubmitted}
    />
  );
}

interface NewExperimentDialogProps extends SubmissionDialogProps {
  title: string;
  action: string;
  purpose: "fork" | "continue";
  about?: string;
}

/** The form of everything that becomes a new experiment: a name, its configuration, whether it starts at once. */
export function NewExperimentDialog({ title, action, purpose, about, experimentId, trialId, onClose, onSubmitted }: NewExperimentDialogProps) {
  const draft = useDraft(experimentId, purpose, trialId);
  const [isPaused, setPaused] = useState(false);
  const checking = useChecked(experimentId, "fork", draft.config); // also what continues a trial is a new experiment
  const submit = async () => {
    const name = draft.name.trim(); // one that was not touched gives way to what the text says
    const body = { config: draft.config ?? "", name: name && name !== draft.start?.name ? name : null, paused: isPaused };
    const done = await api.post("/api/v1/experiments/{experiment_id}/fork", { path: { experiment_id: experimentId }, body });
    for (const said of [...done.warnings, done.said]) toast(said);
    onSubmitted(done.experiment_id);
  };
  return (
    <Dialog wide title={title} action={action} onAction={submit} onClose={onClose} disabled={!checking.checked?.is_fine} unsaved={draft.unsaved}>
      {about && <p className="muted">{about}</p>}
      <ErrorNote error={draft.error} />
      {draft.config === undefined && !draft.error && <Skeleton lines={10} />}
      {draft.config !== undefined && (
        <>
          <div className="row dialog-row">
            <label className="field grow">
              Name
              <input value={draft.name} maxLength={1000} onChange={(event) => draft.setName(event.target.value)} />
            </label>
            <label className="row dialog-check">
              <input type="checkbox" checked={isPaused} onChange={(event) => setPaused(event.target.checked)} /> Start paused
            </label>
          </div>
          <YamlEditor value={draft.config} onChange={draft.setConfig} errors={lineErrors(checking.checked ?? checking.last)} rows={16} />
          <Checks checking={checking} />
        </>
      )}
    </Dialog>
  );
}
