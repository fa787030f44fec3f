"""Workspaces and the projects in them: where experiments and models are filed."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client._listing import Listing
from determined.client._session import Session

if TYPE_CHECKING:
    from determined.client._experiment import Experiment


class _Folder:
    """What a workspace and a project have in common."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def set_name(self, name: str) -> None:
        """Give it another name."""
        self._change(name=name)

    def archive(self) -> None:
        """Take it out of use."""
        self._change(archived=True)

    def unarchive(self) -> None:
        """Take it back into use."""
        self._change(archived=False)

    def _change(self, **fields: Any) -> None:
        raise NotImplementedError


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

    def __init__(self, session: Session, row: store.workspaces.WorkspaceRow) -> None:
        self._session = session
        self._take(row)

    def _take(self, row: store.workspaces.WorkspaceRow) -> None:
        self.id, self.name, self.archived, self.created_at = row.id, row.name, row.archived, row.created_at

    def __repr__(self) -> str:
        return f"Workspace({self.id}, {self.name!r})"

    def reload(self) -> None:
        """Read the fields again."""
        with self._session.read() as conn:
            self._take(store.workspaces.find_workspace(conn, self.id))

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

    def _change(self, **fields: Any) -> None:
        with self._session.write() as conn:
            store.workspaces.update_workspace(conn, self.id, **fields)
            row = store.workspaces.find_workspace(conn, self.id)
        self._take(row)

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
    created_at: datetime.datetime

    def __init__(self, session: Session, row: store.workspaces.ProjectRow) -> None:
        self._session = session
        self._take(row)

    def _take(self, row: store.workspaces.ProjectRow) -> None:
        self.id, self.workspace_id, self.name = row.id, row.workspace_id, row.name
        self.description, self.archived, self.created_at = row.description, row.archived, row.created_at

    def __repr__(self) -> str:
        return f"Project({self.id}, {self.name!r})"

    def list_experiments(self) -> Listing[Experiment]:
        """Return the experiments that are filed here."""
        from determined.client._experiment import Experiment

        with self._session.read() as conn:
            rows = store.experiments.find(conn, store.experiments.ExperimentFilter(project_id=self.id))
        return Listing(Experiment(self._session, row) for row in rows)

    def set_description(self, description: str) -> None:
        """Describe it in a line."""
        self._change(description=description)

    def _change(self, **fields: Any) -> None:
        with self._session.write() as conn:
            store.workspaces.update_project(conn, self.id, **fields)
            row = store.workspaces.get_project(conn, self.id)
        self._take(row)

    def delete(self) -> None:
        """Remove it; refused while experiments are filed in it."""
        with self._session.write() as conn:
            store.workspaces.delete_project(conn, self.id)
