"""Workspaces and projects."""

from __future__ import annotations

from fastapi import APIRouter

from determined.server.answers.common import Done
from determined.server.answers.projects import (
    NewProject,
    NewWorkspace,
    ProjectAnswer,
    ProjectEdit,
    WorkspaceEdit,
    Workspaces,
)
from determined.server.depends import Client
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["projects"])


@router.get("/workspaces", **READS)
def workspaces(client: Client, archived: bool = False) -> Workspaces:
    """Return all workspaces with their projects."""
    raise NotImplementedError


@router.post("/workspaces", **CHANGES)
def create_workspace(client: Client, asked: NewWorkspace) -> Done:
    """Make a workspace."""
    raise NotImplementedError


@router.patch("/workspaces/{workspace_id}", **CHANGES)
def edit_workspace(client: Client, workspace_id: int, change: WorkspaceEdit) -> Done:
    """Rename or archive a workspace."""
    raise NotImplementedError


@router.post("/projects", **CHANGES)
def create_project(client: Client, asked: NewProject) -> ProjectAnswer:
    """Make a project."""
    raise NotImplementedError


@router.get("/projects/{project_id}", **READS)
def project(client: Client, project_id: int) -> ProjectAnswer:
    """Return a project."""
    raise NotImplementedError


@router.patch("/projects/{project_id}", **CHANGES)
def edit_project(client: Client, project_id: int, change: ProjectEdit) -> Done:
    """Change, move or archive a project, or its notes."""
    raise NotImplementedError
