"""Whatever happens, in whatever order: every method keeps its budget, ends, and can be cut anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.experiment.search.base import (
    ExitedReason,
    Shutdown,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    TrialProgress,
    ValidationCompleted,
    event_from_json,
    to_json,
)
from determined.experiment.search.searcher import Searcher
from tests.searches import Player, adaptive, asha, config, reloaded, space

AXES = {
    "a": {"type": "int", "minval": 0, "maxval": 9, "count": 3},
    "b": {"c": {"type": "double", "minval": 0, "maxval": 1, "count": 3}, "d": 5},
}
HALVING = {"num_rungs": 3, "divisor": 2, "max_time": 8, "max_trials": 9, "max_concurrent_trials": 3}
SECTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "single": (config("single"), 1),
    "random": (config("random", max_trials=9, max_concurrent_trials=3), 9),
    "grid": (config("grid", max_concurrent_trials=2), 9),
    "stopping": (asha(**HALVING), 9),
    "no limit": (asha(**{**HALVING, "max_concurrent_trials": 0, "divisor": 1.5}), 9),
    "promotion": (asha(**HALVING, form="promotion"), 9),
    "adaptive": (adaptive(9, 8, divisor=2, max_concurrent_trials=4, mode="conservative"), 9),
    "adaptive promotion": (adaptive(9, 8, divisor=2, max_concurrent_trials=4, form="promotion"), 9),
    "optuna": (config("optuna", sampler="RandomSampler", max_trials=9, max_concurrent_trials=3), 9),
    "optuna with stopping": (config("optuna", sampler="RandomSampler", time_metric="batches", **HALVING), 9),
}
methods = pytest.mark.parametrize("name", SECTIONS)

values = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=16), st.sampled_from([0.5, "NaN", "-Infinity", None, "x"])
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["report", "report", "report", "exit", "early", "progress", "created", "late"]),
        st.integers(0, 30),  # which trial
        values,
        st.integers(0, 9),  # time
        st.sampled_from(list(ExitedReason)),
    ),
    max_size=60,
)


def play(player: Player, script: list[Any]) -> None:
    """Let the script happen to the trials that live; then let everything that runs train to its end and exit."""
    for kind, which, value, time, reason in script:
        if not player.live:
            break
        request_id = player.live[which % len(player.live)]
        if kind == "report":
            player.do(ValidationCompleted(request_id, {"loss": value, "batches": time}, time))
        elif kind == "exit":
            player.do(TrialExited(request_id))
        elif kind == "early":
            player.do(TrialExitedEarly(request_id, reason))
        elif kind == "progress":
            player.do(TrialProgress(request_id, time / 9))
        elif kind == "created":
            player.do(TrialCreated(request_id))
        else:
            player.do(ValidationCompleted(player[which % len(player.trials) + 1], {"loss": 0.1}, time))
        assert 0 <= player.searcher.progress() <= 1
    while player.end is None:
        assert player.unpaused(), "stuck: nothing runs, and it is not over"
        for request_id in player.unpaused():
            player.do(ValidationCompleted(request_id, {"loss": 0.5, "batches": 8}, 8))
            if request_id in player.unpaused():
                player.do(TrialExited(request_id))


def invalid(player: Player) -> int:
    """How many trials said that their hyperparameters cannot be used, as their first and last word."""
    ended: dict[str, ExitedReason] = {}
    gone = set()
    for event in player.events:
        if isinstance(event, TrialExitedEarly) and event.request_id not in gone:
            ended.setdefault(event.request_id, event.reason)
        elif isinstance(event, TrialExited):
            gone.add(event.request_id)
    return sum(reason is ExitedReason.INVALID_HP for reason in ended.values())


@methods
@settings(max_examples=25, deadline=None)
@given(script=steps)
def test_the_budget_is_kept_and_the_search_ends(name: str, script: list[Any]) -> None:
    """Issue 7: never a trial too many, never one too few, never stuck, always shut down, nothing after that."""
    section, planned = SECTIONS[name]
    player = Player(section, space(AXES))
    player.start()
    most_at_once = len(player.running)
    play(player, script)
    assert isinstance(player.end, Shutdown)
    replaced = 0 if name in ("single", "grid") else invalid(player)
    assert len(player.trials) == planned + replaced
    assert not player.live
    assert all(len(actions) <= most_at_once + planned for actions in player.actions)
    assert player.do(TrialExited(player[1])) == []
    assert player.searcher.is_over


@methods
@settings(max_examples=12, deadline=None)
@given(script=steps)
def test_cut_after_every_event(name: str, script: list[Any]) -> None:
    """P-45: snapshot, JSON text, restore after every event: the same actions, the same state, the same progress."""
    section, _ = SECTIONS[name]
    unbroken = Player(section, space(AXES))
    unbroken.start()
    play(unbroken, script)
    searcher = Searcher(section, unbroken.space, 0)
    for event, actions in zip(unbroken.events, unbroken.actions, strict=True):
        searcher = reloaded(searcher, section, unbroken.space)
        assert searcher.handle(event) == actions
    assert searcher.snapshot() == unbroken.searcher.snapshot()
    assert searcher.progress() == unbroken.searcher.progress()


@methods
@settings(max_examples=12, deadline=None)
@given(script=steps, cut=st.integers(0, 100))
def test_rebuilt_from_stored_events(name: str, script: list[Any], cut: int) -> None:
    """Issue 7: a search rebuilt from its stored events is identical to one that never stopped, wherever it stopped."""
    section, _ = SECTIONS[name]
    unbroken = Player(section, space(AXES))
    unbroken.start()
    play(unbroken, script)
    stored = [event_from_json(json.loads(json.dumps(to_json(event), allow_nan=False))) for event in unbroken.events]
    cut %= len(stored) + 1
    searcher = Searcher.rebuild(section, unbroken.space, 0, stored[:cut])
    assert [searcher.handle(event) for event in stored[cut:]] == unbroken.actions[cut:]
    assert searcher.snapshot() == unbroken.searcher.snapshot()


@pytest.mark.parametrize("name", ["stopping", "promotion", "adaptive", "adaptive promotion", "optuna with stopping"])
@settings(max_examples=15, deadline=None)
@given(script=steps)
def test_larger_is_better_is_the_mirror(name: str, script: list[Any]) -> None:
    """P-32: Given larger-is-better, then decisions equal those of negated metrics."""
    section, _ = SECTIONS[name]
    script = [(kind, which, value if isinstance(value, float) else 0.5, *rest) for kind, which, value, *rest in script]
    smaller = Player(section, space(AXES))
    smaller.start()
    play(smaller, script)
    larger = Searcher({**section, "smaller_is_better": False}, smaller.space, 0)
    for event, actions in zip(smaller.events, smaller.actions, strict=True):
        if isinstance(event, ValidationCompleted):
            loss: Any = event.metrics["loss"]
            event = ValidationCompleted(event.request_id, {**event.metrics, "loss": -loss}, event.steps_completed)
        assert larger.handle(event) == actions
