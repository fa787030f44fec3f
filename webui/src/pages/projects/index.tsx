// Workspaces with their projects, as cards; make, rename, archive and move them.
import { useState } from "react";
import type { Answer } from "../../api";
import { useGet, useReadOnly } from "../../api";
import { plural } from "../../format";
import { useCrumbs } from "../../frame";
import { Chip, ErrorNote, Icon, Menu, Skeleton, Time, Tip } from "../../parts";
import { Link, codecs, useQueryState } from "../../route";
import { archiveProject, archiveWorkspace } from "./changes";
import { EditProject, EditWorkspace, MoveProject, NewProject, NewWorkspace } from "./dialogs";
import "./projects.css";

export type Workspace = Answer<"/api/v1/workspaces">["workspaces"][number];
export type Project = Workspace["projects"][number];

/** Which dialog is open, and about what. */
export type Asked =
  | { kind: "new workspace" }
  | { kind: "new project" | "edit workspace"; workspace: Workspace }
  | { kind: "edit project" | "move project"; project: Project };

interface Shared {
  locked: string;
  ask: (asked: Asked) => void;
}

function Card({ project, locked, ask }: Shared & { project: Project }) {
  const why = locked || (project.immutable ? "This project is always there." : "");
  return (
    <li className="project-card">
      <div className="row">
        <Link to={`/projects/${project.id}`} className="grow clip" title={project.name}>
          {project.name}
        </Link>
        {project.archived && <Chip>archived</Chip>}
        <Menu
          label={<Icon name="more" />}
          name={`What to do with project ${project.name}`}
          align="right"
          className="plain"
          items={[
            { label: "Rename", disabled: why, onSelect: () => ask({ kind: "edit project", project }) },
            { label: "Move to another workspace", disabled: why, onSelect: () => ask({ kind: "move project", project }) },
            {
              label: project.archived ? "Take back from the archive" : "Archive",
              disabled: why,
              apart: true,
              onSelect: () => void archiveProject(project),
            },
          ]}
        />
      </div>
      {project.description && <p className="project-description">{project.description}</p>}
      <div className="project-facts muted num">
        {plural(project.experiments, "experiment")}
        {project.running > 0 && ` · ${project.running} running`}
        {project.last_start && (
          <>
            {" · "}
            <Time at={project.last_start} />
          </>
        )}
      </div>
    </li>
  );
}

function Room({ workspace, locked, ask }: Shared & { workspace: Workspace }) {
  const why = locked || (workspace.immutable ? "This workspace is always there." : "");
  return (
    <section>
      <header className="room-head">
        <h2 className="clip">{workspace.name}</h2>
        {workspace.archived && <Chip>archived</Chip>}
        <span className="phoneless muted num">{plural(workspace.projects.length, "project")}</span>
        <span className="grow" />
        <Tip text={locked}>
          <button type="button" disabled={Boolean(locked) || workspace.archived} onClick={() => ask({ kind: "new project", workspace })}>
            <Icon name="plus" /> New project
          </button>
        </Tip>
        <Menu
          label={<Icon name="more" />}
          name={`What to do with workspace ${workspace.name}`}
          align="right"
          className="plain"
          items={[
            { label: "Rename", disabled: why, onSelect: () => ask({ kind: "edit workspace", workspace }) },
            {
              label: workspace.archived ? "Take back from the archive" : "Archive",
              disabled: why,
              onSelect: () => void archiveWorkspace(workspace),
            },
          ]}
        />
      </header>
      {workspace.projects.length === 0 ? (
        <p className="muted">No project here yet.</p>
      ) : (
        <ul className="project-cards">
          {workspace.projects.map((project) => (
            <Card key={project.id} project={project} locked={locked} ask={ask} />
          ))}
        </ul>
      )}
    </section>
  );
}

function Asking({ asked, rooms, onClose }: { asked: Asked | undefined; rooms: Workspace[]; onClose: () => void }) {
  switch (asked?.kind) {
    case "new workspace":
      return <NewWorkspace onClose={onClose} />;
    case "new project":
      return <NewProject workspace={asked.workspace} onClose={onClose} />;
    case "edit workspace":
      return <EditWorkspace workspace={asked.workspace} onClose={onClose} />;
    case "edit project":
      return <EditProject project={asked.project} onClose={onClose} />;
    case "move project":
      return <MoveProject project={asked.project} rooms={rooms} onClose={onClose} />;
    default:
      return null;
  }
}

export default function Projects() {
  useCrumbs({ label: "Projects" });
  const [archived, setArchived] = useQueryState("archived", false, codecs.flag);
  const rooms = useGet(["projects", "all", archived], "/api/v1/workspaces", { query: { archived } });
  const [asked, ask] = useState<Asked>();
  const locked = useReadOnly();
  if (!rooms.data) return <div className="page">{rooms.error ? <ErrorNote error={rooms.error} retry={rooms.refetch} /> : <Skeleton lines={8} />}</div>;
  return (
    <div className="page">
      <div className="row projects-bar">
        <h1>Projects</h1>
        <span className="grow" />
        <label className="row muted">
          <input type="checkbox" checked={archived} onChange={(event) => setArchived(event.target.checked)} /> show archived
        </label>
        <Tip text={locked}>
          <button type="button" disabled={Boolean(locked)} onClick={() => ask({ kind: "new workspace" })}>
            <Icon name="plus" /> New workspace
          </button>
        </Tip>
      </div>
      {rooms.data.workspaces.map((workspace) => (
        <Room key={workspace.id} workspace={workspace} locked={locked} ask={ask} />
      ))}
      <Asking asked={asked} rooms={rooms.data.workspaces} onClose={() => ask(undefined)} />
    </div>
  );
}
