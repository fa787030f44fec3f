"""What is new in the store since a reader last looked, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from determined.store import attempts, experiments, trials
from determined.store.database.connection import Store
from determined.store.overview import changes
from determined.store.overview.changes import Change
from determined.store.schema import metrics
from tests.history import History, Run

Look = Callable[[], Change]


@pytest.fixture
def history(store: Store, tmp_path: Path) -> Any:
    place = store.path or store.place.url.render_as_string(hide_password=False)
    with History(tmp_path, place) as made:
        yield made


@pytest.fixture
def run(history: History) -> Run:
    return history.run(state="RUNNING", training={1: 0.5}, lines=["one"], checkpoints=[1])


@pytest.fixture
def look(store: Store, run: Run) -> Look:
    """What is new since the last call; at first, since the run above."""
    with store.read() as conn:
        seen = [changes.marks(conn)]

    def take() -> Change:
        with store.read() as conn:
            now, change = changes.since(conn, seen[0])
        seen[0] = now
        return change

    return take


def of(change: Change) -> tuple[set[int], set[int], set[int]]:
    return set(change.experiments), set(change.trials), set(change.logs)


def test_nothing_is_new_until_something_is_stored(look: Look) -> None:
    """Two looks at a store that nobody writes to find nothing."""
    assert of(look()) == (set(), set(), set())
    assert not look()


def test_reports_name_their_trials(look: Look, history: History, run: Run) -> None:
    """New metrics are told as their trials and experiments, once, however many rows there are."""
    other = history.run("other", state="RUNNING")
    look()
    history.report(run, "training", dict.fromkeys(range(2, 50), 0.1))
    assert of(look()) == ({run.experiment_id}, {run.trial_id}, set())
    history.report(run, "validation", {60: 0.1})
    history.report(other, "training", {1: 0.1})
    both = ({run.experiment_id, other.experiment_id}, {run.trial_id, other.trial_id}, set())
    assert of(look()) == both
    assert of(look()) == (set(), set(), set())


def test_log_lines_name_their_trials(look: Look, history: History, run: Run) -> None:
    """New lines are told as trials that printed, which are not trials that changed."""
    history.log(run, ["two", "three"])
    assert of(look()) == (set(), set(), {run.trial_id})


def test_states_and_new_trials_are_told(look: Look, history: History, run: Run, store: Store) -> None:
    """Events of experiments and trials, new experiments and new trials are told by id."""
    history.end(run, "COMPLETED")
    assert of(look())[:2] == ({run.experiment_id}, {run.trial_id})
    with store.write() as conn:
        ident = experiments.create(conn, name="next", config={}, owner="ada")
    assert of(look())[0] == {ident}
    with store.write() as conn:
        trial = trials.create(conn, ident, hparams={})
    assert of(look())[:2] == ({ident}, {trial})


def test_checkpoints_are_told(history: History, run: Run, sqlite_store: Store, tmp_path: Path) -> None:
    """A new checkpoint is told as its trial; on PostgreSQL, whose checkpoints have no number, as `other`."""
    with History(tmp_path / "own", sqlite_store.path) as own:
        (tmp_path / "own").mkdir(exist_ok=True)
        mine = own.run(state="RUNNING")
        with sqlite_store.read() as conn:
            seen = changes.marks(conn)
        own.save(mine, 7)
        with sqlite_store.read() as conn:
            _, change = changes.since(conn, seen)
    assert mine.trial_id in change.trials


def test_an_edit_is_counted_by_a_server(postgres: Any, tmp_path: Path) -> None:
    """On PostgreSQL an edit of a name is `other`, by the server's own counters; heart-beats of a run are not."""
    url = postgres.database()
    with History(tmp_path, url) as history:
        run = history.run(state="RUNNING")
        count_now(history.store)
        with history.store.read() as conn:
            seen = changes.marks(conn)
        with history.store.write() as conn:
            attempts.beat(conn, run.attempt)
        count_now(history.store)
        with history.store.read() as conn:
            seen, change = changes.since(conn, seen)
        assert not change
        with history.store.write() as conn:
            experiments.update(conn, run.experiment_id, name="another")
        count_now(history.store)
        with history.store.read() as conn:
            _, change = changes.since(conn, seen)
        assert change == Change(other=True)
    postgres.empty(url)


def count_now(store: Store) -> None:
    """Let the server count what this connection wrote; by itself it does so within seconds."""
    with store.write() as conn:
        conn.execute(sa.text("SELECT pg_stat_force_next_flush()"))


def test_rows_that_end_late_are_found(postgres: Any, tmp_path: Path) -> None:
    """On PostgreSQL a transaction that began first may end last: its rows, with smaller ids, are found as well."""
    url = postgres.database()
    with History(tmp_path, url) as history:
        slow, quick = history.run("slow", state="RUNNING"), history.run("quick", state="RUNNING")
        with history.store.read() as conn:
            seen = changes.marks(conn)
        with history.store.write() as late:
            late.execute(metrics.insert().values(**row(slow, 1)))
            history.report(quick, "training", {1: 0.5})
            with history.store.read() as conn:
                seen, change = changes.since(conn, seen)
            assert of(change)[1] == {quick.trial_id}
        with history.store.read() as conn:
            seen, change = changes.since(conn, seen)
            assert of(change)[1] == {slow.trial_id}
            seen, change = changes.since(conn, seen)
        assert of(change)[1] == set()
        assert not any(seen.missing.values())
    postgres.empty(url)


def test_ids_that_never_come_are_given_up(postgres: Any, tmp_path: Path) -> None:
    """A transaction that was undone leaves a hole in the ids; it is not looked for without end."""
    url = postgres.database()
    with History(tmp_path, url) as history:
        run = history.run(state="RUNNING")
        with history.store.read() as conn:
            seen = changes.marks(conn)
        with pytest.raises(ZeroDivisionError), history.store.write() as conn:
            conn.execute(metrics.insert().values(**row(run, 1)))
            raise ZeroDivisionError
        history.report(run, "training", {2: 0.5})
        for _ in range(30):
            with history.store.read() as conn:
                seen, _change = changes.since(conn, seen)
        assert not any(seen.missing.values())
    postgres.empty(url)


def row(run: Run, steps: int) -> dict[str, Any]:
    from determined.store.messages import now

    return {"trial_id": run.trial_id, "attempt": run.attempt.attempt, "metric_group": "x", "steps": steps,
            "report_time": now(), "body": "{}"}  # fmt: skip


def test_a_flood_is_not_read_row_by_row(
    look: Look, history: History, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After very many new rows the newest are looked at, and the reader is told to look at everything."""
    monkeypatch.setattr(changes, "MOST_ROWS", 10)
    history.report(run, "training", dict.fromkeys(range(2, 40), 0.1))
    change = look()
    assert change.other
    assert run.trial_id in change.trials


def test_no_table_is_scanned(sqlite_store: Store, tmp_path: Path) -> None:
    """However many rows there are: every question goes down an index, to the newest rows only."""
    with History(tmp_path, sqlite_store.path) as history:
        run = history.run(state="RUNNING", training={1: 0.5}, lines=["one"])
        with sqlite_store.read() as conn:
            seen = changes.marks(conn)
        history.report(run, "training", {2: 0.5})
        history.log(run, ["two"])
        history.save(run, 2)
        asked: list[tuple[str, Any]] = []
        engine = sqlite_store._ours()
        listen = ("before_cursor_execute", lambda c, cursor, text, given, *rest: asked.append((text, given)))
        sa.event.listen(engine, *listen)
        with sqlite_store.read() as conn:
            changes.since(conn, seen)
        sa.event.remove(engine, *listen)
        questions = [(text, given) for text, given in asked if text.startswith("SELECT")]
        assert len(questions) >= 4
        with sqlite_store.read() as conn:
            for text, given in questions:
                plan = [step[3] for step in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all()]
                assert not [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"], plan


def test_changes_add_up() -> None:
    """Two changes together are told as one; nothing is no change."""
    one, two = Change(frozenset({1}), frozenset({2})), Change(frozenset({3}), logs=frozenset({4}), other=True)
    assert one | two == Change(frozenset({1, 3}), frozenset({2}), frozenset({4}), True)
    assert one
    assert not Change()
