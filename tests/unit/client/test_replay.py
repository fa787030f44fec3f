"""The events of a search, replayed: its rungs, the places of its trials, and whether the rows agree."""

from __future__ import annotations

import itertools

import pytest

from determined import errors
from determined.client import Determined
from determined.store import experiments, trials
from tests.asha import ASHA, drive
from tests.history import History
from tests.launchers import submit


@pytest.fixture
def ended(history: History) -> int:
    """An ASHA search that has come to its end."""
    ident = submit(history.store, ASHA)
    drive(history)
    return ident


def test_the_rungs_of_a_search(history: History, runs: Determined, ended: int) -> None:
    """Issue 14: who arrived at each rung, who went on, who ended there; each trial ends at exactly one rung."""
    rows = runs.get_experiment(ended).rungs()
    assert [(row.bracket, row.rung, row.units) for row in rows] == [
        (1, 1, 1), (1, 2, 2), (1, 3, 4), (2, 1, 2), (2, 2, 4)
    ]  # fmt: skip
    assert sum(row.stopped for row in rows) == 8
    for lower, upper in itertools.pairwise(rows):
        if lower.bracket == upper.bracket:
            assert lower.passed == upper.arrived
    best = min(row.best for row in rows if row.best is not None)
    assert best == runs.get_experiment(ended).best_metric
    assert [row.to_dict()["stopped"] for row in rows] == [row.stopped for row in rows]


def test_other_searches_have_no_rungs(history: History, runs: Determined) -> None:
    """A search without rungs has none, and neither has a run of `python train.py`."""
    ident = submit(history.store, {**ASHA, "searcher": {"name": "random", "metric": "loss", "max_trials": 2}})
    assert runs.get_experiment(ident).rungs() == []
    assert runs.get_experiment(history.run().experiment_id).rungs() == []


def test_a_view_has_the_place_of_each_trial(history: History, runs: Determined) -> None:
    """Issue 14: the live table has the rung of each trial, of those that have exited, too; it follows new events."""
    ident = submit(history.store, ASHA)
    follower = runs.get_experiment(ident).follower()
    assert dict(follower.read().trials) == {}
    drive(history)
    places = [trial.rung for trial in follower.read().trials.values()]
    rows = runs.get_experiment(ident).rungs()
    assert len(places) == 8
    judged = sum(int(place.partition("/")[0]) for place in places)
    assert judged == sum(row.arrived for row in rows)
    assert {place.partition("/")[2] for place in places} == {"2", "3"}


def test_events_and_rows_agree(history: History, runs: Determined, ended: int) -> None:
    """Issue 14: replaying the events gives the stored trials, states and rungs; also in the middle of a search."""
    found = runs.get_experiment(ended).verify()
    assert (found.differences, found.trials) == ([], 8)
    assert found.events > 20
    going = submit(history.store, ASHA)
    drive(history, rounds=5)
    middle = runs.get_experiment(going).verify()
    assert middle.differences == []
    assert not runs.get_experiment(going).state.is_terminal


def test_each_difference_is_found(history: History, runs: Determined, ended: int) -> None:
    """What is stored otherwise than the events say is named, with both values."""
    with history.store.write() as conn:
        first, second, third, *_ = trials.of_experiment(conn, ended)
        trials.update(conn, first.id, hparams={"lr": 0.5}, restarts=3)
        trials.set_state(conn, second.id, "ERROR")
        trials.update(conn, third.id, seed=1)
        trials.create(conn, ended, hparams={}, request_id="stray")
        experiments.set_state(conn, ended, "ERROR")
    found = runs.get_experiment(ended).verify().differences
    assert found[0] == "The experiment: state is stored as 'ERROR', and the events give 'COMPLETED'."
    assert found[1] == "Trial 9 is stored, and no event created it."
    assert found[2].startswith("Trial 1: hyperparameters is stored as {'lr': 0.5}, and the events give {'lr': ")
    assert found[3] == "Trial 1: restarts is stored as 3, and the events give 0."
    assert found[4] == "Trial 2: state is stored as 'ERROR', and the events give 'COMPLETED'."
    assert found[5].startswith("Trial 3: seed is stored as 1, and the events give ")
    assert len(found) == 6


def test_a_snapshot_that_differs_is_found(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rungs of the last snapshot are compared, too: the controller would go on from them."""
    monkeypatch.setattr("determined.experiment.controller.managed.FEWEST_EVENTS", 4)
    ident = submit(history.store, ASHA)
    drive(history, rounds=8)
    with history.store.write() as conn:
        snapshot = experiments.get(conn, ident).searcher_snapshot
        assert snapshot is not None
        snapshot["engine"]["searcher"]["method"]["brackets"][0]["rungs"][0]["worst"] += 1
        experiments.update(conn, ident, searcher_snapshot=snapshot)
    [found] = runs.get_experiment(ident).verify().differences
    assert found.startswith("Rung 1 of bracket 1: snapshot is stored as {")


def test_a_run_by_hand_has_no_events(history: History, runs: Determined) -> None:
    """What no controller drove cannot be replayed, and that is said."""
    with pytest.raises(errors.Refused, match="was not started by a controller"):
        runs.get_experiment(history.run().experiment_id).verify()
