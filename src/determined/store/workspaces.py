"""Workspaces and the projects in them: where experiments are filed."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined.store import rows
from determined.store.messages import now
from determined.store.schema import experiments, models, projects, workspaces

_WORKSPACES = "det workspace ls"
_PROJECTS = "det project ls <workspace>"


@dataclasses.dataclass(frozen=True)
class WorkspaceRow:
    """A workspace."""

    id: int
    name: str
    archived: bool
    immutable: bool
    checkpoint_storage: dict[str, Any] | None
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True)
class ProjectRow:
    """A project."""

    id: int
    workspace_id: int
    name: str
    description: str
    key: str | None
    archived: bool
    notes: list[dict[str, str]]
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True)
class Activity:
    """What a project holds: experiments that are neither hidden nor archived."""

    experiments: int
    running: int
    last_start: datetime.datetime | None


def list_workspaces(conn: sa.Connection) -> list[WorkspaceRow]:
    """Return all workspaces, the oldest first."""
    return [WorkspaceRow(**row) for row in conn.execute(sa.select(workspaces).order_by(workspaces.c.id)).mappings()]


def find_workspace(conn: sa.Connection, name: str | int) -> WorkspaceRow:
    """Return one workspace, by its name or its id."""
    column = workspaces.c.id if isinstance(name, int) else workspaces.c.name
    row = conn.execute(sa.select(workspaces).where(column == name)).mappings().one_or_none()
    return WorkspaceRow(**rows.required(row, "workspace", name, _WORKSPACES))


def create_workspace(conn: sa.Connection, name: str, checkpoint_storage: dict[str, Any] | None = None) -> int:
    """Add a workspace and return its id."""
    _check_name(name)
    if conn.scalar(sa.select(workspaces.c.id).where(workspaces.c.name == name)):
        raise errors.Refused(f"There is a workspace {name!r} already.")
    row: dict[str, Any] = {"name": name, "checkpoint_storage": checkpoint_storage, "created_at": now()}
    return rows.insert(conn, workspaces, row)


def update_workspace(conn: sa.Connection, workspace_id: int, **fields: Any) -> None:
    """Set `name`, `archived` or `checkpoint_storage`."""
    rows.check_fields("a workspace", fields, frozenset({"name", "archived", "checkpoint_storage"}))
    _refuse_immutable(conn, workspace_id)
    if not fields:
        return
    if "name" in fields:
        _check_name(fields["name"])
        same = sa.select(workspaces.c.id).where(workspaces.c.name == fields["name"], workspaces.c.id != workspace_id)
        if conn.scalar(same):
            raise errors.Refused(f"There is a workspace {fields['name']!r} already.")
    conn.execute(workspaces.update().where(workspaces.c.id == workspace_id).values(fields))


def delete_workspace(conn: sa.Connection, name: str | int) -> None:
    """Remove a workspace and its projects; refused while experiments or models are in it, hidden ones too."""
    found = find_workspace(conn, name)
    _refuse_immutable(conn, found.id)
    inside = sa.select(experiments.c.id).join(projects).where(projects.c.workspace_id == found.id)
    filed = sa.select(models.c.id).where(models.c.workspace_id == found.id)
    if conn.execute(inside.limit(1)).first() or conn.execute(filed.limit(1)).first():
        raise errors.Refused(f"Workspace {found.name!r} is not empty. Move or delete its experiments and models first.")
    conn.execute(workspaces.delete().where(workspaces.c.id == found.id))


def list_projects(conn: sa.Connection, workspace_id: int | None = None) -> list[ProjectRow]:
    """Return the projects of a workspace, or all, the oldest first."""
    query = sa.select(projects).order_by(projects.c.id)
    if workspace_id is not None:
        query = query.where(projects.c.workspace_id == workspace_id)
    return [ProjectRow(**row) for row in conn.execute(query).mappings()]


def get_project(conn: sa.Connection, project_id: int) -> ProjectRow:
    """Return one project by its id."""
    row = conn.execute(sa.select(projects).where(projects.c.id == project_id)).mappings().one_or_none()
    return ProjectRow(**rows.required(row, "project", project_id, _PROJECTS))


def find_project(conn: sa.Connection, workspace: str | int, name: str) -> ProjectRow:
    """Return one project by its name in a workspace."""
    home = find_workspace(conn, workspace)
    query = sa.select(projects).where(projects.c.workspace_id == home.id, projects.c.name == name)
    row = conn.execute(query).mappings().one_or_none()
    return ProjectRow(**rows.required(row, f"project in {home.name} called", repr(name), _PROJECTS))


def create_project(conn: sa.Connection, workspace: str | int, name: str, description: str = "") -> int:
    """Add a project to a workspace and return its id."""
    _check_name(name)
    home = find_workspace(conn, workspace)
    _refuse_taken(conn, home, name)
    row = {"workspace_id": home.id, "name": name, "description": description, "created_at": now()}
    return rows.insert(conn, projects, row)


def update_project(conn: sa.Connection, project_id: int, **fields: Any) -> None:
    """Set `name`, `description`, `key`, `archived`, `notes` or `workspace_id`.

    Raises:
        Refused: There is a project of that name in the workspace, that workspace is archived, or it is Uncategorized,
            of which only the notes change.
    """
    known = frozenset({"name", "description", "key", "archived", "notes", "workspace_id"})
    rows.check_fields("a project", fields, known)
    project = get_project(conn, project_id)
    if project_id == 1 and fields.keys() - {"notes"}:
        raise errors.Refused("The project Uncategorized stays as it is.")
    if "name" in fields:
        _check_name(fields["name"])
    name, home = fields.get("name", project.name), fields.get("workspace_id", project.workspace_id)
    if (name, home) != (project.name, project.workspace_id):
        _refuse_taken(conn, find_workspace(conn, int(home)), name)
    if "notes" in fields:
        _check_notes(fields["notes"])
    if fields:
        conn.execute(projects.update().where(projects.c.id == project_id).values(fields))


def activity(conn: sa.Connection) -> dict[int, Activity]:
    """Return what each project holds that holds anything."""
    column = experiments.c
    runs = sa.func.sum(sa.case((column.state.in_(("ACTIVE", "RUNNING")), 1), else_=0))
    query = (
        sa.select(column.project_id, sa.func.count(), runs, sa.func.max(column.start_time))
        .where(column.deleted_at.is_(None), column.archived.is_(False))
        .group_by(column.project_id)
    )
    return {ident: Activity(number, int(running), last) for ident, number, running, last in conn.execute(query)}


def delete_project(conn: sa.Connection, project_id: int) -> None:
    """Remove a project; refused while experiments are in it, hidden ones too."""
    found = get_project(conn, project_id)
    if project_id == 1:
        raise errors.Refused("The project Uncategorized stays.")
    if conn.execute(sa.select(experiments.c.id).where(experiments.c.project_id == project_id).limit(1)).first():
        raise errors.Refused(f"Project {found.name!r} is not empty. Move or delete its experiments first.")
    conn.execute(projects.delete().where(projects.c.id == project_id))


def _refuse_immutable(conn: sa.Connection, workspace_id: int) -> None:
    found = find_workspace(conn, workspace_id)
    if found.immutable:
        raise errors.Refused(f"Workspace {found.name!r} stays as it is.")


def _refuse_taken(conn: sa.Connection, home: WorkspaceRow, name: str) -> None:
    """Refuse to put a project into a workspace that has one of this name, or is archived."""
    if home.archived:
        raise errors.Refused(f"Workspace {home.name!r} is archived. Unarchive it first.")
    same = (projects.c.workspace_id == home.id, projects.c.name == name)
    if conn.scalar(sa.select(projects.c.id).where(*same)):
        raise errors.Refused(f"There is a project {name!r} in {home.name!r} already.")


def _check_notes(notes: Any) -> None:
    is_fine = isinstance(notes, list) and all(
        isinstance(note, dict)
        and note.keys() == {"name", "contents"}
        and all(isinstance(text, str) for text in note.values())
        for note in notes
    )
    if not is_fine:
        raise errors.InvalidValue(f"Notes are a list of {{'name': ..., 'contents': ...}}, not {str(notes)[:100]}.")


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > 80:
        raise errors.InvalidValue(f"A name has 1 to 80 characters that are not all blank; {name[:90]!r} does not.")
