"""Trials and their attempts: numbering, who may report, who is gone, and moving a run to the trial it continues."""

from __future__ import annotations

import os
import threading

import pytest
import sqlalchemy as sa

from determined import _process, errors
from determined.store import attempts, checkpoints, experiments, logs, schema, trials
from determined.store.database.connection import Store
from determined.store.messages import LogLine, MetricReport, Signal
from determined.store.metrics import metric_reports
from tests.unit.store.rooms import START, add_run, finish, minutes, save, validate


def test_a_trial_comes_back(store: Store) -> None:
    """Platform 5.1: all fields of a new trial."""
    with store.write() as conn:
        run = add_run(conn)
        row = trials.get(conn, run.trial_id)
        with pytest.raises(errors.NotFound, match=r"no trial 9 .* det trial ls"):
            trials.get(conn, 9)
    assert (row.experiment_id, row.state, row.hparams, row.attempt) == (1, "RUNNING", {"lr": 0.1}, 1)
    assert (row.start_time, row.end_time, row.metadata, row.summary_metrics) == (START, None, {}, {})


def test_trials_are_sorted(store: Store) -> None:
    """Platform 5.3: by id, metric, batches, duration ...; what has no value last either way."""
    with store.write() as conn:
        run = add_run(conn)
        for value, end in ((0.5, 3), (0.25, 9)):
            ident = trials.create(conn, run.experiment_id, hparams={}, state="COMPLETED", start_time=START)
            trials.update(conn, ident, searcher_metric_value=value, end_time=minutes(end))

        def ids(**order: object) -> list[int]:
            return [row.id for row in trials.of_experiment(conn, run.experiment_id, **order)]  # type: ignore[arg-type]

        assert ids() == [1, 2, 3]
        assert ids(sort_by="best_metric") == [3, 2, 1]
        assert ids(sort_by="best_metric", descending=True) == [2, 3, 1]
        assert ids(sort_by="duration") == [2, 3, 1]
        assert ids(sort_by="id", descending=True, limit=1, offset=1) == [2]
        assert ids(states=("RUNNING",)) == [1]
        trials.update(conn, 3, searcher_metric_value=0.5)
        assert ids(sort_by="best_metric") == ids(sort_by="best_metric", descending=True) == [2, 3, 1], "earlier first"


@pytest.mark.parametrize(
    "metadata",
    [
        {"k" * 51: 1},
        {"k": "v" * 5001},
        {"k": [0] * 101},
        {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"j": {"k": 1}}}}}}}}}}},
    ],
)
def test_metadata_has_limits(store: Store, metadata: dict[str, object]) -> None:
    """Platform 5.1: nesting 10, keys 50 characters, strings 5000, lists 100."""
    with store.write() as conn:
        run = add_run(conn)
        with pytest.raises(errors.InvalidValue, match=r"allowed|nested"):
            trials.set_metadata(conn, run.trial_id, metadata)
        trials.set_metadata(conn, run.trial_id, {"k" * 50: ["v" * 5000] * 100})
        assert list(trials.get(conn, run.trial_id).metadata) == ["k" * 50]


def test_an_unmanaged_experiment_follows_its_trials(store: Store) -> None:
    """Platform 4.13: PAUSED < ERROR < COMPLETED < RUNNING, the furthest counts; a managed one is not touched."""
    with store.write() as conn:
        run = add_run(conn)
        other = trials.create(conn, run.experiment_id, hparams={}, state="RUNNING")
        trials.set_state(conn, run.trial_id, "ERROR", "broke", time=minutes(1))
        assert experiments.get(conn, run.experiment_id).state == "RUNNING"
        trials.set_state(conn, other, "COMPLETED", time=minutes(2))
        assert experiments.get(conn, run.experiment_id).state == "COMPLETED"
        assert experiments.get(conn, run.experiment_id).end_time == minutes(2)
        managed = add_run(conn, managed=True)
        trials.set_state(conn, managed.trial_id, "COMPLETED")
        assert experiments.get(conn, managed.experiment_id).state == "ACTIVE"


def test_attempts_are_numbered_and_named(store: Store) -> None:
    """Platform 4.4: 1, 2, 3..; the task is <experiment>.<request>, the allocation <task>.<attempt>."""
    with store.write() as conn:
        first = add_run(conn)
        second = attempts.begin(conn, first.trial_id, run_name="second", node="here", pid=7, slots=2)
        request = trials.get(conn, first.trial_id).request_id
        assert (first.attempt, second.attempt) == (1, 2)
        assert first.task_id == second.task_id == f"1.{request}"
        assert second.allocation_id == f"1.{request}.2"
        rows = attempts.of_trial(conn, first.trial_id)
        assert [(row.attempt, row.state) for row in rows] == [(1, "TERMINATED"), (2, "RUNNING")]
        assert attempts.of_run(conn, "second") == second
        assert attempts.of_run(conn, "nobody") is None


def test_beginning_twice_is_one_attempt(store: Store) -> None:
    """A process that did not hear the answer asks again, and is still the same attempt."""
    with store.write() as conn:
        run = add_run(conn)
        assert attempts.begin(conn, run.trial_id, run_name=run.run_name) == run
        assert trials.get(conn, run.trial_id).attempt == 1


def test_two_that_begin_at_once_get_two_numbers(store: Store) -> None:
    """Numbers are never given twice, also by processes that start at the same moment."""
    with store.write() as conn:
        run = add_run(conn)
    found: list[int] = []

    def begin(number: int) -> None:
        with store.write() as conn:
            found.append(attempts.begin(conn, run.trial_id, run_name=f"at-once-{number}").attempt)

    threads = [threading.Thread(target=begin, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(2, 10))


def test_an_old_attempt_can_no_longer_report(store: Store) -> None:
    """P-58: it is refused, asked to leave, and nothing changes."""
    with store.write() as conn:
        old = add_run(conn)
        new = attempts.begin(conn, old.trial_id, run_name="new")
        attempts.check_current(conn, new)
        for report in (
            lambda: attempts.check_current(conn, old),
            lambda: attempts.beat(conn, old),
            lambda: save(conn, old, "u", 1),
        ):
            with pytest.raises(errors.StaleAttempt, match="attempt 2 has begun"):
                report()
        assert attempts.signals(conn, old.allocation_id) is Signal.PREEMPT
        assert attempts.signals(conn, new.allocation_id) is Signal.NONE
        assert checkpoints.find(conn, trial_id=old.trial_id) == []


def test_preemption_is_asked_and_acknowledged(store: Store) -> None:
    """The request reaches the attempt that it is for."""
    with store.write() as conn:
        run = add_run(conn)
        attempts.request_preemption(conn, run.allocation_id)
        attempts.acknowledge_preemption(conn, run.allocation_id)
        assert attempts.signals(conn, run.allocation_id) is Signal.PREEMPT
        row = attempts.get(conn, run.allocation_id)
        assert (row.preempt_requested, row.preempt_acked) == (True, True)
        attempts.end(conn, run.allocation_id, exit_code=3, reason="why", time=minutes(1))
        row = attempts.get(conn, run.allocation_id)
        assert (row.state, row.exit_code, row.exit_reason, row.end_time) == ("TERMINATED", 3, "why", minutes(1))


def test_continue_gives_a_new_task(store: Store) -> None:
    """P-59: restarts are counted from 0 and the task id ends in -1, then -2; attempts go on counting."""
    with store.write() as conn:
        run = add_run(conn)
        trials.update(conn, run.trial_id, restarts=2)
        trials.set_state(conn, run.trial_id, "ERROR")
        assert attempts.continue_trial(conn, run.trial_id) == f"{run.task_id}-1"
        assert trials.get(conn, run.trial_id).restarts == 0
        again = attempts.begin(conn, run.trial_id)
        assert (again.task_id, again.attempt) == (f"{run.task_id}-1", 2)
        assert attempts.continue_trial(conn, run.trial_id) == f"{run.task_id}-2"


def test_a_process_that_is_gone_is_noticed(store: Store) -> None:
    """On this machine at once: ERROR, ended when last heard of. A living one stays, however long it is silent."""
    gone = 2**30  # beyond what any kernel gives out
    here = _process.this_node()
    with store.write() as conn:
        dead, living, reused = (add_run(conn) for _ in range(3))
        table = schema.allocations
        for run, pid, began in (
            (dead, gone, 1.0),
            (living, os.getpid(), _process.started()),
            (reused, os.getpid(), 1.0),
        ):
            one = table.c.allocation_id == run.allocation_id
            conn.execute(table.update().where(one).values(node=here, pid=pid, process_started=began))
        attempts.beat(conn, dead, minutes(1))
        assert trials.settle(conn, minutes(600)) == [dead.trial_id, reused.trial_id]
        assert trials.settle(conn, minutes(600)) == []
        row = trials.get(conn, dead.trial_id)
        assert (row.state, row.end_time, row.state_reason) == ("ERROR", minutes(1), trials.GONE)
        assert experiments.get(conn, dead.experiment_id).state == "ERROR"
        assert attempts.get(conn, dead.allocation_id).state == "TERMINATED"
        assert trials.get(conn, living.trial_id).state == "RUNNING"


def test_silence_elsewhere_means_gone(store: Store) -> None:
    """P-70: on another machine, 5 minutes of silence make it ERROR; the same run again is attempt + 1."""
    with store.write() as conn:
        run = add_run(conn, external_experiment_id="ext")
        conn.execute(schema.allocations.update().values(node="elsewhere", pid=1))
        attempts.beat(conn, run, minutes(10))
        assert trials.settle(conn, minutes(14.9)) == []
        assert trials.settle(conn, minutes(15.1)) == [run.trial_id]
        assert trials.get(conn, run.trial_id).end_time == minutes(10)
        again = attempts.begin(conn, run.trial_id, run_name="again", time=minutes(20))
        assert (again.trial_id, again.attempt) == (run.trial_id, 2)
        row = trials.get(conn, run.trial_id)
        assert (row.state, row.end_time) == ("RUNNING", None)


def test_one_that_speaks_after_all_runs_again(store: Store) -> None:
    """A laptop that slept is not an error."""
    with store.write() as conn:
        run = add_run(conn)
        assert trials.settle(conn, minutes(60)) == [run.trial_id]
        attempts.beat(conn, run, minutes(61))
        assert trials.get(conn, run.trial_id).state == "RUNNING"
        assert experiments.get(conn, run.experiment_id).state == "RUNNING"
        assert attempts.get(conn, run.allocation_id).state == "RUNNING"
        trials.set_state(conn, run.trial_id, "ERROR", "its own failure")
        attempts.beat(conn, run, minutes(62))
        assert trials.get(conn, run.trial_id).state == "ERROR"


def test_a_trial_that_was_begun_again_meanwhile_is_not_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many workers start at once and each looks for dead ones: who has just been started again is not among them."""
    with store.write() as conn:
        run = add_run(conn)
        here = {"node": _process.this_node(), "pid": 2**30, "process_started": 1.0}
        conn.execute(schema.allocations.update().values(here))

        def begun_again(*_: object) -> bool:
            attempts.begin(conn, run.trial_id, run_name="again")
            return False

        monkeypatch.setattr(_process, "is_alive", begun_again)
        assert trials.settle(conn) == []
        assert trials.get(conn, run.trial_id).state == "RUNNING"


def test_an_experiment_ends_with_trials_that_end_at_once(store: Store) -> None:
    """Two trials that end in transactions that do not see each other: the experiment has ended too."""
    with store.write() as conn:
        run = add_run(conn)
        second = trials.create(conn, run.experiment_id, hparams={}, state="RUNNING")

    def end_second() -> None:
        with store.write() as conn:
            trials.set_state(conn, second, "COMPLETED")

    other = threading.Thread(target=end_second)
    with store.write() as conn:
        trials.set_state(conn, run.trial_id, "COMPLETED")
        other.start()
        other.join(0.5)  # it waits for us
    other.join()
    with store.read() as conn:
        assert experiments.get(conn, run.experiment_id).state == "COMPLETED"


def test_managed_trials_are_not_settled(store: Store) -> None:
    """Their controller judges them."""
    with store.write() as conn:
        add_run(conn, managed=True)
        assert trials.settle(conn, minutes(600)) == []


def test_a_run_moves_to_the_trial_it_continues(store: Store) -> None:
    """Logs, samples and the attempt move; the experiment that was made for the run disappears."""
    with store.write() as conn:
        old = add_run(conn)
        validate(conn, old, 10, 0.5)
        finish(conn, old, "ERROR")
        new = add_run(conn)
        logs.append(conn, new, [LogLine("hello", "stdout")])
        metric_reports.append(conn, new, [MetricReport("cpu", {"load": 0.5})])
        moved = attempts.move(conn, str(new.run_name), old.trial_id)
        assert (moved.trial_id, moved.attempt, moved.run_name) == (old.trial_id, 2, new.run_name)
        assert attempts.of_run(conn, str(new.run_name)) == moved
        assert attempts.move(conn, str(new.run_name), old.trial_id) == moved
        assert [row.id for row in experiments.find(conn)] == [old.experiment_id]
        lines = logs.read(conn, old.trial_id)
        assert [(line.text, line.allocation_id) for line in lines] == [("hello", moved.allocation_id)]
        assert [row.group for row in metric_reports.rows(conn, [old.trial_id], "cpu")] == ["cpu"]
        row = trials.get(conn, old.trial_id)
        assert (row.state, row.end_time, row.attempt) == ("RUNNING", None, 2)
        assert experiments.get(conn, old.experiment_id).state == "RUNNING"
        validate(conn, moved, 10, 0.25)
        assert conn.scalar(sa.select(sa.func.count()).select_from(schema.tasks)) == 1


def test_a_run_with_results_does_not_move(store: Store) -> None:
    """It has become something of its own; nothing changes."""
    with store.write() as conn:
        old, new = add_run(conn), add_run(conn)
        validate(conn, new, 10, 0.5)
        with pytest.raises(errors.Refused, match="results of its own"):
            attempts.move(conn, str(new.run_name), old.trial_id)
        assert attempts.of_run(conn, str(new.run_name)) == new
        with pytest.raises(errors.NotFound):
            attempts.move(conn, "nobody", old.trial_id)
