"""What the search box finds: experiments, trials, models and projects, by id or by a part of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from determined import store
from determined.client import Determined
from determined.server.answers.overview import Hit
from determined.server.answers.tables import Condition, Group, TableQuestion

if TYPE_CHECKING:
    from determined.server.run_index.index import RunIndex

MOST_HITS = 30
MOST_OF_A_KIND = 10
COLUMNS = ["run.name", "run.owner", "run.project", "run.archived"]


def hits(client: Determined, index: RunIndex, text: str) -> list[Hit]:
    """Return what is found, the nearest first: ids, then equal names, then beginnings, then parts, the newest first."""
    wanted = text.strip()
    if not wanted:
        return []
    found = [*_by_id(index, wanted), *_experiments(index, wanted), *_models(client, wanted), *_projects(client, wanted)]
    ranked = sorted(found, key=lambda hit: _distance(hit, wanted))
    return list({(hit.kind, hit.id): hit for hit in ranked}.values())[:MOST_HITS]


def _distance(hit: Hit, wanted: str) -> int:
    name, part = hit.name.casefold(), wanted.casefold()
    if str(hit.id) == _digits(wanted):
        return 0
    return 1 if name == part else 2 if name.startswith(part) else 3


def _digits(wanted: str) -> str:
    digits = wanted.removeprefix("#")
    return digits if digits.isascii() and digits.isdigit() and len(digits) < 16 else ""


def _by_id(index: RunIndex, wanted: str) -> list[Hit]:
    if not (digits := _digits(wanted)):
        return []
    asked = TableQuestion(columns=COLUMNS, ids=[int(digits)], archived=True)
    trials = index.rows("trials", asked)["rows"]
    return [_experiment(row) for row in index.rows("experiments", asked)["rows"]] + [
        Hit(kind="trial", id=row["id"], name=row["cells"][0], state=row["state"], detail=f"Trial {row['id']}")
        for row in trials
    ]


def _experiments(index: RunIndex, wanted: str) -> list[Hit]:
    found = []
    for operator in ("is", "contains"):
        named = Condition.model_validate({"column": "run.name", "operator": operator, "value": wanted})
        asked = TableQuestion(columns=COLUMNS, filter=Group(all_of=[named]), limit=MOST_OF_A_KIND, archived=True)
        found += [_experiment(row) for row in index.rows("experiments", asked)["rows"]]
    return found


def _experiment(row: dict[str, Any]) -> Hit:
    name, owner, project, archived = row["cells"]
    detail = f"Experiment {row['id']}, {owner}, {project}{', archived' if archived else ''}"
    return Hit(kind="experiment", id=row["id"], name=name, state=row["state"], detail=detail)


def _models(client: Determined, wanted: str) -> list[Hit]:
    with client._session.read() as conn:
        found = store.models.find(conn, name=wanted, sort_by="id", descending=True)
    return [
        Hit(
            kind="model",
            id=model.id,
            name=model.name,
            state=None,
            detail=f"Model, {model.num_versions} version{'' if model.num_versions == 1 else 's'}",
        )
        for model in found[:MOST_OF_A_KIND]
    ]


def _projects(client: Determined, wanted: str) -> list[Hit]:
    with client._session.read() as conn:
        names = {workspace.id: workspace.name for workspace in store.workspaces.list_workspaces(conn)}
        projects = store.workspaces.list_projects(conn)
    found = [project for project in reversed(projects) if wanted.casefold() in project.name.casefold()]
    return [
        Hit(
            kind="project",
            id=project.id,
            name=project.name,
            state=None,
            detail=f"Project in {names[project.workspace_id]}",
        )
        for project in found[:MOST_OF_A_KIND]
    ]
