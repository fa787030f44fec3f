// Change the description, tags and metadata of a model.
import { useState } from "react";
import type { components } from "../api";
import { api, queries } from "../api";
import { Dialog, toast } from "../parts";
import { TagsField } from "./TagsField";
import "./dialogs.css";

type Model = components["schemas"]["ModelAnswer"];

/** The metadata as it was typed, or why it cannot be read. */
export function readMetadata(text: string): { value?: Record<string, unknown>; problem: string } {
  try {
    const value: unknown = text.trim() === "" ? {} : JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return { value: value as Record<string, unknown>, problem: "" };
    return { problem: 'Metadata is a JSON object, for example {"team": "vision"}.' };
  } catch (error) {
    return { problem: error instanceof Error ? `This is not JSON: ${error.message}` : "This is not JSON." };
  }
}

export function ModelEditDialog({ model, onClose }: { model: Model; onClose: () => void }) {
  const [description, setDescription] = useState(model.description);
  const [labels, setLabels] = useState(model.labels);
  const [typed, setTyped] = useState(Object.keys(model.metadata).length ? JSON.stringify(model.metadata, null, 2) : "");
  const metadata = readMetadata(typed);
  const submit = async () => {
    const body = { description, labels, metadata: metadata.value ?? {} };
    const done = await api.patch("/api/v1/models/{model_id}", { path: { model_id: model.id }, body });
    void queries.invalidateQueries({ queryKey: ["models"] });
    toast(done.said);
  };
  return (
    <Dialog title={`Edit ${model.name}`} action="Save" onAction={submit} onClose={onClose} disabled={Boolean(metadata.problem)}>
      <label className="field">
        Description
        <textarea value={description} rows={3} maxLength={10000} onChange={(event) => setDescription(event.target.value)} />
      </label>
      <TagsField tags={labels} onChange={setLabels} />
      <label className="field">
        Metadata as JSON
        <textarea className="mono" value={typed} rows={6} spellCheck={false} aria-invalid={Boolean(metadata.problem)} onChange={(event) => setTyped(event.target.value)} />
        {metadata.problem && <small className="field-bad">{metadata.problem}</small>}
      </label>
    </Dialog>
  );
}
