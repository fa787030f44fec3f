"""Workspaces and the projects in them: where experiments and models are filed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client._listing import Listing
from determined.client._session import Stored

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.client._experiment import Experiment


class _Folder(Stored):
    """What a workspace and a project have in common."""

    id: int
    name: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.name!r})"

    def set_name(self, name: str) -> None:
        """Give it another name."""
        self._change(name=name)

    def archive(self) -> None:
        """Take it out of use."""
        self._change(archived=True)

    def unarchive(self) -> None:
        """Take it back into use."""
        self._change(archived=False)


class Workspace(_Folder):
    """A workspace.

    Example::

        vision = client.create_workspace("vision")
        vision.create_project("cifar")
    """

    id: int
    name: str
    archived: bool
    created_at: datetime.datetime

    def _row(self, conn: sa.Connection) -> store.workspaces.WorkspaceRow:
        return store.workspaces.find_workspace(conn, self.id)

    def _update(self, conn: sa.Connection, fields: dict[str, Any]) -> None:
        store.workspaces.update_workspace(conn, self.id, **fields)

    def edit(self, **fields: Any) -> None:
        """Change several at once, or nothing: `name` or `archived`.

        Example::

            client.get_workspace("vision").edit(name="vision", archived=False)
        """
        self._change(**fields)

    def list_projects(self) -> Listing[Project]:
        """Return its projects, the oldest first.

        Example::

            [project.name for project in client.get_workspace("vision").list_projects()]
        """
        with self._session.read() as conn:
            return Listing(Project(self._session, row) for row in store.workspaces.list_projects(conn, self.id))

    def get_project(self, name: str) -> Project:
        """Return one of its projects."""
        with self._session.read() as conn:
            return Project(self._session, store.workspaces.find_project(conn, self.id, name))

    def create_project(self, name: str, description: str = "") -> Project:
        """Add a project.

        Example::

            client.get_workspace("vision").create_project("cifar", "ten classes")
        """
        with self._session.write() as conn:
            project_id = store.workspaces.create_project(conn, self.id, name, description)
            row = store.workspaces.get_project(conn, project_id)
        return Project(self._session, row)

    def delete(self) -> None:
        """Remove it and its projects; refused while something is filed in it."""
        with self._session.write() as conn:
            store.workspaces.delete_workspace(conn, self.id)


class Project(_Folder):
    """A project of a workspace.

    Example::

        client.get_workspace("vision").get_project("cifar").list_experiments().to_pandas()
    """

    id: int
    workspace_id: int
    name: str
    description: str
    archived: bool
    notes: list[dict[str, str]]
    created_at: datetime.datetime

    def _row(self, conn: sa.Connection) -> store.workspaces.ProjectRow:
        return store.workspaces.get_project(conn, self.id)

    def _update(self, conn: sa.Connection, fields: dict[str, Any]) -> None:
        store.workspaces.update_project(conn, self.id, **fields)

    def list_experiments(self) -> Listing[Experiment]:
        """Return the experiments that are filed here."""
        from determined.client._experiment import Experiment

        with self._session.read() as conn:
            rows = store.experiments.find(conn, store.experiments.ExperimentFilter(project_id=self.id))
        return Listing(Experiment(self._session, row) for row in rows)

    def set_description(self, description: str) -> None:
        """Describe it in a line."""
        self._change(description=description)

    def set_notes(self, notes: Sequence[Mapping[str, str]]) -> None:
        """Replace its notes: a list of names and contents, which is Markdown.

        Example::

            cifar = client.get_workspace("vision").get_project("cifar")
            cifar.set_notes([{"name": "Plan", "contents": "- try a smaller `lr`"}])
        """
        self._change(notes=[dict(note) for note in notes])

    def move(self, workspace_name: str) -> None:
        """Move it, with its experiments, to another workspace.

        Raises:
            Refused: That one has a project of its name, or is archived.

        Example::

            client.get_workspace("vision").get_project("cifar").move("vision")
        """
        with self._session.read() as conn:
            workspace = store.workspaces.find_workspace(conn, workspace_name)
        self._change(workspace_id=workspace.id)

    def edit(self, **fields: Any) -> None:
        """Change several at once, or nothing: `name`, `description`, `archived`, `notes` or `workspace_id`.

        Example::

            client.get_workspace("vision").get_project("cifar").edit(description="ten classes", archived=False)
        """
        self._change(**fields)

    def delete(self) -> None:
        """Remove it; refused while experiments are filed in it."""
        with self._session.write() as conn:
            store.workspaces.delete_project(conn, self.id)
