"""Workspaces and projects."""

from __future__ import annotations

import pytest

from determined import errors
from determined.store import experiments, workspaces
from determined.store.database.connection import Store
from tests.unit.store.rooms import add_run


def test_places_are_made_found_and_removed(store: Store) -> None:
    """Names are unique where they are; what holds experiments stays."""
    with store.write() as conn:
        home = workspaces.create_workspace(conn, "vision", {"type": "shared_fs", "host_path": "/x"})
        project = workspaces.create_project(conn, "vision", "cats", "all of them")
        assert workspaces.find_workspace(conn, "vision").checkpoint_storage == {"type": "shared_fs", "host_path": "/x"}
        assert workspaces.find_project(conn, home, "cats").id == project
        assert [row.name for row in workspaces.list_workspaces(conn)] == ["Uncategorized", "vision"]
        assert [row.name for row in workspaces.list_projects(conn, home)] == ["cats"]
        for again in (
            lambda: workspaces.create_workspace(conn, "vision"),
            lambda: workspaces.create_project(conn, home, "cats"),
        ):
            with pytest.raises(errors.Refused, match="already"):
                again()
        run = add_run(conn)
        experiments.update(conn, run.experiment_id, project_id=project)
        assert experiments.get(conn, run.experiment_id).workspace_id == home
        for remove in (
            lambda: workspaces.delete_workspace(conn, "vision"),
            lambda: workspaces.delete_project(conn, project),
        ):
            with pytest.raises(errors.Refused, match="not empty"):
                remove()
        experiments.update(conn, run.experiment_id, project_id=1)
        workspaces.update_project(conn, project, notes=[{"name": "n", "contents": "c"}])
        assert workspaces.get_project(conn, project).notes == [{"name": "n", "contents": "c"}]
        workspaces.delete_workspace(conn, "vision")
        with pytest.raises(errors.NotFound, match="det workspace ls"):
            workspaces.find_workspace(conn, "vision")
        with pytest.raises(errors.NotFound, match="det project ls"):
            workspaces.get_project(conn, project)


def test_the_first_place_stays(store: Store) -> None:
    """Platform 5.1: the first workspace and project can be neither renamed nor deleted."""
    with store.write() as conn:
        for change in (
            lambda: workspaces.update_workspace(conn, 1, name="other"),
            lambda: workspaces.delete_workspace(conn, "Uncategorized"),
            lambda: workspaces.update_project(conn, 1, name="other"),
            lambda: workspaces.delete_project(conn, 1),
        ):
            with pytest.raises(errors.Refused, match="stays"):
                change()
        with pytest.raises(errors.InvalidValue):
            workspaces.create_workspace(conn, " ")


def test_an_archived_workspace_takes_no_projects(store: Store) -> None:
    """Until it is unarchived."""
    with store.write() as conn:
        home = workspaces.create_workspace(conn, "old")
        workspaces.update_workspace(conn, home, archived=True)
        with pytest.raises(errors.Refused, match="archived"):
            workspaces.create_project(conn, home, "new")
