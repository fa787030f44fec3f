// Register a checkpoint, named by its id, as the next version of a model.
import { useState } from "react";
import { api, queries } from "../api";
import { Dialog, toast } from "../parts";
import "./dialogs.css";

export function RegisterVersionDialog({ model, onClose }: { model: string; onClose: () => void }) {
  const [uuid, setUuid] = useState("");
  const [name, setName] = useState("");
  const [comment, setComment] = useState("");
  const submit = async () => {
    const body = { model, create: false, name: name.trim(), comment: comment.trim() };
    const done = await api.post("/api/v1/checkpoints/{uuid}/register", { path: { uuid: uuid.trim() }, body });
    void queries.invalidateQueries({ queryKey: ["models"] });
    toast(done.said);
  };
  return (
    <Dialog title={`Register a version of ${model}`} action="Register" onAction={submit} onClose={onClose} disabled={!uuid.trim()}>
      <label className="field">
        Id of the checkpoint
        <input className="mono" value={uuid} autoFocus placeholder="As the checkpoints of a trial show it" onChange={(event) => setUuid(event.target.value)} />
      </label>
      <label className="field">
        Name of the version (if it needs one)
        <input value={name} maxLength={200} onChange={(event) => setName(event.target.value)} />
      </label>
      <label className="field">
        Comment
        <textarea value={comment} rows={3} maxLength={2000} onChange={(event) => setComment(event.target.value)} />
      </label>
    </Dialog>
  );
}
