"""An experiment that is looked at again and again."""

from __future__ import annotations

import datetime

import pytest

from determined import errors
from determined.client import Determined
from determined.client.following.progress import TimeLeft
from tests.history import START, History
from tests.launchers import submit
from tests.running import Search


def test_a_trial_is_shown_by_its_processes(history: History, runs: Determined) -> None:
    """4.1: an ACTIVE trial or experiment is QUEUED, STARTING or RUNNING, by the most advanced of its allocations."""
    search = Search(history)
    follower = runs.get_experiment(search.id).follower()
    assert (follower.read().state, dict(follower.read().trials)) == ("QUEUED", {})
    first, second = search.queue(lr=0.1), search.queue(lr=0.2)
    view = follower.read()
    assert [trial.state for trial in view.trials.values()] == ["QUEUED", "QUEUED"]
    search.start(first, "ASSIGNED", slots=2)
    view = follower.read()
    assert (view.state, view.slots, view.trials[first.trial_id].state) == ("STARTING", 2, "STARTING")
    search.set_allocation(first, "RUNNING")
    view = follower.read()
    assert (view.state, view.counts()) == ("RUNNING", {"RUNNING": 1, "QUEUED": 1})
    search.end(first)
    search.set_state("PAUSED")
    view = follower.read()
    assert (view.state, view.slots) == ("PAUSED", 0)
    assert view.trials[first.trial_id].has_ended
    assert view.trials[second.trial_id].hparams == {"lr": 0.2}


def test_objects_say_what_active_means(history: History, runs: Determined) -> None:
    """4.1, 7.6: the state of an ACTIVE experiment or trial is QUEUED, STARTING or RUNNING, in lists, too."""
    search = Search(history)
    run = search.queue()
    for allocation, shown in ((None, "QUEUED"), ("ASSIGNED", "STARTING"), ("RUNNING", "RUNNING")):
        if allocation == "ASSIGNED":
            search.start(run, allocation)
        elif allocation:
            search.set_allocation(run, allocation)
        assert str(runs.get_experiment(search.id).state) == shown
        assert [str(each.state) for each in runs.list_experiments()] == [shown]
        assert [str(each.state) for each in runs.get_experiment(search.id).list_trials()] == [shown]
        assert runs.get_trial(run.trial_id).to_dict()["state"] == shown


def test_what_was_submitted_is_queued(history: History, runs: Determined) -> None:
    """4.3: until the controller has come to it, an experiment that was submitted waits, and is not paused."""
    config = {"searcher": {"name": "single", "metric": "loss"}}
    assert runs.get_experiment(submit(history.store, config)).follower().read().state == "QUEUED"
    assert Search(history, state="PAUSED").id
    assert runs.get_experiment(2).follower().read().state == "PAUSED"


def test_only_what_may_have_changed_is_read(history: History, runs: Determined) -> None:
    """A look reads new trials and those that had not ended; a trial that ended is read once more, then never again."""
    search = Search(history)
    ended, going = search.start(search.queue()), search.start(search.queue())
    follower = runs.get_experiment(search.id).follower()
    assert list(follower.read().changed) == [ended.trial_id, going.trial_id]
    search.end(ended)
    assert list(follower.read().changed) == [ended.trial_id, going.trial_id]
    new = search.queue()
    assert list(follower.read().changed) == [going.trial_id, new.trial_id]
    search.end(going)
    search.end(search.start(new))
    follower.read()
    view = follower.read()
    assert list(view.changed) == []
    assert len(view.trials) == 3


def test_a_trial_that_is_continued_is_read_again(history: History, runs: Determined) -> None:
    """4.7: a trial that had ended may run again."""
    from determined.store import trials

    search = Search(history)
    run = search.start(search.queue())
    search.end(run, "ERROR")
    follower = runs.get_experiment(search.id).follower()
    follower.read()
    assert list(follower.read().changed) == []
    with history.store.write() as conn:
        trials.set_state(conn, run.trial_id, "ACTIVE")
    assert follower.read().trials[run.trial_id].state == "QUEUED"


def test_the_best_comes_first_whatever_is_better(history: History, runs: Determined) -> None:
    """Trials are ranked by the searcher metric, those without a value not at all; of equal ones the earlier leads."""
    search = Search(history)
    ids = []
    for value in (0.5, None, 0.2, 0.2):
        run = search.start(search.queue())
        ids.append(run.trial_id)
        history.report(run, "validation", {} if value is None else {10: value})
    view = runs.get_experiment(search.id).follower().read()
    assert [trial.id for trial in view.ranked()] == [ids[2], ids[3], ids[0]]
    assert (view.best() or view.ranked()[0]).best == 0.2


def test_restarts_and_time_are_those_of_all_attempts(history: History, runs: Determined) -> None:
    """4.6: restarts are shown as min(restarts, max_restarts); time is that of all attempts together."""
    from determined.store import trials

    search = Search(history)
    run = search.start(search.queue())
    history.tick(9)
    search.end(run, "ACTIVE")
    history.tick(100)
    search.start(run)
    history.tick(4)
    search.end(run, "ERROR")
    with history.store.write() as conn:
        trials.update(conn, run.trial_id, restarts=3)
    [trial] = runs.get_experiment(search.id).follower().read().trials.values()
    assert (trial.restarts, trial.seconds) == (2, 15.0)


def test_an_experiment_that_is_not_there(runs: Determined) -> None:
    """What is gone is said, with what to type."""
    with pytest.raises(errors.NotFound, match="There is no experiment 99"):
        runs.get_experiment(99)


def test_the_time_left_is_guessed_from_progress() -> None:
    """Nothing is guessed at the very start or in a pause; then by the whole run, and later by what was seen lately."""

    def at(seconds: float) -> datetime.datetime:
        return START + datetime.timedelta(seconds=seconds)

    left = TimeLeft()
    assert left.estimate(0.001, at(5), is_running=True, since=START) is None
    assert left.estimate(None, at(5), is_running=True, since=START) is None
    assert left.estimate(0.25, at(30), is_running=True, since=START) == pytest.approx(90.0)
    assert left.estimate(0.25, at(30), is_running=False, since=START) is None
    for minute in range(6):
        guess = left.estimate(0.5 + 0.05 * minute, at(1000 + 60 * minute), is_running=True, since=START)
    assert guess == pytest.approx(0.25 / 0.05 * 60), "by what was seen, not by the long time before"
    assert left.estimate(1.0, at(2000), is_running=True, since=START) is None
