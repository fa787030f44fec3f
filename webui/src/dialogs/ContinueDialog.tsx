// Let an experiment go on after its end; or let a trial go on in an experiment of its own.
import { api } from "../api";
import { Dialog, ErrorNote, Skeleton, YamlEditor, toast } from "../parts";
import { Checks, lineErrors } from "./Checks";
import { NewExperimentDialog } from "./ForkDialog";
import { useChecked } from "./useChecked";
import type { SubmissionDialogProps } from "./useDraft";
import { useDraft } from "./useDraft";
import "./dialogs.css";

export function ContinueDialog(props: SubmissionDialogProps) {
  if (props.trialId === undefined) return <ContinueExperiment {...props} />;
  return (
    <NewExperimentDialog
      {...props}
      title={`Continue trial ${props.trialId} as a new experiment`}
      action="Continue"
      purpose="continue"
      about="The new experiment begins with the last checkpoint of this trial. Give it more to train than the trial has behind it."
    />
  );
}

function ContinueExperiment({ experimentId, onClose, onSubmitted }: SubmissionDialogProps) {
  const draft = useDraft(experimentId, "continue");
  const checking = useChecked(experimentId, "continue", draft.config);
  const submit = async () => {
    const done = await api.post("/api/v1/experiments/{experiment_id}/continue", { path: { experiment_id: experimentId }, body: { config: draft.config ?? "" } });
    for (const said of [...done.warnings, done.said]) toast(said);
    onSubmitted(done.experiment_id);
  };
  return (
    <Dialog wide title={`Continue experiment ${experimentId}`} action="Continue" onAction={submit} onClose={onClose} disabled={!checking.checked?.is_fine} unsaved={draft.unsaved}>
      <p className="muted">
        {draft.start?.config === ""
          ? "Trials that did not complete run again. The configuration of such a search stays as it is."
          : "The same experiment goes on from its last checkpoint. Raise what ended it, for example the length of training."}
      </p>
      <ErrorNote error={draft.error} />
      {draft.config === undefined && !draft.error && <Skeleton lines={10} />}
      {draft.config !== undefined && (
        <>
          {draft.start?.config !== "" && <YamlEditor value={draft.config} onChange={draft.setConfig} errors={lineErrors(checking.checked ?? checking.last)} rows={16} />}
          <Checks checking={checking} />
        </>
      )}
    </Dialog>
  );
}
