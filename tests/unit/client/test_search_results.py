"""The trials of a search as a table: which hyperparameters differ, how they were declared, and who is best."""

from __future__ import annotations

import math

import pytest
import sqlalchemy as sa

from determined.client import Determined
from determined.client._search import savings
from determined.client._search.results import Hyperparameter, learning_curves
from determined.client.following.replay import Ladder
from determined.errors import NotFound
from determined.experiment.search.rung_table import RungRow, RungTrial
from determined.store.trials import TrialBrief
from tests.history import History

DECLARED = {
    "optimizer": {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "name": {"type": "categorical", "vals": ["sgd", "adam"]},
    },
    "layers": {"type": "int", "minval": 1, "maxval": 4},
    "width": {"type": "const", "val": 64},
}


def make(history: History, searcher: str = "random", *, name: str = "search") -> int:
    config = {"searcher": {"name": searcher, "metric": "loss"}, "hyperparameters": DECLARED}
    experiment = history.experiment(name, config=config, unmanaged=False)
    for lr, kind, layers, values in (
        (1e-3, "adam", 2, {100: 0.9, 200: 0.4}),
        (1e-2, "sgd", 1, {100: 0.3}),
        (1e-4, "adam", 2, {100: 0.8, 200: 0.6}),
        (1e-1, "sgd", 4, {100: math.nan}),
    ):
        hparams = {"optimizer": {"lr": lr, "name": kind}, "layers": layers, "width": 64}
        history.trial(experiment, hparams=hparams, validation=values, training={100: {"loss": 2 * lr}})
    return experiment


def test_what_differs_is_there_as_it_was_declared(history: History, runs: Determined) -> None:
    """Nested names have dots; log and categorical are known from the config; constants are left out."""
    found = runs.get_experiment(make(history)).search_results()
    assert found.hyperparameters == [
        Hyperparameter("layers", is_whole=True),
        Hyperparameter("optimizer.lr", is_log=True),
        Hyperparameter("optimizer.name", ("sgd", "adam")),
    ]
    assert found.metric == "validation.loss"
    assert [(result.trial_id, result.value) for result in found.results] == [(2, 0.3), (1, 0.4), (3, 0.6), (4, None)]


@pytest.mark.parametrize(
    ("searcher", "order"), [("random", [2, 1, 3]), ("grid", [2, 1, 3]), ("adaptive_asha", [2, 1, 3])]
)
def test_the_best_is_first_then_by_metric(history: History, runs: Determined, searcher: str, order: list[int]) -> None:
    """Random and grid: by metric. A search that stops trials: the best one, then the longest, then by metric."""
    found = runs.get_experiment(make(history, searcher)).search_results()
    assert [result.trial_id for result in found.top(10)] == order
    assert [result.trial_id for result in found.top(1)] == order[:1]
    assert [result.is_stopped for result in found.top(10)] == [searcher == "adaptive_asha", False, False]


def test_a_search_that_stops_prefers_long_trials(history: History, runs: Determined) -> None:
    """A short trial with a good value comes after longer ones."""
    config = {"searcher": {"name": "async_halving", "metric": "loss"}}
    experiment = history.experiment("asha", config=config, unmanaged=False)
    for values in ({100: 0.5}, {100: 0.6, 200: 0.1}, {100: 0.9, 200: 0.8}, {100: 0.4}):
        history.trial(experiment, validation=values)
    found = runs.get_experiment(experiment).search_results()
    assert [result.trial_id for result in found.top(3)] == [2, 3, 4]


def test_another_metric_may_be_looked_at(history: History, runs: Determined) -> None:
    """`training.loss` names the group; what is better can be said."""
    experiment = runs.get_experiment(make(history))
    assert experiment.search_results("training.loss").results[0].trial_id == 3
    worst_first = experiment.search_results("training.loss", smaller_is_better=False)
    assert worst_first.results[0].trial_id == 4


def test_an_unknown_metric_is_a_sentence_with_names(history: History, runs: Determined) -> None:
    """Nobody reported it: the message has the names that exist. Nothing at all: it says so."""
    with pytest.raises(NotFound, match=r"reported no 'lossy'. There is: validation.loss, training.loss\.$"):
        runs.get_experiment(make(history)).search_results("lossy")
    with pytest.raises(NotFound, match=r"Experiment 2 has no trials yet\.$"):
        runs.get_experiment(history.experiment("empty", unmanaged=False)).search_results()
    silent = history.experiment("silent", unmanaged=False)
    history.trial(silent)
    with pytest.raises(NotFound, match=r"has reported no metric yet\.$"):
        runs.get_experiment(silent).search_results()
    nameless = history.experiment("nameless", unmanaged=False, metric=None)
    history.trial(nameless, validation={1: 0.5})
    with pytest.raises(NotFound, match=r"names no searcher metric. Name one: validation.loss\.$"):
        runs.get_experiment(nameless).search_results()


def test_reads_do_not_grow_with_the_trials(history: History, runs: Determined) -> None:
    """5.3: a picture of sixty trials asks the store as often as one of four."""
    small = runs.get_experiment(make(history))
    large = history.experiment("large", unmanaged=False)
    for number in range(60):
        history.trial(large, hparams={"lr": number}, validation={100: 1.0, 200: 0.5})
    asked: list[int] = []
    for experiment in (small, runs.get_experiment(large)):
        experiment.search_results()  # the first one reads the config, and looks for runs that died
        count = 0

        def note(*_: object) -> None:
            nonlocal count
            count += 1

        engine = experiment._session.store._engine
        sa.event.listen(engine, "before_cursor_execute", note)
        found = experiment.search_results()
        curves = learning_curves(experiment, [r.trial_id for r in found.top(200)], found.metric)
        sa.event.remove(engine, "before_cursor_execute", note)
        assert len(curves) == len(found.measured)
        asked.append(count)
    assert asked[0] == asked[1]


def test_savings_count_what_the_search_ended() -> None:
    """8.2: trials that failed or still run count for nothing; without a training to the end nothing is claimed."""

    def trial(request_id: str, batches: int, state: str = "COMPLETED") -> TrialBrief:
        return TrialBrief(1, request_id, state, {}, batches, {})

    rows = [RungRow(1, 1, 4, "epochs", 0, 0, 0, None), RungRow(1, 2, 16, "epochs", 0, 0, 0, None)]
    top = [RungTrial("b", 0.1, is_stopped_here=True, is_waiting=False)]
    searcher = {"time_metric": "epochs", "max_time": 16}
    trials = [trial("a", 100), trial("b", 400), trial("c", 130), trial("d", 900, "ERROR"), trial("e", 0)]
    found = savings.of(trials, Ladder(rows, {(1, 2): top}), searcher)
    assert (found.trials, found.to_the_end, found.batches_trained, found.batches_full) == (3, 1, 630, 1200)
    assert str(found) == "Stopping early saved 48 % of 1,200 batches."
    going = savings.of([*trials, trial("f", 10, "ACTIVE")], Ladder(rows, {(1, 2): top}), searcher)
    assert str(going).endswith("1,200 batches so far.")
    unknown = savings.of(trials, Ladder(rows, {}), searcher)
    assert (unknown.batches_full, unknown.share) == (0, 0.0)
    assert "not known" in str(unknown)
    assert savings.of(trials, Ladder(rows, {}), {"time_metric": "batches", "max_time": 120}).batches_trained == 340
