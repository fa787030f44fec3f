"""Checkpoints as rows: recorded once, counted right, found by what they are worth."""

from __future__ import annotations

import math
import threading

import pytest
import sqlalchemy as sa

from determined import errors
from determined.store import attempts, checkpoints, experiments, schema, trials
from determined.store.attempts import Attempt
from determined.store.database.connection import Store
from determined.store.messages import CheckpointReport
from tests.unit.store.rooms import add_run, save, validate

GONE = {"state": "DELETED", "resources": {}, "metadata": {}}


def uuids(rows: list[checkpoints.CheckpointRow]) -> list[str]:
    return [row.uuid for row in rows]


def totals(conn: sa.Connection, run: Attempt) -> list[tuple[int, int]]:
    trial, experiment = trials.get(conn, run.trial_id), experiments.get(conn, run.experiment_id)
    return [(row.checkpoint_count, row.checkpoint_size) for row in (trial, experiment)]


def test_a_checkpoint_is_recorded_with_what_was_measured(store: Store) -> None:
    """Platform 5.2: its validation is the one at equal steps, not archived."""
    storage = {"type": "shared_fs", "host_path": "/x", "save_trial_latest": 1}
    with store.write() as conn:
        run = add_run(conn)
        validate(conn, run, 10, 0.5)
        save(conn, run, "u1", 10, storage=storage)
        save(conn, run, "u1", 10, storage=storage)  # a report that is sent again
        save(conn, run, "u2", 20, storage=storage)
        row = checkpoints.get(conn, "u1")
        assert totals(conn, run) == [(2, 20), (2, 20)]
        assert checkpoints.get(conn, "u2").searcher_metric is None
        assert conn.scalar(sa.select(sa.func.count()).select_from(schema.storage_backends)) == 1
        assert row.storage == {"type": "shared_fs", "host_path": "/x"}
    assert (row.trial_id, row.experiment_id, row.task_id, row.allocation_id) == (1, 1, run.task_id, run.allocation_id)
    assert (row.steps, row.state, row.size, row.resources) == (10, "COMPLETED", 10, {"a/": 0, "a/b": 10})
    assert (row.validation_metrics, row.searcher_metric) == ({"loss": 0.5}, 0.5)


@pytest.mark.parametrize("metadata", [{}, {"steps_completed": "10"}, {"steps_completed": True}])
def test_steps_are_needed(store: Store, metadata: dict[str, object]) -> None:
    """P-80: metadata without steps_completed is a ValueError, and there is no row."""
    with store.write() as conn:
        run = add_run(conn)
        with pytest.raises(ValueError, match="steps_completed"):
            save(conn, run, "u1", 10, metadata=metadata)
        assert checkpoints.find(conn, trial_id=run.trial_id) == []


def test_an_id_is_used_once(store: Store) -> None:
    """Another trial cannot record the same id."""
    with store.write() as conn:
        save(conn, add_run(conn), "u1", 10)
        with pytest.raises(errors.Refused, match="belongs to trial 1"):
            save(conn, add_run(conn), "u1", 10)


def test_deleted_ones_keep_their_row_and_count_nothing(store: Store) -> None:
    """Platform 4.9: state DELETED, no files, sizes and counts without it; PARTIALLY_DELETED counts what is left."""
    with store.write() as conn:
        run = add_run(conn)
        for number in (1, 2):
            save(conn, run, f"u{number}", number)
        checkpoints.record(conn, run, CheckpointReport("u1", {}, {}, "DELETED"))
        checkpoints.record(conn, run, CheckpointReport("never recorded", {}, {}, "DELETED"))
        assert totals(conn, run) == [(1, 10), (1, 10)]
        checkpoints.set_state(conn, "u2", "PARTIALLY_DELETED", resources={"a/": 0, "a/c": 3})
        assert totals(conn, run) == [(1, 3), (1, 3)]
        assert uuids(checkpoints.find(conn, trial_id=1)) == []
        states = {row.uuid: row.state for row in checkpoints.find(conn, trial_id=1, states=None)}
        assert states == {"u1": "DELETED", "u2": "PARTIALLY_DELETED"}
        with pytest.raises(errors.NotFound, match="det checkpoint ls"):
            checkpoints.set_state(conn, "u9", "DELETED")


def test_a_newer_attempt_may_delete_what_an_older_saved(store: Store) -> None:
    """And so may anybody: that files are gone is a fact."""
    with store.write() as conn:
        run = add_run(conn)
        save(conn, run, "u1", 1)
        newer = attempts.begin(conn, run.trial_id, run_name="newer")
        checkpoints.record(conn, newer, CheckpointReport("u1", {}, {}, "DELETED"))
        assert totals(conn, run) == [(0, 0), (0, 0)]


@pytest.mark.parametrize(("smaller", "expected"), [(True, ["c", "b", "e", "a"]), (False, ["e", "b", "c", "a"])])
def test_the_best_come_first(store: Store, smaller: bool, expected: list[str]) -> None:
    """P-85: by searcher metric, best first, unvalidated last, only COMPLETED; ties in order of validation."""
    with store.write() as conn:
        run = add_run(conn, smaller_is_better=smaller)
        for uuid, steps, loss in (("b", 20, 0.5), ("c", 30, 0.25), ("d", 40, 0.1), ("e", 50, 0.75)):
            validate(conn, run, steps, loss)
            save(conn, run, uuid, steps)
        save(conn, run, "a", 10)
        checkpoints.set_state(conn, "d", "DELETED")
        validate(conn, run, 60, math.nan)
        save(conn, run, "n", 60)  # D3: NaN is the worst that was measured
        assert uuids(checkpoints.find(conn, experiment_id=1)) == [*expected[:-1], "n", "a"]
        best = checkpoints.best(conn, experiment_id=1)
        assert best is not None
        assert best.uuid == expected[0]
        newest = checkpoints.newest(conn, 1)
        assert newest is not None
        assert newest.uuid == "n"


def test_checkpoints_are_sorted_by_anything(store: Store) -> None:
    """By uuid, steps, time, state, or a validation metric."""
    with store.write() as conn:
        run = add_run(conn)
        for uuid, steps in (("b", 10), ("a", 20), ("c", 30)):
            save(conn, run, uuid, steps)
        validate(conn, run, 20, 7)

        def order(**how: object) -> str:
            return "".join(uuids(checkpoints.find(conn, trial_id=1, **how)))  # type: ignore[arg-type]

        assert order(sort_by="uuid") == "abc"
        assert order(sort_by="uuid", descending=True) == "cba"
        assert order(sort_by="steps") == "bac"
        assert order(sort_by="time", descending=True) == "cab"
        assert order(metric="loss") == "abc"
        assert order(sort_by="steps", limit=2) == "ba"


def test_nan_is_no_best_and_infinity_compares(store: Store) -> None:
    """Platform D3: NaN counts as worst, infinities as numbers."""
    with store.write() as conn:
        run = add_run(conn)
        for uuid, steps, loss in (("n", 1, math.nan), ("i", 2, math.inf), ("m", 3, -math.inf)):
            validate(conn, run, steps, loss)
            save(conn, run, uuid, steps)
        assert uuids(checkpoints.find(conn, trial_id=1)) == ["m", "i", "n"]


def test_best_is_none_without_a_metric(store: Store) -> None:
    """Nothing to compare: no best, no newest of nothing."""
    with store.write() as conn:
        run = add_run(conn)
        assert checkpoints.newest(conn, run.trial_id) is None
        save(conn, run, "u1", 1)
        assert checkpoints.best(conn, trial_id=run.trial_id) is None


def test_metadata_and_prefixes(store: Store) -> None:
    """Metadata is replaced in the store; an id may be typed in part."""
    with store.write() as conn:
        run = add_run(conn)
        for uuid in ("4f1c22", "4f1d00", "99_%"):
            save(conn, run, uuid, 1)
        checkpoints.set_metadata(conn, "4f1c22", {"steps_completed": 1, "note": "good"})
        assert checkpoints.get(conn, "4f1c22").metadata["note"] == "good"
        assert checkpoints.complete_uuid(conn, "4f1c") == "4f1c22"
        assert checkpoints.complete_uuid(conn, "4f1d00") == "4f1d00"
        with pytest.raises(errors.InvalidValue, match="Several"):
            checkpoints.complete_uuid(conn, "4f1")
        with pytest.raises(errors.NotFound):
            checkpoints.complete_uuid(conn, "%")


def test_what_a_trial_started_from_is_protected(store: Store) -> None:
    """Platform 4.9: checkpoints that some trial used as warm start are never removed."""
    with store.write() as conn:
        run = add_run(conn)
        save(conn, run, "u1", 1)
        save(conn, run, "u2", 2)
        other = experiments.create(conn, name="warm", config={}, owner="ada")
        trials.create(conn, other, hparams={}, warm_start_checkpoint_uuid="u1")
        assert checkpoints.protected(conn, run.experiment_id) == {"u1"}


def test_totals_are_right_when_trials_save_at_once(store: Store) -> None:
    """Several trials of one experiment record at the same time; no checkpoint is counted twice or not at all."""
    with store.write() as conn:
        first = add_run(conn, managed=True)
        runs = [first]
        for number in range(3):
            trial = trials.create(conn, first.experiment_id, hparams={}, state="ACTIVE")
            runs.append(attempts.begin(conn, trial, run_name=f"at-once-{number}"))

    def work(run: Attempt) -> None:
        for number in range(8):
            with store.write() as conn:
                save(conn, run, f"{run.trial_id}-{number}", number)

    threads = [threading.Thread(target=work, args=[run]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as conn:
        assert totals(conn, first) == [(8, 80), (32, 320)]


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_the_best_of_many_trials_is_the_best_of_all(store: Store, smaller_is_better: bool) -> None:
    """7.2: the best checkpoint of an experiment is the first of all when they are sorted, also of many trials."""
    with store.write() as conn:
        experiment = experiments.create(
            conn, name="e", config={}, owner="ada", searcher_metric="loss", smaller_is_better=smaller_is_better
        )
        assert checkpoints.best(conn, experiment_id=experiment) is None
        for number in range(50):
            run = attempts.begin(conn, trials.create(conn, experiment, hparams={}))
            validate(conn, run, 10, number % 7 / 7)  # the best of a trial is often not saved
            validate(conn, run, 20, (number * 31 % 50) / 50 + 0.5)
            save(conn, run, f"u{number}", 20 if number % 5 else 30)
        best = checkpoints.best(conn, experiment_id=experiment)
        assert best is not None
        assert best.uuid == checkpoints.find(conn, experiment_id=experiment)[0].uuid
