// The notes of an experiment: Markdown, shown as it reads, saved when one says so.
import { useState } from "react";
import { api, queries, useGet } from "../../api";
import { Empty, ErrorNote, Markdown, Skeleton, toast } from "../../parts";
import { useUnsaved } from "./unsaved";
import "./shared.css";

export function NotesTab({ experimentId }: { experimentId: number }) {
  const { data, error, refetch } = useGet(["experiment", experimentId], "/api/v1/experiments/{experiment_id}", { path: { experiment_id: experimentId } });
  if (!data) return error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton />;
  const save = async (notes: string) => {
    const done = await api.patch("/api/v1/experiments/{experiment_id}", { path: { experiment_id: experimentId }, body: { notes } });
    await queries.invalidateQueries({ queryKey: ["experiment", experimentId] });
    toast(done.said);
  };
  return <Notes key={experimentId} text={data.notes} onSave={save} why={data.actions.edit} />;
}

interface NotesProps {
  text: string;
  onSave: (text: string) => Promise<void>;
  /** Why they cannot be changed; empty: they can. */
  why?: string | undefined;
}

/** Notes of anything. What is typed is kept apart from `text` until it is saved, so that live data cannot overwrite it. */
export function Notes({ text, onSave, why }: NotesProps) {
  const [draft, setDraft] = useState<string>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const isDirty = draft !== undefined && draft !== text;
  useUnsaved(isDirty, "What you typed into the notes has not been saved.");
  const save = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await onSave(draft ?? "");
      setDraft(undefined);
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  if (draft === undefined) return <Shown text={text} why={why} onEdit={() => setDraft(text)} />;
  return (
    <div className="notes stack">
      <div className="row">
        <button type="button" className="primary" disabled={busy || !isDirty} onClick={() => void save()}>
          Save
        </button>
        <button type="button" onClick={() => setDraft(undefined)}>
          {isDirty ? "Discard changes" : "Cancel"}
        </button>
        <span className="muted">{isDirty ? "Not saved yet" : "Markdown"}</span>
      </div>
      <ErrorNote error={error} />
      <div className="notes-both">
        <textarea aria-label="Notes as Markdown" className="mono" value={draft} autoFocus onChange={(event) => setDraft(event.target.value)} />
        <section aria-label="Preview">{draft.trim() ? <Markdown text={draft} /> : <p className="muted">The preview is shown here.</p>}</section>
      </div>
    </div>
  );
}

function Shown({ text, why, onEdit }: { text: string; why: string | undefined; onEdit: () => void }) {
  return (
    <div className="notes stack">
      <div className="row">
        <button type="button" disabled={Boolean(why)} title={why} onClick={onEdit}>
          {text.trim() ? "Edit notes" : "Write notes"}
        </button>
      </div>
      {text.trim() ? <Markdown text={text} /> : <Empty>No notes yet. What was tried, why, and what came of it reads well here in a year.</Empty>}
    </div>
  );
}
