// Change the name, description and tags of an experiment.
import { useState } from "react";
import type { components } from "../api";
import { api, queries, useGet } from "../api";
import { Dialog, ErrorNote, Skeleton, toast } from "../parts";
import { TagsField } from "./TagsField";
import "./dialogs.css";

interface EditDialogProps {
  experimentId: number;
  onClose: () => void;
  onSubmitted?: (experimentId: number) => void;
}

export function EditDialog({ experimentId, onClose, onSubmitted }: EditDialogProps) {
  const { data, error } = useGet(["experiment", experimentId], "/api/v1/experiments/{experiment_id}", { path: { experiment_id: experimentId } });
  if (data) return <Fields experiment={data} onClose={onClose} onSubmitted={onSubmitted} />;
  return (
    <Dialog title={`Edit experiment ${experimentId}`} onClose={onClose}>
      {error ? <ErrorNote error={error} /> : <Skeleton />}
    </Dialog>
  );
}

type Experiment = components["schemas"]["ExperimentAnswer"];

function Fields({ experiment, onClose, onSubmitted }: { experiment: Experiment; onClose: () => void; onSubmitted: EditDialogProps["onSubmitted"] }) {
  const [name, setName] = useState(experiment.name);
  const [description, setDescription] = useState(experiment.description);
  const [labels, setLabels] = useState(experiment.labels);
  const submit = async () => {
    const done = await api.patch("/api/v1/experiments/{experiment_id}", { path: { experiment_id: experiment.id }, body: { name: name.trim(), description, labels } });
    void queries.invalidateQueries();
    toast(done.said);
    onSubmitted?.(experiment.id);
  };
  return (
    <Dialog title={`Edit experiment ${experiment.id}`} action="Save" onAction={submit} onClose={onClose} disabled={!name.trim()}>
      <label className="field">
        Name
        <input value={name} maxLength={1000} autoFocus onChange={(event) => setName(event.target.value)} />
      </label>
      <label className="field">
        Description
        <textarea value={description} rows={3} maxLength={10000} onChange={(event) => setDescription(event.target.value)} />
      </label>
      <TagsField tags={labels} onChange={setLabels} />
    </Dialog>
  );
}
