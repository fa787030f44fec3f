"""Workspaces and projects over the API."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import InvalidValue, NotFound, Refused
from determined.store import experiments
from tests.asking import Asker
from tests.history import History


def workspace_id(page: Asker, name: str) -> int:
    return int({home["name"]: home["id"] for home in page.get("/workspaces", archived=True)["workspaces"]}[name])


@pytest.fixture
def vision(page: Asker) -> dict[str, Any]:
    """A project in a workspace of its own."""
    page.send("POST", "/workspaces", {"name": "research"})
    asked = {"workspace_id": workspace_id(page, "research"), "name": "vision", "description": "pictures"}
    made: dict[str, Any] = page.send("POST", "/projects", asked)
    return made


def test_workspaces_with_their_projects(history: History, page: Asker, vision: dict[str, Any]) -> None:
    """Each project says how many experiments it has and how many run, without archived and deleted ones."""
    history.run(project_id=vision["id"], state="RUNNING")
    for number in range(3):
        run = history.run(project_id=vision["id"])
        with history.store.write() as conn:
            if number == 0:
                experiments.update(conn, run.experiment_id, archived=True)
            if number == 1:
                experiments.delete(conn, run.experiment_id)
    homes = page.get("/workspaces")["workspaces"]
    assert [(home["name"], home["immutable"]) for home in homes] == [("Uncategorized", True), ("research", False)]
    [project] = homes[1]["projects"]
    assert (project["experiments"], project["running"]) == (2, 1)
    assert project["last_start"] is not None
    assert page.get(f"/projects/{vision['id']}") == project
    assert homes[0]["projects"][0]["immutable"]


def test_a_project_changes(page: Asker, vision: dict[str, Any]) -> None:
    """Name, description, notes and workspace change; what is left out stays."""
    path = f"/projects/{vision['id']}"
    notes = [{"name": "Plan", "contents": "# Plan\n<script>alert(1)</script>"}]
    page.send("PATCH", path, {"name": "sight", "notes": notes})
    found = page.get(path)
    assert (found["name"], found["description"], found["notes"]) == ("sight", "pictures", notes)
    page.send("POST", "/workspaces", {"name": "products"})
    said = page.send("PATCH", path, {"workspace_id": workspace_id(page, "products"), "description": ""})["said"]
    assert said == f"Changed description, workspace of project {vision['id']}."
    assert (page.get(path)["workspace"], page.get(path)["description"]) == ("products", "")


def test_archived_ones_are_hidden(page: Asker, vision: dict[str, Any]) -> None:
    """An archived project or workspace is listed only when asked for."""
    page.send("PATCH", f"/projects/{vision['id']}", {"archived": True})
    research = page.get("/workspaces")["workspaces"][1]
    assert research["projects"] == []
    page.send("PATCH", f"/workspaces/{research['id']}", {"archived": True})
    assert [home["name"] for home in page.get("/workspaces")["workspaces"]] == ["Uncategorized"]
    assert page.get("/workspaces", archived=True)["workspaces"][1]["projects"][0]["archived"]
    with pytest.raises(Refused, match="'research' is archived"):
        page.send("POST", "/projects", {"workspace_id": research["id"], "name": "other"})


def test_names_are_not_taken_twice(page: Asker, vision: dict[str, Any]) -> None:
    """A name that is taken or blank is refused, in a sentence, also by a rename or a move."""
    page.send("POST", "/workspaces", {"name": "products"})
    products = workspace_id(page, "products")
    other = page.send("POST", "/projects", {"workspace_id": products, "name": "vision"})
    with pytest.raises(Refused, match="project 'vision' in 'products' already"):
        page.send("PATCH", f"/projects/{vision['id']}", {"workspace_id": products})
    with pytest.raises(Refused, match="workspace 'research' already"):
        page.send("PATCH", f"/workspaces/{products}", {"name": "research"})
    with pytest.raises(InvalidValue, match="not all blank"):
        page.send("PATCH", f"/projects/{other['id']}", {"name": "  "})
    page.send("PATCH", f"/workspaces/{products}", {"name": "products"})  # its own name


def test_uncategorized_stays(page: Asker) -> None:
    """The project that everything is in at first keeps its name and place, but may have notes."""
    page.send("PATCH", "/projects/1", {"notes": [{"name": "n", "contents": "c"}]})
    assert page.get("/projects/1")["notes"] == [{"name": "n", "contents": "c"}]
    with pytest.raises(Refused, match="stays as it is"):
        page.send("PATCH", "/projects/1", {"name": "mine"})
    with pytest.raises(Refused, match="stays as it is"):
        page.send("PATCH", "/workspaces/1", {"archived": True})
    with pytest.raises(NotFound, match="no project 99"):
        page.get("/projects/99")
