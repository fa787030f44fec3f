// Notes of a project: Markdown, each with a name.
import { useState } from "react";
import { api, useReadOnly } from "../../api";
import { Empty, Icon, Markdown, Tip, act, confirm } from "../../parts";
import { useUnsaved } from "../shared/unsaved";
import type { ProjectAnswer } from ".";

type Note = ProjectAnswer["notes"][number];

function save(project: ProjectAnswer, notes: Note[]): Promise<boolean> {
  return act(() => api.patch("/api/v1/projects/{project_id}", { path: { project_id: project.id }, body: { notes } }));
}

interface EditProps {
  note: Note;
  onSave: (note: Note) => Promise<boolean>;
  onCancel: () => void;
}

function Edit({ note, onSave, onCancel }: EditProps) {
  const [name, setName] = useState(note.name);
  const [contents, setContents] = useState(note.contents);
  const [preview, setPreview] = useState(false);
  useUnsaved(name !== note.name || contents !== note.contents, "What you typed into the note has not been saved.");
  return (
    <div className="note-edit">
      <input aria-label="Name of the note" placeholder="Name" maxLength={200} value={name} onChange={(event) => setName(event.target.value)} />
      {preview ? (
        <Markdown text={contents} />
      ) : (
        <textarea
          aria-label="Note, in Markdown"
          placeholder="Markdown"
          rows={12}
          maxLength={200_000}
          className="mono"
          autoFocus
          value={contents}
          onChange={(event) => setContents(event.target.value)}
        />
      )}
      <div className="row">
        <button type="button" className="primary" onClick={() => void onSave({ name: name.trim() || "Note", contents })}>
          Save
        </button>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="button" aria-pressed={preview} onClick={() => setPreview(!preview)}>
          Preview
        </button>
      </div>
    </div>
  );
}

export function Notes({ project }: { project: ProjectAnswer }) {
  const [edited, setEdited] = useState<number>();
  const readOnly = useReadOnly();
  const locked = readOnly || (project.archived ? "The project is archived. Take it back to write notes." : "");
  const { notes } = project;
  const keep = async (place: number, note: Note) => {
    const isDone = await save(project, [...notes.slice(0, place), note, ...notes.slice(place + 1)]);
    if (isDone) setEdited(undefined);
    return isDone;
  };
  const remove = async (place: number) => {
    const lost = "Its text is deleted and cannot be brought back.";
    if (!(await confirm({ title: `Delete the note “${notes[place]?.name || "Note"}”?`, lost, action: "Delete" }))) return;
    await save(project, notes.filter((_, other) => other !== place));
  };
  return (
    <section>
      {notes.length === 0 && edited === undefined && <Empty>No notes yet. Notes are Markdown, and for everybody who opens the project.</Empty>}
      {[...notes, ...(edited === notes.length ? [{ name: "", contents: "" }] : [])].map((note, place) => (
        <article key={place} className="note-card">
          {edited === place ? (
            <Edit note={note} onSave={(next) => keep(place, next)} onCancel={() => setEdited(undefined)} />
          ) : (
            <>
              <header>
                <h2 className="grow clip">{note.name || "Note"}</h2>
                <button type="button" className="plain" disabled={Boolean(locked)} aria-label="Edit the note" title={locked || "Edit"} onClick={() => setEdited(place)}>
                  <Icon name="edit" />
                </button>
                <button type="button" className="plain" disabled={Boolean(locked)} aria-label="Delete the note" title={locked || "Delete"} onClick={() => void remove(place)}>
                  <Icon name="trash" />
                </button>
              </header>
              <div className="note-text">
                <Markdown text={note.contents} />
              </div>
            </>
          )}
        </article>
      ))}
      {edited === undefined && (
        <Tip text={locked}>
          <button type="button" disabled={Boolean(locked)} onClick={() => setEdited(notes.length)}>
            <Icon name="plus" /> New note
          </button>
        </Tip>
      )}
    </section>
  );
}
