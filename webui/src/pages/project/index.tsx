// One project: its experiments, its notes, and what can be done with it.
import { useState } from "react";
import type { Answer } from "../../api";
import { useGet, useReadOnly } from "../../api";
import { plural } from "../../format";
import { ThingHeader, useCrumbs } from "../../frame";
import { Chip, Empty, ErrorNote, Icon, Menu, Skeleton, Time } from "../../parts";
import type { PageProps } from "../../route";
import { RunTable } from "../../table";
import { archiveProject } from "../projects/changes";
import { EditProject, MoveProject } from "../projects/dialogs";
import "../projects/projects.css";
import { Notes } from "./notes";

export type ProjectAnswer = Answer<"/api/v1/projects/{project_id}">;

function Move({ project, onClose }: { project: ProjectAnswer; onClose: () => void }) {
  const rooms = useGet(["projects", "all", false], "/api/v1/workspaces", { query: { archived: false } });
  return rooms.data ? <MoveProject project={project} rooms={rooms.data.workspaces} onClose={onClose} /> : null;
}

function Actions({ project }: { project: ProjectAnswer }) {
  const [asked, ask] = useState<"edit" | "move">();
  const locked = useReadOnly();
  const why = locked || (project.immutable ? "This project is always there." : "");
  return (
    <>
      <Menu
        label={
          <>
            Change <Icon name="down" size={12} />
          </>
        }
        items={[
          { label: "Edit name and description", disabled: why, onSelect: () => ask("edit") },
          { label: "Move to another workspace", disabled: why, onSelect: () => ask("move") },
          { label: project.archived ? "Take back from the archive" : "Archive", disabled: why, apart: true, onSelect: () => void archiveProject(project) },
        ]}
      />
      {asked === "edit" && <EditProject project={project} onClose={() => ask(undefined)} />}
      {asked === "move" && <Move project={project} onClose={() => ask(undefined)} />}
    </>
  );
}

function Content({ project, tab }: { project: ProjectAnswer; tab: string }) {
  if (tab === "notes") return <Notes project={project} />;
  if (project.experiments === 0) {
    return (
      <Empty command={`det experiment create experiment.yaml . --project-id ${project.id}`}>
        Nothing in this project yet. Move experiments here from their table, or submit one into it:
      </Empty>
    );
  }
  const kind = tab === "runs" ? "trials" : "experiments";
  return <RunTable key={kind} kind={kind} projectId={project.id} />;
}

const tabs = [
  { key: "experiments", label: "Experiments" },
  { key: "runs", label: "Runs" },
  { key: "notes", label: "Notes" },
];

export default function Project({ params }: PageProps) {
  const id = Number(params.id);
  const found = useGet(["projects", id], "/api/v1/projects/{project_id}", { path: { project_id: id } });
  const project = found.data;
  useCrumbs({ label: "Projects", to: "/projects" }, { label: project?.name ?? `Project ${id}` });
  if (!project) return <div className="page">{found.error ? <ErrorNote error={found.error} retry={found.refetch} /> : <Skeleton />}</div>;
  const tab = params.tab ?? "experiments";
  return (
    <div className="page">
      <ThingHeader
        title={project.name}
        id={project.id}
        facts={
          <>
            {project.archived && <Chip>archived</Chip>}
            <span className="muted">in {project.workspace}</span>
            <span className="project-about clip" title={project.description}>
              {project.description}
            </span>
          </>
        }
        actions={<Actions project={project} />}
        aside={
          <>
            {plural(project.experiments, "experiment")}
            {project.running > 0 && `, ${project.running} running`} · created <Time at={project.created_at} />
          </>
        }
        tabs={tabs.map((one) => (one.key === "notes" && project.notes.length ? { ...one, label: `Notes (${project.notes.length})` } : one))}
        current={tab}
        to={(key) => (key === "experiments" ? `/projects/${id}` : `/projects/${id}/${key}`)}
      />
      <Content project={project} tab={tab} />
    </div>
  );
}
