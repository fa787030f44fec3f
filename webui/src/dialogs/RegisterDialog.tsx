// Make a checkpoint a version of a model, which may be new.
import { useId, useState } from "react";
import { api, queries, useGet } from "../api";
import { Dialog, toast } from "../parts";
import "./dialogs.css";

interface RegisterDialogProps {
  uuid: string;
  onClose: () => void;
  onSubmitted?: () => void;
}

export function RegisterDialog({ uuid, onClose, onSubmitted }: RegisterDialogProps) {
  const list = useId();
  const [model, setModel] = useState("");
  const [name, setName] = useState("");
  const [comment, setComment] = useState("");
  const { data } = useGet(["models", "", false, 0], "/api/v1/models", { query: { limit: 1000 } });
  const wanted = model.trim();
  const isKnown = data?.models.some((one) => one.name === wanted) ?? false;
  const submit = async () => {
    const body = { model: wanted, create: !isKnown, name: name.trim(), comment: comment.trim() };
    const done = await api.post("/api/v1/checkpoints/{uuid}/register", { path: { uuid }, body });
    void queries.invalidateQueries();
    toast(done.said);
    onSubmitted?.();
  };
  return (
    <Dialog title={`Register checkpoint ${uuid.slice(0, 8)}`} action="Register" onAction={submit} onClose={onClose} disabled={!wanted}>
      <label className="field">
        Model
        <input value={model} list={list} maxLength={200} autoFocus placeholder="Name of a model, known or new" onChange={(event) => setModel(event.target.value)} />
        <datalist id={list}>
          {data?.models.map((one) => (
            <option key={one.id} value={one.name} />
          ))}
        </datalist>
        <small>{wanted && data && (isKnown ? "Becomes the next version of this model." : "There is no such model yet: it is made.")}</small>
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
