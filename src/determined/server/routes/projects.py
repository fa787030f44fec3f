"""Workspaces and projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from determined import store
from determined.server.answers.common import Done
from determined.server.answers.projects import (
    NewProject,
    NewWorkspace,
    Note,
    ProjectAnswer,
    ProjectEdit,
    WorkspaceAnswer,
    WorkspaceEdit,
    Workspaces,
)
from determined.server.depends import Client
from determined.server.rules import CHANGES, READS
from determined.store.workspaces import Activity, ProjectRow, WorkspaceRow

if TYPE_CHECKING:
    import sqlalchemy as sa

router = APIRouter(tags=["projects"])

UNCATEGORIZED = 1
NOTHING = Activity(0, 0, None)


@router.get("/workspaces", **READS)
def workspaces(client: Client, archived: bool = False) -> Workspaces:
    """Return all workspaces with their projects."""
    with client._session.read() as conn:
        activity = store.workspaces.activity(conn)
        homes = [home for home in store.workspaces.list_workspaces(conn) if archived or not home.archived]
        inside: dict[int, list[ProjectRow]] = {home.id: [] for home in homes}
        for project in store.workspaces.list_projects(conn):
            if project.workspace_id in inside and (archived or not project.archived):
                inside[project.workspace_id].append(project)
    return Workspaces(
        workspaces=[
            WorkspaceAnswer(
                id=home.id,
                name=home.name,
                archived=home.archived,
                immutable=home.immutable,
                projects=[_answer(each, home, activity.get(each.id, NOTHING)) for each in inside[home.id]],
            )
            for home in homes
        ]
    )


@router.post("/workspaces", **CHANGES)
def create_workspace(client: Client, asked: NewWorkspace) -> Done:
    """Make a workspace."""
    made = client.create_workspace(asked.name)
    return Done(said=f"Made workspace {made.name}.")


@router.patch("/workspaces/{workspace_id}", **CHANGES)
def edit_workspace(client: Client, workspace_id: int, change: WorkspaceEdit) -> Done:
    """Rename or archive a workspace."""
    given = change.model_dump(exclude_none=True)
    client.get_workspace(workspace_id).edit(**given)
    return Done(said=f"Changed {', '.join(given) or 'nothing'} of workspace {workspace_id}.")


@router.post("/projects", **CHANGES)
def create_project(client: Client, asked: NewProject) -> ProjectAnswer:
    """Make a project."""
    made = client.get_workspace(asked.workspace_id).create_project(asked.name, asked.description)
    return project(client, made.id)


@router.get("/projects/{project_id}", **READS)
def project(client: Client, project_id: int) -> ProjectAnswer:
    """Return a project."""
    with client._session.read() as conn:
        return _read(conn, project_id)


@router.patch("/projects/{project_id}", **CHANGES)
def edit_project(client: Client, project_id: int, change: ProjectEdit) -> Done:
    """Change, move or archive a project, or its notes."""
    given = change.model_dump(exclude_none=True)
    client.get_project(project_id).edit(**given)
    words = ", ".join("workspace" if name == "workspace_id" else name for name in given)
    return Done(said=f"Changed {words or 'nothing'} of project {project_id}.")


def _read(conn: sa.Connection, project_id: int) -> ProjectAnswer:
    found = store.workspaces.get_project(conn, project_id)
    home = store.workspaces.find_workspace(conn, found.workspace_id)
    return _answer(found, home, store.workspaces.activity(conn).get(found.id, NOTHING))


def _answer(project: ProjectRow, home: WorkspaceRow, activity: Activity) -> ProjectAnswer:
    return ProjectAnswer(
        id=project.id,
        workspace_id=home.id,
        workspace=home.name,
        name=project.name,
        description=project.description,
        archived=project.archived,
        immutable=project.id == UNCATEGORIZED,
        experiments=activity.experiments,
        running=activity.running,
        last_start=activity.last_start,
        created_at=project.created_at,
        notes=[Note(name=note.get("name", ""), contents=note.get("contents", "")) for note in project.notes],
    )
