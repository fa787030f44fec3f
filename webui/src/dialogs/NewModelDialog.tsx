// Make a model that has no versions yet.
import { useState } from "react";
import { api, queries } from "../api";
import { Dialog } from "../parts";
import "./dialogs.css";

export function NewModelDialog({ onClose, onMade }: { onClose: () => void; onMade: (id: number) => void }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const submit = async () => {
    const made = await api.post("/api/v1/models", { body: { name: name.trim(), description } });
    void queries.invalidateQueries({ queryKey: ["models"] });
    onMade(made.id);
  };
  return (
    <Dialog title="New model" action="Make" onAction={submit} onClose={onClose} disabled={!name.trim()}>
      <label className="field">
        Name
        <input value={name} maxLength={200} autoFocus onChange={(event) => setName(event.target.value)} />
      </label>
      <label className="field">
        Description
        <textarea value={description} rows={3} maxLength={10000} onChange={(event) => setDescription(event.target.value)} />
      </label>
    </Dialog>
  );
}
