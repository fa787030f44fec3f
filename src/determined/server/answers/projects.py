"""Workspaces and projects."""

from __future__ import annotations

import datetime
from typing import Annotated

from pydantic import Field

from determined.server.answers.common import Answer, Question

Name = Annotated[str, Field(min_length=1, max_length=200)]


class Note(Answer):
    """A note on a project, Markdown."""

    name: str
    contents: str


class ProjectAnswer(Answer):
    """A project."""

    id: int
    workspace_id: int
    workspace: str
    name: str
    description: str
    archived: bool
    immutable: bool
    experiments: int
    running: int
    last_start: datetime.datetime | None
    created_at: datetime.datetime
    notes: list[Note]


class WorkspaceAnswer(Answer):
    """A workspace with its projects."""

    id: int
    name: str
    archived: bool
    immutable: bool
    projects: list[ProjectAnswer]


class Workspaces(Answer):
    """All workspaces."""

    workspaces: list[WorkspaceAnswer]


class NewWorkspace(Question):
    """A workspace to make."""

    name: Name


class NewProject(Question):
    """A project to make."""

    workspace_id: int
    name: Name
    description: Annotated[str, Field(max_length=10_000)] = ""


class NoteText(Question):
    """A note to keep."""

    name: Annotated[str, Field(max_length=200)]
    contents: Annotated[str, Field(max_length=200_000)]


class ProjectEdit(Question):
    """New values; fields that are left out stay."""

    name: Name | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    archived: bool | None = None
    notes: Annotated[list[NoteText], Field(max_length=100)] | None = None
    workspace_id: int | None = None  # move it there


class WorkspaceEdit(Question):
    """New values; fields that are left out stay."""

    name: Name | None = None
    archived: bool | None = None
