// The forms of projects and workspaces. Each closes when the server agreed, and shows its sentence when it did not.
import type { ReactNode } from "react";
import { useState } from "react";
import { api, queries } from "../../api";
import { Dialog, toast } from "../../parts";
import { navigate } from "../../route";
import type { Project, Workspace } from ".";

type Close = { onClose: () => void };

async function settled(said: string): Promise<void> {
  toast(said);
  await queries.invalidateQueries();
}

interface NameFormProps extends Close {
  title: string;
  action: string;
  name?: string;
  description?: string;
  /** Without it only the name is asked. */
  withDescription?: boolean;
  save: (name: string, description: string) => Promise<unknown>;
  children?: ReactNode;
}

function NameForm({ title, action, name = "", description = "", withDescription, save, onClose }: NameFormProps) {
  const [called, setCalled] = useState(name);
  const [about, setAbout] = useState(description);
  return (
    <Dialog title={title} action={action} onClose={onClose} disabled={called.trim() === ""} onAction={() => save(called.trim(), about)}>
      <label className="field">
        Name
        <input maxLength={200} value={called} onChange={(event) => setCalled(event.target.value)} />
      </label>
      {withDescription && (
        <label className="field">
          Description
          <textarea rows={3} maxLength={10_000} value={about} onChange={(event) => setAbout(event.target.value)} />
        </label>
      )}
    </Dialog>
  );
}

export function NewWorkspace({ onClose }: Close) {
  const save = async (name: string) => settled((await api.post("/api/v1/workspaces", { body: { name } })).said);
  return <NameForm title="New workspace" action="Create" save={save} onClose={onClose} />;
}

export function EditWorkspace({ workspace, onClose }: Close & { workspace: Workspace }) {
  const path = { workspace_id: workspace.id };
  const save = async (name: string) => settled((await api.patch("/api/v1/workspaces/{workspace_id}", { path, body: { name } })).said);
  return <NameForm title="Rename the workspace" action="Save" name={workspace.name} save={save} onClose={onClose} />;
}

export function NewProject({ workspace, onClose }: Close & { workspace: Workspace }) {
  const save = async (name: string, description: string) => {
    const made = await api.post("/api/v1/projects", { body: { workspace_id: workspace.id, name, description } });
    await settled(`Project “${made.name}” is there.`);
    navigate(`/projects/${made.id}`);
  };
  return <NameForm title={`New project in ${workspace.name}`} action="Create" withDescription save={save} onClose={onClose} />;
}

export function EditProject({ project, onClose }: Close & { project: Pick<Project, "id" | "name" | "description"> }) {
  const path = { project_id: project.id };
  const save = async (name: string, description: string) =>
    settled((await api.patch("/api/v1/projects/{project_id}", { path, body: { name, description } })).said);
  return (
    <NameForm
      title="Edit the project"
      action="Save"
      withDescription
      name={project.name}
      description={project.description}
      save={save}
      onClose={onClose}
    />
  );
}

interface MoveProps extends Close {
  project: Pick<Project, "id" | "name" | "workspace_id">;
  rooms: Pick<Workspace, "id" | "name" | "archived">[];
}

export function MoveProject({ project, rooms, onClose }: MoveProps) {
  const others = rooms.filter((room) => room.id !== project.workspace_id && !room.archived);
  const [target, setTarget] = useState(others[0]?.id);
  const move = async () => {
    const body = { workspace_id: target ?? null };
    await settled((await api.patch("/api/v1/projects/{project_id}", { path: { project_id: project.id }, body })).said);
  };
  return (
    <Dialog title={`Move project “${project.name}”`} action="Move" disabled={target === undefined} onAction={move} onClose={onClose}>
      {others.length === 0 ? (
        <p>There is no other workspace to move it to. Create one first.</p>
      ) : (
        <label className="field">
          To workspace
          <select value={target} onChange={(event) => setTarget(Number(event.target.value))}>
            {others.map((room) => (
              <option key={room.id} value={room.id}>
                {room.name}
              </option>
            ))}
          </select>
        </label>
      )}
    </Dialog>
  );
}
