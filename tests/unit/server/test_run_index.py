"""The index of all runs against a plain model of it, and against an index that was just made."""

from __future__ import annotations

import contextlib
import functools
import math
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from determined.client._session import Session
from determined.errors import InvalidValue, NotFound
from determined.server.answers.tables import TableQuestion
from determined.server.run_index import index as indexing
from determined.server.run_index.column import Column, text_of
from determined.server.run_index.index import RunIndex
from determined.server.run_index.runs import Runs
from determined.store import experiments, schema, trials, workspaces
from determined.store.database.connection import Store, open_store
from tests.history import History, Run
from tests.stores import PostgresServer

KEYS = ("number", "text", "mixed", "flag", "rare")
OPERATORS = ("is", "is not", "<", "<=", ">", ">=", "contains", "does not contain", "is empty", "is not empty")
VALUES: dict[str, list[Any]] = {
    "number": [0, 1, -1.5, 2.0, 1e300, math.inf, -math.inf, math.nan, None],
    "text": ["a", "B", "b", "Ab", "", "NaN", "1", "ß", "\u0130", None],
    "mixed": [1, 2.5, "1", "auto", True, [1, 2], {}, math.nan, None],
    "flag": [True, False, None],
    "rare": [None] * 30 + [7, "x"],
}


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunIndex, dict[int, dict[str, Any]]]]:
    """An index of a hundred runs with values of all kinds, and the values by id."""
    chance = random.Random(7)
    with History(tmp_path_factory.mktemp("population")) as history:
        rows = [{key: chance.choice(VALUES[key]) for key in KEYS} for _ in range(100)]
        found = {history.run(f"run {place % 7}", hparams=row).experiment_id: row for place, row in enumerate(rows)}
        session = Session(history.place)
        index = RunIndex(session)
        yield (
            index,
            {ident: row | {"mixed": "{}" if row["mixed"] == {} else row["mixed"]} for ident, row in found.items()},
        )
        index.close()
        session.close()


conditions = st.builds(
    lambda key, operator, value: {"column": f"hparams.{key}", "operator": operator, "value": value},
    st.sampled_from(KEYS),
    st.sampled_from(OPERATORS),
    st.sampled_from([0, 1, 2.5, -2, "a", "B", "1", "auto", "NaN", "x", True, False, "Infinity", "t", "{}"]),
)
groups = st.recursive(
    conditions,
    lambda inner: st.dictionaries(st.sampled_from(["all_of", "any_of"]), st.lists(inner, max_size=3)),
    max_leaves=6,
).map(lambda item: item if "column" not in item else {"all_of": [item]})
sorts = st.lists(
    st.tuples(st.sampled_from(["", "-"]), st.sampled_from([*(f"hparams.{key}" for key in KEYS), "run.name", "run.id"])),
    max_size=3,
).map(lambda pairs: [sign + key for sign, key in pairs])


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def number_of(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except ValueError:
        return None


def holds(value: Any, operator: str, given: Any) -> bool:
    """Whether a condition holds for one value, said in the plainest way."""
    if operator in ("is empty", "is not empty"):
        return (value is None) == (operator == "is empty")
    if operator == "is not":
        return not holds(value, "is", given)
    if operator == "does not contain":
        return not holds(value, "contains", given)
    if value is None:
        return False
    if operator == "contains":
        return text_of(given).casefold() in text_of(value).casefold()
    wanted = number_of(given)
    if operator == "is":
        if is_number(value):
            return value == wanted
        return text_of(value) == text_of(given)
    assert wanted is not None
    pairs = (
        {"<": value < wanted, "<=": value <= wanted, ">": value > wanted, ">=": value >= wanted}
        if is_number(value)
        else {}
    )
    return pairs.get(operator, False)


def fits(row: dict[str, Any], item: dict[str, Any]) -> bool:
    if "column" in item:
        return holds(row[item["column"].removeprefix("hparams.")], item["operator"], item["value"])
    every = all(fits(row, inner) for inner in item.get("all_of", []))
    return every and (not item.get("any_of") or any(fits(row, inner) for inner in item["any_of"]))


def compare(one: dict[str, Any], other: dict[str, Any], sort: list[str]) -> int:
    """Which of two rows comes first, key by key."""
    for key in sort:
        name = key.removeprefix("-").removeprefix("hparams.").removeprefix("run.")
        a, b = one[name], other[name]
        places = [0 if is_number(v) else 3 if v is None else 2 if isinstance(v, float) else 1 for v in (a, b)]
        if max(places) >= 2:  # nothing is last, NaN before it, either way
            if places[0] != places[1]:
                return places[0] - places[1]
            continue
        keys = [(0, v, "", "") if is_number(v) else (1, 0, text_of(v).casefold(), text_of(v)) for v in (a, b)]
        if keys[0] != keys[1]:
            return (-1 if keys[0] < keys[1] else 1) * (-1 if key.startswith("-") else 1)
    return one["id"] - other["id"]


@settings(max_examples=300, deadline=None)
@given(group=groups, sort=sorts)
def test_filter_and_order_are_those_of_a_plain_model(
    population: tuple[RunIndex, dict[int, dict[str, Any]]], group: dict[str, Any], sort: list[str]
) -> None:
    """Whatever the filter and the order, the index returns the rows that a loop over plain values would."""
    index, rows = population
    asked = TableQuestion.model_validate({"columns": ["run.id"], "filter": group, "sort": sort, "limit": 1000})
    try:
        found = [row["id"] for row in index.rows("experiments", asked)["rows"]]
    except InvalidValue:  # a text compared with `<`, and the like
        return
    known = [row | {"id": ident, "name": f"run {(ident - 1) % 7}"} for ident, row in rows.items()]
    expected = [row for row in known if fits(row, group)]
    expected.sort(key=functools.cmp_to_key(lambda one, other: compare(one, other, sort)))
    assert found == [row["id"] for row in expected]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_column_is_a_list_of_values(data: st.DataObject) -> None:
    """Whatever is put into a column and taken out of it, it holds what a dictionary would."""
    value = st.sampled_from([None, 1, 2.5, math.inf, 10**400, "a", "b", True, (1, 2), math.nan])
    size = data.draw(st.integers(1, 40))
    column, model = Column(), {}
    for _ in range(data.draw(st.integers(1, 8))):
        positions = data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=size))
        for at in positions:
            column.clear(at)
            model.pop(at, None)
        values = [data.draw(value) for _ in positions]
        column.put(positions, values, size)
        model |= {at: each for at, each in zip(positions, values, strict=True) if each is not None}
    assert column.count == len(model)
    numbers, codes = column.numbers(size), column.codes(size)
    for at in range(size):
        expected = model.get(at)
        if is_number(expected):
            assert numbers[at] == (math.inf if expected == 10**400 else expected)
        else:
            assert math.isnan(numbers[at])
        is_word = expected is not None and not is_number(expected)
        assert (codes is not None and codes[at] >= 0) == is_word
        if is_word:
            assert codes is not None
            assert text_of(column.words.values[codes[at]]) == text_of(expected)


COLUMNS = ["run.name", "run.state", "run.labels", "run.description", "run.project", "run.archived", "run.best_metric",
           "run.trials", "run.progress", "run.end_time", "run.parent_id", "hparams.lr", "hparams.odd", "metadata.note",
           "metrics.validation.loss.last", "metrics.training.loss.min"]  # fmt: skip


def answers(index: RunIndex) -> list[Any]:
    """Everything that both tables say."""
    index.load()
    found = []
    for kind in ("experiments", "trials"):
        asked = TableQuestion(columns=[*COLUMNS, "hparams.gone"], sort=["hparams.lr", "run.id"], archived=True)
        found.append(index.rows(kind, asked) if "hparams.lr" in keys(index, kind) else keys(index, kind))
        found.append(index.columns(kind))
    return found


def keys(index: RunIndex, kind: Any) -> list[str]:
    return [column["key"] for column in index.columns(kind)["columns"]]


class Past:
    """Changes to a store, of all kinds that there are."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.runs: list[Run] = []

    def change(self, what: str, chance: random.Random) -> None:
        if what == "new" or not self.runs:
            state = chance.choice(["RUNNING", "COMPLETED", "ERROR"])
            hparams = {"lr": chance.choice([0.1, 0.2, "auto"])} | (
                {"odd": chance.random()} if chance.random() < 0.3 else {}
            )
            self.runs.append(self.history.run(f"run {len(self.runs)}", state=state, hparams=hparams))
            return
        run = chance.choice(self.runs)
        with contextlib.suppress(NotFound):  # it is hidden
            getattr(self, what)(run, chance)

    def report(self, run: Run, chance: random.Random) -> None:
        step = int(self.history.tick().timestamp())
        group = chance.choice(["training", "validation"])
        self.history.report(run, group, {step: {"loss": chance.choice([0.5, math.nan, chance.random()])}})

    def end(self, run: Run, chance: random.Random) -> None:
        with self.history.store.write() as conn:
            trials.set_state(conn, run.trial_id, chance.choice(["COMPLETED", "RUNNING"]), time=self.history.tick())

    def trial(self, run: Run, chance: random.Random) -> None:
        self.history.trial(run.experiment_id, hparams={"lr": chance.random()}, validation={1: chance.random()})

    def delete(self, run: Run, chance: random.Random) -> None:
        with self.history.store.write() as conn:
            ended = experiments.get(conn, run.experiment_id, deleted=True).state in experiments.TERMINAL
            if ended and chance.random() < 0.7:
                experiments.delete(conn, run.experiment_id)
            else:
                experiments.undelete(conn, run.experiment_id)

    def edit(self, run: Run, chance: random.Random) -> None:
        with self.history.store.write() as conn:
            field = chance.choice(["name", "description", "archived", "labels", "metadata", "project", "progress"])
            if field == "labels":
                experiments.set_labels(conn, run.experiment_id, chance.sample(["a", "b", "c"], chance.randrange(3)))
            elif field == "metadata":
                trials.set_metadata(conn, run.trial_id, chance.choice([{}, {"note": 1}, {"note": 2}, {"other": "x"}]))
            elif field == "project":
                project = workspaces.create_project(conn, 1, f"project {chance.random()}")
                experiments.update(conn, run.experiment_id, project_id=project)
            else:
                value = {"name": "new", "description": "", "archived": chance.random() < 0.5, "progress": 0.5}[field]
                experiments.update(conn, run.experiment_id, **{field: value})

    def purge(self, run: Run, chance: random.Random) -> None:
        self.runs.remove(run)
        with self.history.store.write() as conn:
            conn.execute(schema.experiments.delete().where(schema.experiments.c.id == run.experiment_id))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["new", "report", "end", "trial", "delete", "edit", "purge"]), st.booleans()),
        min_size=3,
        max_size=15,
    ),
    seed=st.integers(0, 2**32),
)
def test_an_old_index_says_what_a_new_one_does(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, bool]], seed: int
) -> None:
    """After any changes, looked at in between or not, an index answers what one that has just been made answers."""
    monkeypatch.setattr(indexing, "OWED_SECONDS", -1.0)
    monkeypatch.setattr(indexing, "OWED_SHARE", 0)
    _follow(tmp_path_factory.mktemp("past"), steps, seed)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["new", "report", "end", "trial", "delete"]), st.booleans()), min_size=3, max_size=15
    ),
    seed=st.integers(0, 2**32),
)
def test_what_leaves_rows_is_seen_at_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, bool]], seed: int
) -> None:
    """New runs, reports, ends and deletions are in the next answer, without a look at everything."""
    monkeypatch.setattr(indexing, "OWED_SECONDS", math.inf)
    _follow(tmp_path_factory.mktemp("past"), steps, seed)


def _follow(place: Path, steps: list[tuple[str, bool]], seed: int) -> None:
    chance = random.Random(seed)
    with History(place) as history:
        history.catch_up()
        session = Session(history.place)
        old, past = RunIndex(session), Past(history)
        for what, look in steps:
            past.change(what, chance)
            if look:
                answers(old)
        new = RunIndex(session)
        expected = answers(new)
        assert answers(old) == expected
        old.close()
        new.close()
        session.close()


def test_threads_share_an_index(history: History) -> None:
    """Threads that ask while runs report get answers, and in the end the right ones."""
    runs = [history.run(f"run {number}", state="RUNNING", hparams={"lr": number}) for number in range(5)]
    session = Session(history.place)
    index = RunIndex(session)
    wrong: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(10):
                asked = TableQuestion(columns=["run.name", "hparams.lr"], sort=["-hparams.lr"])
                assert [row["cells"][1] for row in index.rows("trials", asked)["rows"]] == [4, 3, 2, 1, 0]
        except BaseException as failed:
            wrong.append(failed)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(1, 10):
        for run in runs:
            history.report(run, "validation", {step: 1 / step})
    for thread in threads:
        thread.join()
    assert wrong == []
    column = "metrics.validation.loss.last"
    assert {row["cells"][0] for row in index.rows("trials", TableQuestion(columns=[column]))["rows"]} == {1 / 9}
    index.close()
    session.close()


@pytest.mark.timeout(60)
def test_reading_in_the_background_pauses(history: History) -> None:
    """Issue 16: while other answers are given, the index is not read in the background; who asks for it has it read."""
    for number in range(3):
        history.run(f"run {number}", hparams={"lr": number})
    session = Session(history.place)
    paused, on = threading.Event(), threading.Event()

    def pause(is_needed: Callable[[], bool]) -> None:
        paused.set()
        while not on.wait(0.001) and not is_needed():
            pass

    index = RunIndex(session, pause)
    index.start()
    assert paused.wait(60)
    asked = TableQuestion(columns=["hparams.lr"], sort=["-hparams.lr"])
    found = index.rows("trials", asked)
    assert ([row["cells"][0] for row in found["rows"]], found["is_rough"]) == ([2, 1, 0], False)
    on.set()
    index.close()
    session.close()


def test_trials_of_one_experiment_wait_for_no_others(history: History) -> None:
    """Issue 16: its trials are sorted by a hyperparameter before the documents of ten thousand other runs are read."""
    runs = [history.run(f"run {number}", hparams={"lr": number}) for number in range(3)]
    with opened(history) as index:
        mine = ask_lr(index, runs[1].experiment_id)
        assert ([row["cells"][0] for row in mine["rows"]], mine["is_rough"]) == ([1], False)
        assert mine["ranges"] == {"hparams.lr": {"low": 1, "high": 1}}
        assert index.rows("trials", TableQuestion(columns=["hparams.lr"]))["is_rough"]  # the others were not read


def test_a_common_key_is_found_behind_many_rare_ones(history: History) -> None:
    """While it is not known which keys are the commonest, an experiment whose key has no column yet waits for all."""
    runs = [history.run(f"run {number}", hparams={"lr": number}) for number in range(3)]
    history.run("odd", hparams={f"key{number}": number for number in range(2 * 2000 + 10)})
    with opened(history) as index:
        for _ in range(2):  # at first the newest rows are read apart; then those of the odd run, into the index
            index.rows("trials", TableQuestion(columns=["hparams.key1"], limit=1))
            index.trial_states([])
        assert [row["cells"][0] for row in ask_lr(index, runs[1].experiment_id)["rows"]] == [1]


@contextlib.contextmanager
def opened(history: History) -> Iterator[RunIndex]:
    """An index that has read nothing, and reads nothing by itself."""
    session = Session(history.place)
    index = RunIndex(session)
    index.start = lambda: None  # type: ignore[method-assign]
    yield index
    index.close()
    session.close()


def ask_lr(index: RunIndex, experiment_id: int) -> dict[str, Any]:
    asked = TableQuestion(columns=["hparams.lr"], sort=["-hparams.lr"], experiment_id=experiment_id)
    return index.rows("trials", asked)


def test_both_databases_say_the_same(store: Store, tmp_path: Path) -> None:
    """The index reads PostgreSQL as it reads a file: times, flags, JSON and values of the configuration."""
    place = store.path or store.place.url.render_as_string(hide_password=False)
    with History(tmp_path, place) as history:
        config = {"searcher": {"name": "grid"}, "resources": {"resource_pool": "big"}, "max_restarts": 0}
        search = history.experiment("search", config=config, labels=["b", "a"], unmanaged=False, state="ACTIVE")
        history.trial(search, hparams={"lr": 0.1, "odd": math.nan}, validation={1: 0.5}, checkpoints=[1])
        history.run("plain", hparams={"lr": 0.2}, state="ERROR")
    session = Session(place)
    index = RunIndex(session)
    columns = ["run.name", "run.state", "run.searcher", "run.resource_pool", "run.labels", "run.checkpoint_count"]
    columns += ["run.archived", "run.start_time", "hparams.lr", "metrics.validation.loss.min"]
    found = index.rows("experiments", TableQuestion(columns=columns, sort=["hparams.lr"]))["rows"]
    assert [row["cells"] for row in found] == [
        ("search", "QUEUED", "grid", "big", ("a", "b"), 1, False, "2026-01-01T00:00:01Z", 0.1, 0.5),
        ("plain", "ERROR", None, None, None, 0, False, "2026-01-01T00:00:07Z", 0.2, None),
    ]
    with store.write() as conn:
        experiments.update(conn, search, name="renamed")
    index.tell_edit()
    assert index.rows("experiments", TableQuestion(columns=[], search="renamed"))["total"] == 1
    index.close()
    session.close()


def test_a_server_is_read_only_after_a_change(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: while nothing is written, no question reads all runs of a server again; an edit elsewhere is seen."""
    monkeypatch.setattr(indexing, "SERVER_SECONDS", -1.0)
    monkeypatch.setattr(indexing, "OWED_SECONDS", -1.0)
    monkeypatch.setattr(indexing, "OWED_SHARE", 0)
    real, reads = Runs.read_all, [0]

    def counted(*arguments: Any) -> None:
        reads[0] += 1
        real(*arguments)

    monkeypatch.setattr(Runs, "read_all", counted)
    url = postgres.database()
    with History(tmp_path, url) as history:
        run = history.run("plain", hparams={"lr": 0.2})
    session = Session(url)
    index = RunIndex(session)
    renamed = TableQuestion(columns=[], search="renamed")
    index.load()
    before = reads[0]
    assert [index.rows("experiments", renamed)["total"] for _ in range(5)] == [0] * 5
    assert reads[0] == before
    editor = open_store(url)
    with editor.write() as conn:
        experiments.update(conn, run.experiment_id, name="renamed")
    assert index.rows("experiments", renamed)["total"] == 1
    editor.close()
    index.close()
    session.close()
    postgres.empty(url)
