"""The page shows a store of PostgreSQL as it shows a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.history import History
from tests.pages import PageApp
from tests.running import Search

ROWS = {"columns": ["run.name", "run.state", "hparams.lr", "metrics.validation.loss.min"], "sort": ["hparams.lr"]}


@pytest.fixture
def page(store_place: Any, tmp_path: Path) -> Iterator[PageApp]:
    """The app on a store with a search, a run that was started by hand, a checkpoint, a log and a model."""
    with History(tmp_path, store_place) as history:
        search = Search(history, "adaptive_asha")
        for lr in (0.1, 0.01):
            run = search.start(search.queue(lr=lr, kind="a" if lr > 0.05 else "b"))
            history.report(run, "training", {step: lr / step for step in range(1, 20)})
            history.report(run, "validation", {10: lr, 20: lr / 2})
            history.log(run, ["INFO: one", "WARNING: two"])
            search.end(run)
        history.run("by hand", hparams={"lr": 0.5}, validation={5: 0.9, 9: float("nan")}, checkpoints=[5])
        app = PageApp(history.place)
        yield app
        app.close()


def test_every_question_is_answered(page: PageApp) -> None:
    """Each route that only reads answers, on SQLite and on PostgreSQL."""
    uuid = page.get("/api/v1/checkpoints?trial_id=3").json()["checkpoints"][0]["uuid"]
    made = page.ask("POST", f"/api/v1/checkpoints/{uuid}/register", json={"model": "digits", "create": True})
    assert made.status_code == 200, made.text
    paths = [
        "about", "home", "queue", "search?q=hand", "workspaces", "projects/1", "models", "models/1", "tensorboards",
        "tables/experiments/columns", "tables/trials/columns", "tables/trials/sparks?ids=1,2,3",
        "experiments/1", "experiments/1/events", "experiments/1/config", "experiments/1/curves", "experiments/1/search",
        "experiments/1/rungs", "experiments/1/code", "experiments/1/draft", "experiments/2", "experiments/2/curves",
        "trials/1", "trials/1/reports", "trials/1/timeline", "trials/1/logs", "trials/1/logs/info",
        "trials/1/logs/matches?text=two", "trials/1/logs?level=WARNING&regex=t.o", "trials/3", "trials/3/reports",
        "series?trials=1,2,3", "curves?trials=1,2,3&series=validation:loss&series=training:loss&first=2&last=15",
        "curves/csv?trials=1&series=training:loss", "compare?trials=1,2,3", "compare?experiments=1,2",
        "checkpoints?experiment_id=2", f"checkpoints/{uuid}",
    ]  # fmt: skip
    refused = {path: (found.status_code, found.text[:200]) for path in paths
               if (found := page.get(f"/api/v1/{path}")).status_code != 200}  # fmt: skip
    assert refused == {}


def test_tables_answer_alike(page: PageApp) -> None:
    """Rows are sorted, filtered and searched; a value that is missing comes last."""
    found = page.ask("POST", "/api/v1/tables/trials/rows", json=ROWS).json()
    assert [row["cells"][2] for row in found["rows"]] == [0.01, 0.1, 0.5]
    low = {"all_of": [{"column": "hparams.lr", "operator": "<", "value": 0.2}]}
    found = page.ask("POST", "/api/v1/tables/trials/rows", json={**ROWS, "filter": low}).json()
    assert [row["id"] for row in found["rows"]] == [2, 1]
    found = page.ask("POST", "/api/v1/tables/experiments/rows", json={**ROWS, "search": "hand"}).json()
    assert [row["cells"][0] for row in found["rows"]] == ["by hand"]
    assert "NaN" not in json.dumps(found)  # the least value of a curve with a NaN is a number
