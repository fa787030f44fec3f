"""Searches played on synthetic curves: what trials cost, how they end, and that nothing depends on anything else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import errors
from determined.experiment import hparams
from determined.experiment.lifecycle import State
from determined.experiment.search.base import Action, Pause, Resume, SearchContext, SearchMethod, Shutdown
from determined.experiment.simulation.curves import Landscape
from determined.experiment.simulation.play import World, moments, rungs_of, simulate
from determined.experiment.simulation.preview import halving_counts
from determined.experiment.simulation.result import Ending, SimulatedTrial, Simulation, Span

SPACE, _ = hparams.parse(
    {
        "dropout": {"type": "double", "minval": 0, "maxval": 0.6, "count": 2},
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 3},
    }
)
RANDOM = {"name": "random", "metric": "loss", "max_trials": 6, "max_concurrent_trials": 3}
GRID = {"name": "grid", "metric": "loss", "max_concurrent_trials": 0}
SINGLE = {"name": "single", "metric": "loss"}
ASHA = {
    "name": "async_halving", "metric": "loss", "smaller_is_better": True, "time_metric": "epochs", "max_time": 16,
    "max_trials": 12, "num_rungs": 3, "divisor": 4, "max_concurrent_trials": 4, "form": "stopping",
}  # fmt: skip
PROMOTION = {**ASHA, "form": "promotion"}
ADAPTIVE = {**ASHA, "name": "adaptive_asha", "max_trials": 20}
OPTUNA = {"name": "optuna", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 2, "sampler": "RandomSampler"}
SEARCHES: list[dict[str, Any]] = [SINGLE, RANDOM, GRID, ASHA, PROMOTION, ADAPTIVE, {**ADAPTIVE, "form": "promotion"}]
FIXED = [SINGLE, RANDOM, GRID]

searches = st.sampled_from(SEARCHES)
worlds = st.builds(
    World,
    places=st.none() | st.integers(1, 5),
    max_time=st.integers(1, 20),
    period=st.none() | st.integers(1, 7),
    failures=st.sampled_from([0.0, 0.0, 0.3, 0.9, 1.0]),
    invalid=st.sampled_from([0.0, 0.0, 0.2]),
    max_restarts=st.integers(0, 2),
    curves_seed=st.integers(0, 9),
)


def running(played: Simulation, time: int) -> int:
    """How many trials hold a place during the tick after `time`."""
    return sum(span.start <= time < span.end for trial in played.trials for span in trial.spans)


def steps_of(trial: SimulatedTrial) -> int:
    return sum(span.reached - span.begin for span in trial.spans)


@given(searches, st.integers(0, 99), worlds)
@settings(max_examples=80, deadline=None)
def test_every_search_ends_and_every_unit_is_accounted_for(search: dict[str, Any], seed: int, world: World) -> None:
    """Issue 7: whatever crashes, a search ends; the whole is the sum of its trials, and places are never exceeded."""
    played = simulate(search, SPACE, seed, world)
    assert played.state in (State.COMPLETED, State.ERROR)
    assert played.units == sum(trial.units for trial in played.trials) == sum(map(steps_of, played.trials))
    assert sum(played.counts().values()) == len(played.trained())
    assert played.units <= played.time * played.places
    assert played.places <= (world.places or 99)
    for time in range(played.time):
        assert running(played, time) <= played.places
    for trial in played.trials:
        assert 0 <= trial.reached <= played.max_time
        assert trial.reached <= trial.units
        assert (trial.ending is Ending.FINISHED) <= (trial.reached == played.max_time)
        assert trial.created <= trial.ended <= played.time
        assert trial.spans == sorted(trial.spans)
    values = [step.value for step in played.found]
    assert values == sorted(set(values), reverse=True)
    if (best := played.best()) is not None:
        assert values[-1] == played.best_of(best)


@given(searches, st.integers(0, 99), worlds)
@settings(max_examples=20, deadline=None)
def test_the_same_seeds_give_the_same_simulation(search: dict[str, Any], seed: int, world: World) -> None:
    """Nothing but the arguments decides."""
    assert simulate(search, SPACE, seed, world) == simulate(search, SPACE, seed, world)


@given(st.sampled_from(FIXED), st.integers(0, 99), st.integers(1, 9), st.sampled_from([0.0, 0.5]))
@settings(max_examples=20, deadline=None)
def test_places_do_not_change_what_is_drawn(search: dict[str, Any], seed: int, places: int, rate: float) -> None:
    """2.3: single, random and grid make the same trials on any number of slots, and these end alike."""
    many = simulate(search, SPACE, seed, World(failures=rate, max_restarts=0))
    few = simulate(search, SPACE, seed, World(places=places, failures=rate, max_restarts=0))
    assert [trial.hparams for trial in few.trials] == [trial.hparams for trial in many.trials]
    assert [trial.units for trial in few.trials] == [trial.units for trial in many.trials]
    assert few.time >= many.time


@pytest.mark.parametrize("search", SEARCHES)
def test_one_place_runs_one_trial_at_a_time(search: dict[str, Any]) -> None:
    """On one place the clock shows exactly what was trained."""
    played = simulate(search, SPACE, 1, World(places=1, failures=0.4, max_time=16))
    assert played.places == 1
    assert played.time == played.units
    spans = sorted(span for trial in played.trials for span in trial.spans)
    assert all(before.end <= after.start for before, after in itertools.pairwise(spans))


def test_searches_that_stop_nobody_cost_every_trial_in_full() -> None:
    """3.3: random trains all to the end, in as many waves as there are places for."""
    played = simulate(RANDOM, SPACE, 0, World(max_time=10))
    assert (played.units, played.all_units(), played.saved()) == (60, 60, 0.0)
    assert (played.time, played.all_time(), played.places) == (20, 20, 3)
    assert {trial.ending for trial in played.trials} == {Ending.FINISHED}
    assert played.counts() == {10: 6}
    assert played.best() is played.best_possible()


def test_asha_stops_at_its_rungs_and_finds_nearly_the_best() -> None:
    """3.5: with a validation at each rung trials stop exactly there, in numbers near those of the preview."""
    search = {**ADAPTIVE, "max_trials": 100, "max_time": 256}
    played = simulate(search, SPACE, 0)
    planned = halving_counts(search)
    assert played.counts().keys() == planned.keys() == set(rungs_of(search))
    for units, count in played.counts().items():
        assert abs(count - planned[units]) <= 10
    assert played.saved() > 0.75
    best, possible = played.best(), played.best_possible()
    assert best is not None
    assert possible is not None
    assert played.best_of(best) < played.potential_of(possible) + 0.05


def test_a_paused_trial_goes_on_where_it_was() -> None:
    """The promoting form pauses at a rung; the next attempt begins there, and no unit is trained twice."""
    played = simulate(PROMOTION, SPACE)
    resumed = [trial for trial in played.trials if len(trial.spans) > 1]
    assert resumed
    for trial in resumed:
        assert trial.units == trial.reached
        for before, after in itertools.pairwise(trial.spans):
            assert after.begin == before.reached
    assert max(played.counts()) == 16


def test_rungs_are_judged_at_the_next_validation() -> None:
    """3.11: with a validation every 3 units, rungs 1, 4 and 16 are seen at 3, 6 and the end."""
    assert simulate(ASHA, SPACE, 0, World(period=3)).counts().keys() <= {3, 6, 16}


def test_larger_is_better_decides_alike() -> None:
    """P-32: the same trials are stopped when the metric is turned round, and the best is the largest."""
    small = simulate(ADAPTIVE, SPACE)
    large = simulate({**ADAPTIVE, "smaller_is_better": False}, SPACE)
    assert [trial.reached for trial in large.trials] == [trial.reached for trial in small.trials]
    values = [step.value for step in large.found]
    assert values == sorted(set(values))
    assert values[-1] == pytest.approx(1 - small.found[-1].value)


def test_crashes_cost_what_was_not_saved() -> None:
    """4.6: a trial that crashed goes on from its newest validation; after max_restarts it has failed."""
    world = World(max_time=20, period=7, failures=0.7, max_restarts=50)
    played = simulate({**RANDOM, "max_trials": 20}, SPACE, 0, world)
    crashed = [trial for trial in played.trials if trial.restarts]
    assert crashed
    assert all(trial.ending is Ending.FINISHED for trial in crashed)
    assert any(trial.units > trial.reached for trial in crashed)
    assert {span.begin for trial in crashed for span in trial.spans} == {0, 7, 14}
    assert played.units > played.all_units()
    hopeless = simulate(RANDOM, SPACE, 0, World(failures=1.0, max_restarts=2))
    assert (hopeless.state, hopeless.units, hopeless.best()) == (State.ERROR, 0, None)
    assert {(trial.restarts, trial.ending) for trial in hopeless.trials} == {(3, Ending.FAILED)}


def test_unusable_hyperparameters_are_replaced_and_cost_nothing() -> None:
    """3.9, P-37: six trials train, however many raise InvalidHP; a search of nothing else gives up."""
    played = simulate(RANDOM, SPACE, 0, World(invalid=0.4))
    assert len(played.trained()) == 6 < len(played.trials)
    assert played.units == played.all_units() == 600
    assert all(trial.units == 0 for trial in played.trials if trial.ending is Ending.INVALID)
    hopeless = simulate({**RANDOM, "max_concurrent_trials": 1}, SPACE, 0, World(invalid=1.0))
    assert (hopeless.state, len(hopeless.trials)) == (State.ERROR, 100)
    assert "InvalidHP" in hopeless.warnings[-1]


def test_optuna_is_played_too() -> None:
    """`name: optuna`, with stopping and without."""
    assert simulate(OPTUNA, SPACE, 0, World(max_time=8)).counts() == {8: 4}
    stopping = {**OPTUNA, "max_trials": 12, "num_rungs": 2, "time_metric": "epochs", "max_time": 8}
    assert simulate(stopping, SPACE).counts().keys() == {2, 8}


def test_values_are_those_of_the_curves() -> None:
    """What a trial reports is its landscape's curve at that share of its training."""
    trial = simulate(RANDOM, SPACE, 5, World(max_time=10, period=5, curves_seed=3)).trials[0]
    curve = Landscape(SPACE, 3).curve(trial.hparams, trial.seed)
    assert trial.values == [curve.at(0.5), curve.at(1.0)]


def test_a_trial_that_is_asked_to_leave_saves_between_validations() -> None:
    """A search that is over stops all trials where they are."""

    class FirstWins(SearchMethod):
        def initial_trials(self, ctx: SearchContext) -> list[Action]:
            return [ctx.create() for _ in range(3)]

        def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
            return [Shutdown()]

    played = simulate({"name": "custom", "metric": "loss"}, SPACE, 0, World(period=7), FirstWins())
    assert played.counts(Ending.STOPPED) == {7: 3}
    assert (played.units, played.time, played.state) == (21, 7, State.COMPLETED)
    assert [trial.seen for trial in played.trials] == [1, 0, 0]


def test_a_trial_that_is_paused_between_validations_loses_nothing() -> None:
    """4.7: it saves where it is, and goes on from there."""

    class Polite(SearchMethod):
        def initial_trials(self, ctx: SearchContext) -> list[Action]:
            self.second = ctx.create()
            return [ctx.create()]

        def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
            if request_id == self.second.request_id:
                return []
            return [self.second] if metrics["batches"] == 7 else [Pause(self.second.request_id)]

        def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
            return [Resume(self.second.request_id)]

    played = simulate({"name": "custom", "metric": "loss"}, SPACE, 0, World(max_time=10, period=7), Polite())
    assert played.trials[1].spans == [Span(7, 10, 0, 3), Span(10, 17, 3, 10)]
    assert (played.units, played.time) == (20, 17)


def test_a_search_that_raises_says_why() -> None:
    """Whoever tries out a search method of their own sees what it raised."""

    class Broken(SearchMethod):
        def initial_trials(self, ctx: SearchContext) -> list[Action]:
            return [ctx.create()]

        def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
            raise ZeroDivisionError("no trials yet")

    played = simulate({"name": "custom", "metric": "loss"}, SPACE, 0, World(max_time=1), Broken())
    assert (played.state, played.reason) == (State.ERROR, "The search failed with ZeroDivisionError: no trials yet")


def test_validations_beyond_counting_are_refused() -> None:
    """A short period in a long training is told with the shortest that can be played."""
    with pytest.raises(errors.InvalidValue, match=r"period=1 is 1,000,000,000 validations .* Use 10000 or more"):
        moments(10**9, 1)
    assert len(moments(10**9, 10_000)) == 100_000


@pytest.mark.parametrize(("answer", "reason"), [(None, "returned None"), ([], "The search is over")])
def test_a_search_that_never_begins_says_why(answer: Any, reason: str) -> None:
    """There is nothing to play, and the reason is the search's own."""

    class Idle(SearchMethod):
        def initial_trials(self, ctx: SearchContext) -> list[Action]:
            found: list[Action] = answer
            return found

    with pytest.raises(errors.SearchError, match=f"ended before its first trial.*{reason}"):
        simulate({"name": "custom", "metric": "loss"}, SPACE, 0, World(max_time=1), Idle())


@pytest.mark.parametrize("search", [{**RANDOM, "max_trials": 10**8}, {**ADAPTIVE, "max_trials": 10**8}, GRID])
def test_what_would_take_for_ever_is_refused_at_once(search: dict[str, Any]) -> None:
    """A slip of the keyboard is told, with the number, before anything is played."""
    space, _ = hparams.parse({"lr": {"type": "double", "minval": 0, "maxval": 1, "count": 10**8}})
    with pytest.raises(errors.SearchError, match="100,000,000 trials"):
        simulate(search, space)


def test_searches_without_an_end_are_refused() -> None:
    """A custom search may pause all it has, or never stop making trials, or make up hyperparameters."""

    class Custom(SearchMethod):
        uses_metrics = False

        def __init__(self, *, pauses: bool, values: dict[str, Any] | None = None) -> None:
            self.pauses, self.values = pauses, values

        def initial_trials(self, ctx: SearchContext) -> list[Action]:
            return [ctx.create(self.values)]

        def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
            return [Pause(request_id)] if self.pauses else []

        def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
            return [ctx.create()]

    def play(method: SearchMethod) -> Simulation:
        return simulate({"name": "custom", "metric": "loss"}, SPACE, 0, World(max_time=1), method)

    with pytest.raises(errors.SearchError, match="1 trials wait, and none runs"):
        play(Custom(pauses=True))
    with pytest.raises(errors.SearchError, match="not those of the experiment file"):
        play(Custom(pauses=True, values={"momentum": 0.9}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("determined.experiment.simulation.play.MOST_TRIALS", 50)
        with pytest.raises(errors.SearchError, match="50 trials and goes on"):
            play(Custom(pauses=False))


@pytest.mark.parametrize(
    "wrong", [{"places": 0}, {"period": 0}, {"max_time": 0}, {"failures": 1.5}, {"invalid": -0.1}], ids=str
)
def test_an_impossible_world_is_refused(wrong: dict[str, Any]) -> None:
    """The message has the value and what is expected."""
    with pytest.raises(errors.InvalidValue, match=f"{next(iter(wrong))} is .*; expected"):
        World(**wrong)


@given(st.integers(1, 10**9), st.none() | st.integers(1, 10**6), st.lists(st.integers(1, 10**9), max_size=3))
@settings(max_examples=50, deadline=None)
def test_moments_rise_to_the_end(max_time: int, period: int | None, rungs: list[int]) -> None:
    """There is always a last validation, at the end; without a period there is one at each rung."""
    max_time = min(max_time, 1000 * (period or max_time))
    found = moments(max_time, period, [rung for rung in rungs if rung <= max_time])
    assert found == sorted(set(found))
    assert found[0] >= 1
    assert found[-1] == max_time
    assert period is not None or {rung for rung in rungs if rung <= max_time} <= set(found)
