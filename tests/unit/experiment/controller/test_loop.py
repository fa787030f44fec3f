"""The controller, with trials that are generators: what it starts, when, and what becomes of it when it dies."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from determined import errors
from determined.experiment.controller import history
from determined.experiment.controller.loop import Controller
from determined.store import attempts, events, experiments, trials
from determined.store.control import controllers, pending
from determined.store.database.connection import Store
from tests.launchers import Running, ScriptedLauncher, ask, states, submit

SINGLE: dict[str, Any] = {"searcher": {"name": "single", "metric": "loss"}, "max_restarts": 0}
SPACE = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}}
RANDOM: dict[str, Any] = {
    "hyperparameters": SPACE,
    "searcher": {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 2},
    "max_restarts": 0,
    "reproducibility": {"experiment_seed": 7},
}
ASHA: dict[str, Any] = {
    **RANDOM,
    "searcher": {
        "name": "adaptive_asha", "metric": "loss", "max_trials": 16, "time_metric": "batches", "max_time": 16,
        "max_concurrent_trials": 4,
    },
}  # fmt: skip


def trains(running: Running, length: int = 16) -> Iterator[None]:
    """Validate after every batch; the better the closer lr is to 0.01. Save and leave when asked to."""
    lr = running.task.hparams.get("lr", 0.01)
    assert isinstance(lr, float)
    for step in range(running.task.steps_completed + 1, length + 1):
        yield
        if running.should_stop:
            running.save(step - 1)
            running.acknowledge()
            return
        running.validate(step, loss=abs(lr - 0.01) + 1.0 / step)
    running.save(length)


def fails(running: Running) -> Iterator[None]:
    yield
    running.code = 1


def run(store: Store, launcher: ScriptedLauncher, rounds: int = 5000) -> Controller:
    """Drive what there is to its end."""
    controller = Controller(store, launcher)
    assert controller.take_lease()
    for _ in range(rounds):
        if not controller.round():
            break
        launcher.wait(0)
    else:
        raise AssertionError("it does not come to an end")
    with store.write() as conn:
        assert controllers.leave(conn, controller._holder)
    return controller


def summary(store: Store, experiment_id: int) -> dict[str, Any]:
    """What must not depend on crashes: trials, rungs and the best one."""
    with store.read() as conn:
        engine = history.replay(conn, experiment_id)
        rows = trials.of_experiment(conn, experiment_id)
        best = experiments.get(conn, experiment_id).best_metric
    method = engine.searcher.snapshot()["method"]
    return {"trials": [(row.request_id, row.hparams, row.state) for row in rows], "method": method, "best": best}


def test_a_single_trial_runs_to_its_end(store: Store) -> None:
    """One trial, one attempt, COMPLETED with progress 1.0, and nothing is left pending."""
    ident = submit(store, SINGLE)
    launcher = ScriptedLauncher(store, trains)
    run(store, launcher)
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"])
    with store.read() as conn:
        assert experiments.get(conn, ident).progress == 1.0
        assert not pending.waits(conn)
        assert [row.attempt for row in attempts.of_trial(conn, 1)] == [1]
    assert launcher.started[0].trial_seed >= 0


def test_failures_are_restarted(store: Store) -> None:
    """P-47: a script that fails with max_restarts 2 is launched three times, then trial and experiment are ERROR."""
    ident = submit(store, {**SINGLE, "max_restarts": 2})
    launcher = ScriptedLauncher(store, fails)
    run(store, launcher)
    assert len(launcher.started) == 3
    assert states(store, ident) == ("ERROR", ["ERROR"])


def test_a_matched_policy_cancels_retries(store: Store) -> None:
    """P-48: a failure whose log matched a `cancel_retries` policy is not tried again, and restarts stay 0."""

    def matches(running: Running) -> Iterator[None]:
        running.matched_policy = "'CUDA' matched 'CUDA out of memory'"
        return fails(running)

    ident = submit(store, {**SINGLE, "max_restarts": 2})
    launcher = ScriptedLauncher(store, matches)
    run(store, launcher)
    assert len(launcher.started) == 1
    with store.read() as conn:
        trial = trials.get(conn, 1)
    assert (trial.restarts, trial.state) == (0, "ERROR")
    assert "CUDA out of memory" in trial.state_reason
    assert states(store, ident)[0] == "ERROR"


def test_no_more_trials_at_once_than_slots(store: Store) -> None:
    """P-34: never more trials run than there are slots, and random creates max_trials in total."""
    ident = submit(store, RANDOM)
    launcher = ScriptedLauncher(store, trains, count=1)
    run(store, launcher)
    assert launcher.most_at_once == 1
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"] * 4)


def test_the_same_seed_gives_the_same_search(store: Store) -> None:
    """On one slot two runs of one config have equal trials, rungs and best value, and the replay agrees with rows."""
    found = []
    for _ in range(2):
        ident = submit(store, ASHA)
        run(store, ScriptedLauncher(store, trains, count=1))
        found.append(summary(store, ident))
    assert found[0] == found[1]
    assert len(found[0]["trials"]) == 16


@pytest.mark.parametrize("slots", [1, 2])
def test_a_controller_that_dies_after_every_round_changes_nothing(sqlite_store: Store, slots: int) -> None:
    """P-45: with a new controller for every round, the search decides as one that was never disturbed."""
    undisturbed = submit(sqlite_store, ASHA)
    run(sqlite_store, ScriptedLauncher(sqlite_store, trains, count=slots))
    ident = submit(sqlite_store, ASHA)
    launcher = ScriptedLauncher(sqlite_store, trains, count=slots)
    for _ in range(5000):
        controller = Controller(sqlite_store, launcher)
        with sqlite_store.write() as conn:
            controllers.leave(conn, controller._holder, even_with_events=True)
            conn.exec_driver_sql("DELETE FROM controllers")
        assert controller.take_lease()
        if not controller.round():
            break
        launcher.wait(0)
    assert summary(sqlite_store, ident) == summary(sqlite_store, undisturbed)
    tries = [task.trial_id for task in launcher.started]
    assert len(tries) == len(set(tries)), "nothing was started twice"


def test_a_failing_transaction_is_as_if_nothing_had_happened(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of the controller that is rolled back leaves store and engine agreeing; nothing happens twice."""
    undisturbed = submit(sqlite_store, ASHA)
    run(sqlite_store, ScriptedLauncher(sqlite_store, trains, count=1))
    ident = submit(sqlite_store, ASHA)
    launcher = ScriptedLauncher(sqlite_store, trains, count=1)
    controller = Controller(sqlite_store, launcher)
    assert controller.take_lease()
    chance, record = random.Random(3), history.record

    def fails_now_and_then(*args: Any) -> int:
        done = record(*args)
        if chance.random() < 0.3:
            raise errors.StoreUnavailable("the disk is full")
        return done

    monkeypatch.setattr(history, "record", fails_now_and_then)
    for _ in range(5000):
        with contextlib.suppress(errors.StoreUnavailable):
            if not controller.round():
                break
        launcher.wait(0)
    monkeypatch.undo()
    assert summary(sqlite_store, ident) == summary(sqlite_store, undisturbed)


def test_a_paused_experiment_gives_up_its_slots_and_goes_on(store: Store) -> None:
    """P-49: paused, the trial saves and leaves; activated, attempt 2 goes on from its newest checkpoint."""
    ident = submit(store, SINGLE)
    launcher = ScriptedLauncher(store, trains)
    controller = Controller(store, launcher)
    assert controller.take_lease()
    for _ in range(5):
        controller.round()
        launcher.wait(0)
    ask(store, ident, "REQUEST", action="pause")
    while controller.round():
        launcher.wait(0)
    assert states(store, ident) == ("PAUSED", ["PAUSED"])
    ask(store, ident, "REQUEST", action="activate")
    while controller.round():
        launcher.wait(0)
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"])
    _, second = launcher.started
    assert second.attempt == 2
    assert second.steps_completed > 0
    assert second.latest_checkpoint == f"0001-1-{second.steps_completed}"


def test_created_paused_and_canceled_nothing_ever_runs(store: Store) -> None:
    """P-53: created paused, the first trials exist in PAUSED; canceled, they are CANCELED and no process ever ran."""
    ident = submit(store, RANDOM, paused=True)
    launcher = ScriptedLauncher(store, trains)
    run(store, launcher)
    assert states(store, ident) == ("PAUSED", ["PAUSED", "PAUSED"])
    ask(store, ident, "REQUEST", action="cancel")
    run(store, launcher)
    assert states(store, ident) == ("CANCELED", ["CANCELED", "CANCELED"])
    assert launcher.started == []


def test_a_lost_agent_charges_no_restart(store: Store) -> None:
    """P-66: an attempt whose agent vanishes is followed by another, from the newest checkpoint; restarts stay 0."""
    ident = submit(store, SINGLE)
    launcher = ScriptedLauncher(store, trains)
    controller = Controller(store, launcher)
    assert controller.take_lease()
    controller.round()
    launcher.lose(launcher.started[0].allocation_id)
    while controller.round():
        launcher.wait(0)
    assert [task.attempt for task in launcher.started] == [1, 2]
    with store.read() as conn:
        assert trials.get(conn, 1).restarts == 0
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"])


def test_priority_and_max_slots_decide_who_starts(store: Store) -> None:
    """A smaller priority starts first, then the earlier submission; an experiment uses at most its max_slots."""
    late = submit(store, {**RANDOM, "resources": {"priority": 50}})
    early = submit(store, {**RANDOM, "resources": {"priority": 10, "max_slots": 1}})
    launcher = ScriptedLauncher(store, trains, count=2)
    run(store, launcher)
    assert [task.experiment_id for task in launcher.started[:2]] == [early, late]
    assert states(store, early)[0] == states(store, late)[0] == "COMPLETED"


def test_continue_runs_what_has_not_completed(store: Store) -> None:
    """P-60: continued, a grid with one COMPLETED and one killed trial runs only the killed one, and what is left."""
    config = {
        "hyperparameters": {"lr": {"type": "double", "minval": 0.01, "maxval": 0.03, "count": 3}},
        "searcher": {"name": "grid", "metric": "loss", "max_concurrent_trials": 2},
    }
    ident = submit(store, config)

    def first_only(running: Running) -> Iterator[None]:
        return trains(running, 2 if running.task.trial_id == 1 else 10_000)

    launcher = ScriptedLauncher(store, first_only)
    controller = Controller(store, launcher)
    assert controller.take_lease()
    for _ in range(6):
        controller.round()
        launcher.wait(0)
    ask(store, ident, "REQUEST", action="kill")
    while controller.round():
        launcher.wait(0)
    assert states(store, ident) == ("CANCELED", ["COMPLETED", "CANCELED", "CANCELED"])
    ask(store, ident, "CONTINUED")
    ask(store, ident, "REQUEST", action="activate")
    launcher.script, before = trains, len(launcher.started)
    while controller.round():
        launcher.wait(0)
    again = launcher.started[before:]
    assert sorted(task.trial_id for task in again) == [2, 3]
    assert all(task.task_id.endswith("-1") for task in again)
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"] * 3)


def test_a_single_trial_is_continued_with_more_restarts(store: Store) -> None:
    """P-59: what was before is replayed with the restarts it had then, so another controller can go on, too."""
    ident = submit(store, SINGLE)
    launcher = ScriptedLauncher(store, fails)
    run(store, launcher)
    assert states(store, ident) == ("ERROR", ["ERROR"])
    with store.write() as conn:
        row = experiments.get(conn, ident)
        history.replace_config(conn, row, {**(row.config or {}), "max_restarts": 1})
    ask(store, ident, "CONTINUED")
    ask(store, ident, "REQUEST", action="activate")
    run(store, launcher)
    assert [task.task_id.endswith("-1") for task in launcher.started] == [False, True, True]
    assert states(store, ident) == ("ERROR", ["ERROR"])
    with store.read() as conn:
        assert trials.get(conn, 1).restarts == 1
        assert history.replay(conn, ident).state.value == "ERROR"


def test_a_single_trial_is_continued_with_the_changed_value(store: Store) -> None:
    """4.7: a failed single trial that is continued with another constant trains with it, and the replay knows it."""
    ident = submit(
        store, {**SINGLE, "hyperparameters": {"lr": 0.5, "depth": {"type": "int", "minval": 1, "maxval": 9}}}
    )
    launcher = ScriptedLauncher(store, fails)
    run(store, launcher)
    with store.write() as conn:
        row = experiments.get(conn, ident)
        config: dict[str, Any] = row.config or {}
        changed = {**config["hyperparameters"], "lr": {"type": "const", "val": 0.25}}
        history.replace_config(conn, row, {**config, "hyperparameters": changed, "max_restarts": 1})
    ask(store, ident, "CONTINUED")
    ask(store, ident, "REQUEST", action="activate")
    launcher.script = trains
    run(store, launcher)
    first, second = (task.hparams for task in launcher.started)
    assert (first["lr"], second["lr"]) == (0.5, 0.25)
    assert first["depth"] == second["depth"]
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"])
    with store.read() as conn:
        assert history.replay(conn, ident).state.value == "COMPLETED"


def test_only_one_controller_holds_the_lease(store: Store) -> None:
    """A second controller steps back while the first is alive, and takes over when it is gone."""
    first, second = (Controller(store, ScriptedLauncher(store, trains)) for _ in range(2))
    assert first.take_lease()
    assert not second.take_lease()
    with store.write() as conn:
        assert controllers.leave(conn, first._holder)
    assert second.take_lease()
    assert not first.take_lease()


def test_a_request_that_comes_too_late_is_recorded(store: Store) -> None:
    """A request that the state no longer allows changes nothing, and is kept with its reason."""
    ident = submit(store, SINGLE)
    run(store, ScriptedLauncher(store, trains))
    ask(store, ident, "REQUEST", action="pause")
    run(store, ScriptedLauncher(store, trains))
    with store.read() as conn:
        (refused,) = events.of_experiment(conn, ident, kinds=("REFUSED",))
    assert "COMPLETED" in refused.body["reason"]
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"])


def test_invalid_hyperparameters_are_replaced(store: Store) -> None:
    """P-37: where the first trial raises InvalidHP, random max_trials 3 has 4 trials, of which 3 trained."""

    def first_is_invalid(running: Running) -> Iterator[None]:
        if running.task.trial_id == 1:
            running.invalid()
            yield
            return
        yield from trains(running)

    config = {**RANDOM, "searcher": {**RANDOM["searcher"], "max_trials": 3}}
    ident = submit(store, config)
    run(store, ScriptedLauncher(store, first_is_invalid))
    assert states(store, ident) == ("COMPLETED", ["COMPLETED"] * 4)


def test_one_experiment_that_cannot_be_driven_leaves_the_others_alone(store: Store) -> None:
    """An event that the controller cannot handle ends its own experiment with the reason; others go on."""
    broken, sound = submit(store, SINGLE), submit(store, SINGLE)
    ask(store, broken, "NONSENSE", trial_id=None)
    with store.write() as conn:
        pending.append(conn, broken, "REQUEST", {"action": "dance"})
    run(store, ScriptedLauncher(store, trains))
    assert states(store, sound) == ("COMPLETED", ["COMPLETED"])
    state, _ = states(store, broken)
    assert state == "ERROR"


def test_a_controller_whose_store_was_removed_leaves(sqlite_store: Store) -> None:
    """A controller does not wait for ever for a store whose file is gone."""
    submit(sqlite_store, SINGLE)
    controller = Controller(sqlite_store, ScriptedLauncher(sqlite_store, trains))
    assert controller.take_lease()
    sqlite_store.close()
    assert sqlite_store.path is not None
    for path in sqlite_store.path.parent.glob(f"{sqlite_store.path.name}*"):
        path.unlink()
    controller.run()
