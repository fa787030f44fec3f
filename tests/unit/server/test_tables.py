"""The table of experiments and the flat table of trials, over the API."""

from __future__ import annotations

import math
from typing import Any

import pytest

from determined.errors import InvalidValue
from determined.store import experiments, trials, workspaces
from tests.asking import Asker
from tests.history import History, Run


class Tables:
    """Asks for tables in few words."""

    def __init__(self, page: Asker) -> None:
        self._page = page

    def rows(self, *columns: str, kind: str = "experiments", **what: Any) -> dict[str, Any]:
        asked = {"columns": list(columns), **what}
        found: dict[str, Any] = self._page.send("POST", f"/tables/{kind}/rows", asked)
        assert not found["is_rough"] or all(key.startswith("run.") for key in asked.get("sort", []))
        return found

    def cells(self, *columns: str, **what: Any) -> list[Any]:
        """Rows of cells; of one column, cells."""
        rows = [row["cells"] for row in self.rows(*columns, **what)["rows"]]
        return [row[0] for row in rows] if len(columns) == 1 else rows

    def ids(self, **what: Any) -> list[int]:
        return [row["id"] for row in self.rows("run.id", **what)["rows"]]

    def filtered(self, column: str, operator: str, value: Any = None, **what: Any) -> list[int]:
        """Ids that fit one condition, in order."""
        condition = {"column": column, "operator": operator, "value": value}
        return self.ids(filter={"all_of": [condition]}, sort=["run.id"], **what)

    def columns(self, kind: str = "experiments", **where: Any) -> dict[str, dict[str, Any]]:
        found = self._page.get(f"/tables/{kind}/columns", **where)
        return {column["key"]: column for column in found["columns"]}


@pytest.fixture
def tables(page: Asker) -> Tables:
    return Tables(page)


def edit(history: History, run: Run, **fields: Any) -> None:
    with history.store.write() as conn:
        experiments.update(conn, run.experiment_id, **fields)


def forget_time(page: Asker) -> None:
    """Let edits that leave no rows be looked for now instead of in a moment."""
    page.app.state.run_index.tell_edit()


def test_rows_have_what_the_columns_promise(history: History, tables: Tables) -> None:
    """The first page is the newest runs; cells stand in the order asked, with nothing where a run has no value."""
    history.run("first", hparams={"lr": 0.1, "net": {"depth": 3}}, validation={10: 0.9, 20: 0.7}, labels=["b", "a"])
    history.run("second", hparams={"lr": 0.2}, state="ERROR", owner="bob", description="again")
    found = tables.rows("run.name", "run.state", "hparams.lr", "hparams.net.depth", "run.labels", "run.best_metric")
    assert found["total"] == 2
    assert [row["cells"] for row in found["rows"]] == [
        ["second", "ERROR", 0.2, None, None, None],
        ["first", "COMPLETED", 0.1, 3, ["a", "b"], 0.7],
    ]
    first = found["rows"][1]
    assert (first["id"], first["experiment_id"], first["trial_id"]) == (1, 1, 1)
    assert first["unmanaged"]
    assert not first["archived"]
    columns = tables.columns()
    assert columns["run.start_time"]["type"] == "time"
    assert columns["run.start_time"]["is_shown"]
    assert columns["hparams.lr"]["type"] == "number"
    assert "<" in columns["hparams.lr"]["operators"]
    assert columns["metrics.validation.loss.min"]["section"] == "metrics"
    assert tables.cells("metrics.validation.loss.last", "metrics.validation.loss.max", search="first") == [[0.7, 0.9]]


def test_an_experiment_shows_its_best_trial(history: History, tables: Tables) -> None:
    """Hyperparameters and metrics of an experiment are those of its best trial; of trials, each one's own."""
    search = history.experiment("search", smaller_is_better=False, config={"searcher": {"name": "random"}})
    for lr, accuracy in ((0.1, 0.5), (0.2, 0.9), (0.3, 0.7)):
        history.trial(search, hparams={"lr": lr}, validation={5: accuracy})
    assert tables.cells("hparams.lr", "run.best_metric", "run.trials", "run.searcher") == [[0.2, 0.9, 3, "random"]]
    asked = {"kind": "trials", "sort": ["run.id"]}
    assert tables.cells("hparams.lr", "run.best_metric", "run.experiment_id", "run.name", **asked) == [
        [0.1, 0.5, search, "search"],
        [0.2, 0.9, search, "search"],
        [0.3, 0.7, search, "search"],
    ]
    assert tables.rows("run.best_metric", kind="trials")["best"] == {"run.best_metric": 2}
    assert tables.columns("trials", experiment_id=search)["hparams.lr"]["is_shown"]
    assert tables.ids(kind="trials", experiment_id=search + 1) == []


def test_archived_is_hidden_and_deleted_never_shown(history: History, tables: Tables, page: Asker) -> None:
    """P-81: archived ones are shown only when asked for; deleted ones never, in no table."""
    shown, archived, deleted = (history.run(name) for name in ("shown", "archived", "deleted"))
    assert tables.ids() == [3, 2, 1]
    edit(history, archived, archived=True)
    with history.store.write() as conn:
        experiments.delete(conn, deleted.experiment_id)
    forget_time(page)
    for kind in ("experiments", "trials"):
        assert tables.ids(kind=kind) == [shown.experiment_id]
        assert tables.ids(kind=kind, archived=True) == [archived.experiment_id, shown.experiment_id]
    with history.store.write() as conn:
        experiments.undelete(conn, deleted.experiment_id)
    assert tables.ids(kind="trials") == [deleted.trial_id, shown.trial_id]


def test_what_changes_is_seen(history: History, tables: Tables, page: Asker) -> None:
    """New runs and reports, ends, names, labels and metadata show up in the next answers."""
    run = history.run("old", state="RUNNING", validation={1: 0.5})
    columns = ("run.name", "run.state", "run.labels", "metadata.note", "metrics.validation.loss.last")
    assert tables.cells(*columns, sort=["run.id"]) == [["old", "RUNNING", None, None, 0.5]]
    history.report(run, "validation", {2: 0.25})
    assert tables.cells("metrics.validation.loss.last") == [0.25]
    history.end(run, "COMPLETED")
    history.run("other")
    assert tables.cells("run.state") == ["COMPLETED", "COMPLETED"]
    with history.store.write() as conn:
        experiments.update(conn, run.experiment_id, name="new")
        experiments.set_labels(conn, run.experiment_id, ["x"])
        trials.set_metadata(conn, run.trial_id, {"note": "good"})
    forget_time(page)
    assert tables.cells(*columns, sort=["run.id"])[0] == ["new", "COMPLETED", ["x"], "good", 0.25]


def test_states_are_those_that_people_see(history: History, tables: Tables) -> None:
    """A run that waits for slots is QUEUED, one that trains RUNNING; ACTIVE finds both."""
    waits = history.experiment("waits", unmanaged=False, state="ACTIVE")
    runs = history.experiment("runs", unmanaged=False, state="ACTIVE")
    trial = history.trial(runs, state="RUNNING")
    with history.store.write() as conn:
        trials.set_state(conn, trial.trial_id, "ACTIVE")
    history.run("done")
    assert tables.cells("run.name", "run.state", sort=["run.id"]) == [
        ["waits", "QUEUED"],
        ["runs", "RUNNING"],
        ["done", "COMPLETED"],
    ]
    assert tables.filtered("run.state", "is", "ACTIVE") == [waits, runs]
    assert tables.filtered("run.state", "is", "running") == [runs]
    assert tables.filtered("run.state", "is not", "RUNNING") == [waits, 3]
    assert tables.cells("run.state", kind="trials", experiment_id=runs) == ["RUNNING"]


def test_missing_values_are_last_either_way(history: History, tables: Tables) -> None:
    """Rows without a value come last in both directions, NaN before them; ties are in the order of ids."""
    for lr in (0.3, None, 0.1, math.nan, 0.1, -math.inf):
        history.run(hparams={} if lr is None else {"lr": lr})
    assert tables.ids(sort=["hparams.lr"]) == [6, 3, 5, 1, 4, 2]
    assert tables.ids(sort=["-hparams.lr"]) == [1, 3, 5, 6, 4, 2]
    assert tables.ids(sort=["-hparams.lr", "-run.id"]) == [1, 5, 3, 6, 4, 2]
    assert tables.cells("hparams.lr", sort=["hparams.lr"]) == ["-Infinity", 0.1, 0.1, 0.3, "NaN", None]
    assert tables.rows("hparams.lr", sort=["hparams.lr"])["ranges"] == {"hparams.lr": {"low": 0.1, "high": 0.3}}


def test_filters_fit_the_type_of_a_column(history: History, tables: Tables) -> None:
    """Numbers, texts, times, flags and labels each have their own operators."""
    history.run("Alpha", hparams={"lr": 0.1, "opt": "Adam", "amp": True}, labels=["vision", "first"])
    history.run("beta", hparams={"lr": 0.01, "opt": "sgd", "amp": False})
    history.run("gamma", hparams={"opt": 3})
    assert tables.filtered("hparams.lr", "<", 0.05) == [2]
    assert tables.filtered("hparams.lr", ">=", "0.01") == [1, 2]
    assert tables.filtered("hparams.lr", "is", 0.1) == [1]
    assert tables.filtered("hparams.lr", "is not", 0.1) == [2, 3]
    assert tables.filtered("hparams.lr", "is empty") == [3]
    assert tables.filtered("run.name", "contains", "ALPH") == [1]
    assert tables.filtered("run.name", "does not contain", "a") == []
    assert tables.filtered("hparams.opt", "is", "sgd") == [2]
    assert tables.filtered("hparams.opt", "is", "3") == [3]
    assert tables.filtered("hparams.opt", ">", 2) == [3]
    assert tables.filtered("hparams.amp", "is", True) == [1]
    assert tables.filtered("hparams.amp", "is", "false") == [2]
    assert tables.filtered("run.labels", "contains", "VIS") == [1]
    assert tables.filtered("run.labels", "is", "vision") == [1]
    assert tables.filtered("run.labels", "is empty") == [2, 3]
    start = tables.cells("run.start_time", ids=[2])[0]
    assert tables.filtered("run.start_time", "before", start) == [1]
    assert tables.filtered("run.start_time", "after", start) == [3]
    assert tables.filtered("run.start_time", "after", "2025-12-31") == [1, 2, 3]
    assert tables.filtered("run.duration", ">", 0) == [1, 2, 3]
    assert tables.filtered("run.archived", "is", False) == [1, 2, 3]


def test_groups_of_conditions(history: History, tables: Tables) -> None:
    """All of one group and any of another; an empty group holds for every row."""
    for lr, depth in ((0.1, 1), (0.2, 2), (0.3, 3)):
        history.run(hparams={"lr": lr, "depth": depth})
    low = {"column": "hparams.lr", "operator": "<", "value": 0.15}
    deep = {"column": "hparams.depth", "operator": ">", "value": 2}
    middle = {"column": "run.id", "operator": "is", "value": 2}
    assert tables.ids(filter={"any_of": [low, deep]}) == [3, 1]
    assert tables.ids(
        filter={"all_of": [{"any_of": [low, middle]}, {"column": "run.id", "operator": ">", "value": 1}]}
    ) == [2]
    assert tables.ids(filter={}) == tables.ids(filter={"any_of": []}) == [3, 2, 1]
    deepest = {"all_of": [{"all_of": [{"any_of": [low]}]}]}
    assert tables.ids(filter=deepest) == [1]
    with pytest.raises(InvalidValue, match="more than 3 deep"):
        tables.ids(filter={"all_of": [deepest]})
    with pytest.raises(InvalidValue, match="2500 conditions; 200 are allowed"):
        tables.ids(filter={"all_of": [{"any_of": [low] * 50}] * 50})


def test_the_search_box_of_a_table(history: History, tables: Tables) -> None:
    """A text is looked for in names, descriptions and labels, whatever its case; a number is also an id."""
    history.run("resnet", description="deep one", labels=["Vision"])
    history.run("mlp 1")
    history.run("cnn")
    assert tables.ids(search="RES") == tables.ids(search="deep") == tables.ids(search="vision") == [1]
    assert tables.ids(search="1") == [2, 1]
    assert tables.ids(search="#3") == [3]
    assert tables.ids(search="resnet", kind="trials") == [1]
    assert tables.ids(search="nothing like it") == []


def test_rows_of_a_project(history: History, tables: Tables, page: Asker) -> None:
    """A project shows its own runs, and only columns that those have."""
    with history.store.write() as conn:
        project = workspaces.create_project(conn, 1, "vision")
    history.run("there", project_id=project, hparams={"a": 1})
    history.run("here", hparams={"b": 1})
    assert tables.cells("run.name", "run.project", project_id=project) == [["there", "vision"]]
    assert tables.ids(sort=["hparams.a"]) == [1, 2]
    assert "hparams.a" in tables.columns(project_id=project)
    assert "hparams.b" not in tables.columns(project_id=project)


def test_pages_do_not_overlap(history: History, tables: Tables) -> None:
    """Pages one after another hold every row once, in the order of all."""
    for number in range(7):
        history.run(hparams={"same": number % 2})
    pages = [tables.ids(sort=["hparams.same"], offset=start, limit=3) for start in (0, 3, 6)]
    assert pages == [[1, 3, 5], [7, 2, 4], [6]]
    assert tables.ids(offset=100) == []


def test_groups_stand_together(history: History, tables: Tables) -> None:
    """Rows of one value stand together, and each value is counted over all pages; rows without one are last."""
    for opt in ("sgd", "adam", None, "sgd"):
        history.run(hparams={} if opt is None else {"opt": opt})
    found = tables.rows("hparams.opt", group_by="hparams.opt", sort=["-run.id"], limit=2)
    assert [row["id"] for row in found["rows"]] == [2, 4]
    assert [(each["value"], each["count"]) for each in found["groups"]] == [("adam", 1), ("sgd", 2), ("", 1)]


def test_the_best_row_is_said_where_it_is_known(history: History, tables: Tables) -> None:
    """The best of a metric is known if the runs agree which way is better, and nothing is best of other columns."""
    for loss, other in ((0.5, 3.0), (0.2, 1.0), (0.9, 2.0)):
        history.run(hparams={"lr": loss}, validation={1: {"loss": loss, "other": other}})
    columns = ("run.best_metric", "metrics.validation.loss.min", "metrics.validation.other.min", "hparams.lr")
    everything = {"sort": ["hparams.lr"]}
    assert tables.rows(*columns, **everything)["best"] == {"run.best_metric": 2, "metrics.validation.loss.min": 2}
    history.run(validation={1: {"acc": 0.1}}, metric="acc", smaller_is_better=False)
    assert tables.rows(*columns, **everything)["best"] == {"metrics.validation.loss.min": 2}
    history.run(validation={1: {"loss": 7.0}}, smaller_is_better=False)
    assert tables.rows(*columns, **everything)["best"] == {}
    low = {
        "all_of": [
            {"column": "run.id", "operator": "<", "value": 4},
            {"column": "run.id", "operator": "is not", "value": 2},
        ]
    }
    assert tables.rows(*columns, filter=low)["best"] == {"run.best_metric": 1, "metrics.validation.loss.min": 1}


def test_unknown_columns_are_named(history: History, tables: Tables) -> None:
    """Sorting or filtering by a column that there is not says which was meant; showing one shows nothing."""
    history.run(hparams={"learning_rate": 0.1, "opt": "sgd"})
    with pytest.raises(InvalidValue, match=r"no column 'hparams.learning'. Did you mean 'hparams.learning_rate'\?"):
        tables.ids(sort=["hparams.learning"])
    with pytest.raises(InvalidValue, match=r"no column 'run.nam'. Did you mean 'run.name'"):
        tables.filtered("run.nam", "is", "x")
    with pytest.raises(InvalidValue, match=r"opt is a text column, for which '<' means nothing\. Use one of: is,"):
        tables.filtered("hparams.opt", "<", 3)
    with pytest.raises(InvalidValue, match=r"hparams\.learning_rate < 'x': expected a number"):
        tables.filtered("hparams.learning_rate", "<", "x")
    with pytest.raises(InvalidValue, match="expected a time such as"):
        tables.filtered("run.start_time", "before", "yesterday")
    assert tables.cells("hparams.gone") == [None]


def test_hostile_keys(history: History, tables: Tables) -> None:
    """Keys with dots, quotes, markup and odd characters are columns like others; what nests is joined by dots."""
    keys = ["a.b", "'", '"; DROP TABLE trials', "<script>", "", " ", "ключ", "x" * 290, "y" * 400, "\u202e"]
    history.run(hparams={key: number for number, key in enumerate(keys)} | {"list": [1, {"a": math.nan}], "none": None})
    found = tables.columns()
    for number, key in enumerate(keys):
        if len(key) < 300:
            assert tables.cells(f"hparams.{key}", sort=[f"-hparams.{key}"]) == [number], key
    assert not any("yyy" in key for key in found)
    assert found["hparams.list"]["type"] == "text"
    assert "hparams.none" not in found
    assert tables.filtered("hparams.<script>", "is", 3) == [1]


def test_too_many_keys(history: History, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of keys the commonest are columns, however early the others come."""
    from determined.server.run_index import documents

    monkeypatch.setattr(documents, "MOST_COLUMNS", 60)
    for number in range(20):
        history.run(hparams={"lr": number / 10} | {f"only-{number}-{key}": key for key in range(50)})
    found = tables.rows("hparams.lr", sort=["-hparams.lr"])
    assert [row["cells"][0] for row in found["rows"][:2]] == [1.9, 1.8]
    columns = [key for key in tables.columns() if not key.startswith("run.")]
    assert len(columns) == 60
    assert "hparams.lr" in columns
    history.run(hparams={"lr": 7, "new": 1})
    assert tables.cells("hparams.lr", sort=["-hparams.lr"], limit=1) == [7]


def test_sparks(history: History, tables: Tables, page: Asker) -> None:
    """Rows have small curves of what their experiment searches for: at most 60 points, nothing where it has none."""
    history.run(validation={step: 1 / step for step in range(1, 201)})
    history.run(validation={1: 0.5, 2: math.nan, 3: 0.25})
    history.run()
    found = page.get("/tables/experiments/sparks", ids="1,2,3,99")["sparks"]
    assert set(found) == {"1", "2"}
    assert len(found["1"]) <= 60
    assert found["1"][0] > found["1"][-1]
    assert found["2"] == [0.5, None, 0.25]
    assert page.get("/tables/trials/sparks", ids="2")["sparks"] == {"2": [0.5, None, 0.25]}
    with pytest.raises(InvalidValue, match="Write numbers with commas"):
        page.get("/tables/trials/sparks", ids="1;2")


def test_the_first_page_does_not_wait_for_everything(history: History, page: Asker, tables: Tables) -> None:
    """A server that has just started answers the newest runs before it has read the documents of all, and says so."""
    for number in range(5):
        history.run(hparams={"lr": number})
    first = tables.rows("run.id", "hparams.lr", limit=2)
    assert first["is_rough"]
    assert first["ranges"] == {}
    assert [row["cells"] for row in first["rows"]] == [[5, 4], [4, 3]]
    page.app.state.run_index.load_quietly()
    later = tables.rows("run.id", "hparams.lr", limit=2)
    assert not later["is_rough"]
    assert later["ranges"] == {"hparams.lr": {"low": 0, "high": 4}}


def test_an_empty_store(tables: Tables) -> None:
    """Without runs there are columns, and no rows."""
    assert tables.rows("run.id", "hparams.lr")["total"] == 0
    assert "run.name" in tables.columns("trials")
    assert tables.ids(kind="trials", sort=["-run.duration"], search="1") == []


def test_a_new_server_counts_all_runs(history: History, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is made of the newest runs alone, but says how many there are; others wait for everything."""
    from determined.server.run_index import newest

    monkeypatch.setattr(newest, "MOST", 3)
    with history.store.write() as conn:
        project = workspaces.create_project(conn, 1, "old")
    history.run("first", project_id=project)
    search = history.experiment("search")
    for lr in (0.1, 0.2, 0.3, 0.4):
        history.trial(search, hparams={"lr": lr})
    for _ in range(4):
        history.run()
    first = tables.rows("hparams.lr", kind="trials", limit=3)
    assert (first["total"], [row["id"] for row in first["rows"]], first["is_rough"]) == (9, [9, 8, 7], True)
    assert tables.rows("run.name", "run.trials", limit=2)["total"] == 6
    assert tables.rows("run.name", project_id=project, limit=3)["total"] == 1
    assert tables.ids(sort=["-run.trials"], limit=1) == [search]
