// Changes to projects and workspaces that are made without a form.
import { api } from "../../api";
import { plural } from "../../format";
import { act, confirm } from "../../parts";
import type { Project, Workspace } from ".";

type Named = Pick<Project, "id" | "name" | "archived" | "experiments">;

export async function archiveProject(project: Named): Promise<void> {
  const lost = `Nothing is deleted: the project and its ${plural(project.experiments, "experiment")} become read-only and are hidden from lists. It can be taken back.`;
  if (!project.archived && !(await confirm({ title: `Archive project “${project.name}”?`, lost, action: "Archive", danger: false }))) return;
  await act(() => api.patch("/api/v1/projects/{project_id}", { path: { project_id: project.id }, body: { archived: !project.archived } }));
}

export async function archiveWorkspace(workspace: Workspace): Promise<void> {
  const lost = `Nothing is deleted: the workspace and its ${plural(workspace.projects.length, "project")} become read-only and are hidden from lists. It can be taken back.`;
  if (!workspace.archived && !(await confirm({ title: `Archive workspace “${workspace.name}”?`, lost, action: "Archive", danger: false }))) return;
  await act(() =>
    api.patch("/api/v1/workspaces/{workspace_id}", { path: { workspace_id: workspace.id }, body: { archived: !workspace.archived } }),
  );
}
