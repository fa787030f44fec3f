"""What every search method promises. Suites inherit `SearchMethodContract` and supply the `searcher` section."""

from __future__ import annotations

import json
import random
import time
import uuid
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from determined.experiment.search.base import (
    ExitedReason,
    SearchMethod,
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
from tests.searches import Player, reloaded, space

AXES = {
    "a": {"type": "int", "minval": 0, "maxval": 9, "count": 3},
    "b": {"c": {"type": "double", "minval": 0, "maxval": 1, "count": 3}, "d": 5},
}
LAST_UNIT = 8  # of training: every section under test has its last rung here, or none
values = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=16), st.sampled_from([0.5, "NaN", "-Infinity", None, "x"])
)
scripts = st.lists(
    st.tuples(
        st.sampled_from(["report", "report", "report", "exit", "early", "progress", "created", "late"]),
        st.integers(0, 30),  # which trial
        values,
        st.integers(0, LAST_UNIT + 1),  # time
        st.sampled_from(list(ExitedReason)),
    ),
    max_size=60,
)


def examples(count: int) -> Any:
    """Every suite that inherits the contract runs it, which hypothesis would otherwise complain about."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


class SearchMethodContract:
    """Whatever happens to the trials, in whatever order.

    Attributes:
        section: The `searcher` section, with at most 9 trials, whose last rung, if any, is at 8 batches.
        planned: How many trials the search trains.
        replaces_invalid: Whether a trial that raises InvalidHP is replaced by another one.
        at_once: How many trials may run at the same time; None: no limit.
        ranks: Whether metrics decide anything.
        bars_never_fall: Whether progress only grows as long as that of the trials does.
    """

    section: ClassVar[dict[str, Any]]
    planned: ClassVar[int] = 9
    replaces_invalid: ClassVar[bool] = True
    at_once: ClassVar[int | None] = None
    ranks: ClassVar[bool] = False
    bars_never_fall: ClassVar[bool] = True

    def method(self) -> SearchMethod | None:
        """The instance for `name: custom`; None for the methods that `section` names."""
        return None

    def player(self, script: list[Any], seed: int = 0) -> Player:
        """Let the script happen to the trials that live; then let everything that runs train to its end and exit."""
        player = Player(self.section, space(AXES), seed, self.method())
        player.start()
        self.check_limit(player)
        for kind, which, value, moment, reason in script:
            if not player.live:
                break
            request_id = player.live[which % len(player.live)]
            if kind == "report":
                player.do(ValidationCompleted(request_id, {"loss": value, "batches": moment}, moment))
            elif kind == "exit":
                player.do(TrialExited(request_id))
            elif kind == "early":
                player.do(TrialExitedEarly(request_id, reason))
            elif kind == "progress":
                player.do(TrialProgress(request_id, moment / 9))
            elif kind == "created":
                player.do(TrialCreated(request_id))
            else:  # an event of a trial that may be gone
                player.do(ValidationCompleted(player[which % len(player.trials) + 1], {"loss": 0.1}, moment))
            assert 0 <= player.searcher.progress() <= 1
            self.check_limit(player)
        while player.end is None:
            assert player.unpaused(), "stuck: nothing runs, and it is not over"
            for request_id in player.unpaused():
                player.do(ValidationCompleted(request_id, {"loss": 0.5, "batches": LAST_UNIT}, LAST_UNIT))
                if request_id in player.unpaused():
                    player.do(TrialExited(request_id))
                self.check_limit(player)
        return player

    def check_limit(self, player: Player) -> None:
        assert self.at_once is None or len(player.running - player.ended) <= self.at_once

    @examples(25)
    @given(script=scripts)
    def test_every_trial_ends_and_the_budget_is_kept(self, script: list[Any]) -> None:
        """P-34, P-37, P-39: never a trial too many or too few, never more at once than allowed, never stuck; at the
        end one Shutdown and nothing after it. A trial that fails counts, one that raises InvalidHP is replaced."""
        player = self.player(script)
        assert isinstance(player.end, Shutdown)
        assert not player.live
        assert len(player.trials) == self.planned + (invalid(player) if self.replaces_invalid else 0)
        assert player.do(TrialExited(player[1])) == []
        assert player.searcher.is_over

    @examples(12)
    @given(script=scripts)
    def test_a_restart_after_any_event_changes_nothing(self, script: list[Any]) -> None:
        """P-45: snapshot, JSON text and restore after every event give the same actions, state and progress."""
        unbroken = self.player(script)
        searcher = Searcher(self.section, unbroken.space, 0, self.method())
        for event, actions in zip(unbroken.events, unbroken.actions, strict=True):
            searcher = reloaded(searcher, self.section, unbroken.space, self.method())
            assert searcher.handle(event) == actions
        assert searcher.snapshot() == unbroken.searcher.snapshot()
        assert searcher.progress() == unbroken.searcher.progress()

    @examples(12)
    @given(script=scripts, cut=st.integers(0, 100))
    def test_rebuilding_from_stored_events_changes_nothing(self, script: list[Any], cut: int) -> None:
        """P-24: equal seed and events give equal actions, so a search rebuilt from its stored events continues."""
        unbroken = self.player(script)
        stored = [event_from_json(json.loads(json.dumps(to_json(event), allow_nan=False))) for event in unbroken.events]
        cut %= len(stored) + 1
        searcher = Searcher.rebuild(self.section, unbroken.space, 0, stored[:cut], self.method())
        assert [searcher.handle(event) for event in stored[cut:]] == unbroken.actions[cut:]
        assert searcher.snapshot() == unbroken.searcher.snapshot()

    @examples(6)
    @given(script=scripts)
    def test_it_draws_from_its_generator_only(self, script: list[Any]) -> None:
        """3.1: a search is pure: the clock and the random streams of the process change nothing, and are not moved."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: 0.0)
            patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=0))
            random.seed(1)
            before = random.getstate()
            first = self.player(script)
            assert random.getstate() == before
        random.seed(2)
        assert self.player(script).actions == first.actions

    def test_another_seed_gives_other_trials(self) -> None:
        """P-24: the seed decides request ids, trial seeds and what is drawn."""
        assert self.player([]).trials == self.player([]).trials
        assert self.player([], seed=1).trials != self.player([]).trials

    @examples(12)
    @given(script=scripts)
    def test_progress_never_falls(self, script: list[Any]) -> None:
        """3.8: from 0 to exactly 1, and never back, unless a trial's own progress falls or a trial is not counted."""
        if not self.bars_never_fall:
            pytest.skip("a method of a user's own may count as it likes")
        steady = [
            (kind, which, value, moment, ExitedReason.ERRORED)
            for kind, which, value, moment, _ in script
            if kind != "progress"
        ]
        played = self.player(steady)
        searcher, last = Searcher(self.section, played.space, 0, self.method()), 0.0
        for event in played.events:
            searcher.handle(event)
            assert searcher.progress() >= last
            last = searcher.progress()
        assert last == 1.0 or played.end != Shutdown()

    @examples(15)
    @given(script=scripts)
    def test_larger_is_better_is_the_mirror(self, script: list[Any]) -> None:
        """P-32: with larger-is-better, decisions are those of negated metrics."""
        if not self.ranks:
            pytest.skip("metrics decide nothing here")
        script = [
            (kind, which, value if isinstance(value, float) else 0.5, *rest) for kind, which, value, *rest in script
        ]
        smaller = self.player(script)
        larger = Searcher({**self.section, "smaller_is_better": False}, smaller.space, 0, self.method())
        for event, actions in zip(smaller.events, smaller.actions, strict=True):
            if isinstance(event, ValidationCompleted):
                loss: Any = event.metrics["loss"]
                event = ValidationCompleted(event.request_id, {**event.metrics, "loss": -loss}, event.steps_completed)
            assert larger.handle(event) == actions


def invalid(player: Player) -> int:
    """How many trials ended, first of all, because their hyperparameters cannot be used."""
    ended: dict[str, ExitedReason] = {}
    exited = set()
    for event in player.events:
        if isinstance(event, TrialExitedEarly) and event.request_id not in exited:
            ended.setdefault(event.request_id, event.reason)
        elif isinstance(event, TrialExited):
            exited.add(event.request_id)
    return sum(reason is ExitedReason.INVALID_HP for reason in ended.values())
