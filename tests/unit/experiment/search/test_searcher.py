"""What all searches share: books, early exits, metrics as text, the guard, and the shape of events and actions."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from determined import errors
from determined.experiment.search import base
from determined.experiment.search.base import (
    Create,
    ExitedReason,
    Initial,
    Pause,
    Resume,
    SearchMethod,
    Shutdown,
    Stop,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    TrialProgress,
    ValidationCompleted,
)
from determined.experiment.search.methods import build
from determined.experiment.search.searcher import Searcher
from determined.experiment.simulation.curves import Landscape
from tests.searches import Player, config, reloaded, report, space


@pytest.mark.parametrize(
    "item",
    [
        Create("a", {"lr": 0.1, "n": {"x": [1, None]}}, 7),
        Create("a", {}, 7, "5d0c"),
        Stop("a"),
        Pause("a"),
        Resume("a"),
        Shutdown(failure=True),
        Initial(),
        TrialCreated("a"),
        ValidationCompleted("a", {"loss": 0.5}, 3),
        TrialProgress("a", 0.5),
        TrialExitedEarly("a", ExitedReason.INVALID_HP),
        TrialExited("a"),
    ],
)
def test_events_and_actions_are_rows(item: Any) -> None:
    """3.2: every event and action comes back equal from strict JSON."""
    row = json.loads(json.dumps(base.to_json(item), allow_nan=False))
    read = base.action_from_json if isinstance(item, base.Action) else base.event_from_json
    assert read(row) == item


def test_numbers_that_json_lacks_are_text() -> None:
    """D3: NaN and infinity travel as text and are read as numbers."""
    event = ValidationCompleted("a", {"x": math.nan, "y": [math.inf], "z": -math.inf}, 1)
    row = base.to_json(event)
    assert row["metrics"] == {"x": "NaN", "y": ["Infinity"], "z": "-Infinity"}
    assert base.read_number("-Infinity") == -math.inf
    assert math.isnan(base.read_number("NaN") or 0)
    assert [base.read_number(value) for value in (3, "0.5", "high", None, True, [1], 10**400)] == [
        3, 0.5, None, None, None, None, None
    ]  # fmt: skip


def test_an_unknown_row_is_refused() -> None:
    """The message lists the types there are."""
    with pytest.raises(errors.SearchError, match="trial_created"):
        base.event_from_json({"type": "stop", "request_id": "a"})


def test_unknown_names_are_refused() -> None:
    """An unknown searcher is answered with the names there are; a custom one needs its method."""
    with pytest.raises(errors.SearchError, match="adaptive_asha"):
        build({"name": "pbt"}, space())
    with pytest.raises(errors.SearchError, match=r"methods\.load"):
        build(config("custom"), space())


def test_strangers_are_refused() -> None:
    """An event of a trial that this search did not create is a mistake of the caller."""
    player = Player(config("random", max_trials=2)).start()
    with pytest.raises(errors.SearchError, match="no trial 'nobody'"):
        player.searcher.handle(TrialExited("nobody"))


def test_initial_comes_once() -> None:
    """3.2: a second Initial event creates no further trials."""
    player = Player(config("random", max_trials=2)).start()
    assert player.do(Initial()) == []
    assert len(player.trials) == 2


def test_too_many_invalid_trials_in_a_row_end_the_search() -> None:
    """3.9: after 10 x max_trials (at least 100) INVALID_HP trials in a row, the experiment goes to ERROR."""
    for max_trials, limit in ((3, 100), (12, 120)):
        player = Player(config("random", max_trials=max_trials, max_concurrent_trials=1)).start()
        while player.end is None:
            player.do(TrialExitedEarly(player.live[0], ExitedReason.INVALID_HP))
            if player.end is None:
                player.do(TrialExited(player.live[0]))
        assert player.end == Shutdown(failure=True)
        assert len(player.trials) == limit
        assert f"{limit} trials in a row" in player.searcher.warnings[0]
        assert player.searcher.progress() == 0


def test_a_trial_that_trains_interrupts_the_row() -> None:
    """3.9: a trial that reports a validation resets the count of INVALID_HP trials in a row."""
    player = Player(config("random", max_trials=2, max_concurrent_trials=1)).start()
    for turn in range(150):
        if turn == 90:
            player.do(report(player.live[0], 0.5))
        player.exits(player.live[0], ExitedReason.INVALID_HP)
    assert player.end is None


def test_a_trial_ends_early_once() -> None:
    """3.2: at most once per trial: a second early exit changes nothing, so one trial is replaced, not two."""
    player = Player(config("random", max_trials=2, max_concurrent_trials=1)).start()
    player.do(TrialExitedEarly(player[1], ExitedReason.INVALID_HP))
    player.do(TrialExitedEarly(player[1], ExitedReason.INVALID_HP))
    while player.live:
        player.exits(player.live[0])
    assert len(player.trials) == 3


def test_a_snapshot_of_another_layout_is_refused() -> None:
    """Say what to do instead of guessing."""
    player = Player(config("random", max_trials=2)).start()
    with pytest.raises(errors.SearchError, match="layout 99"):
        Searcher.restore({**player.searcher.snapshot(), "version": 99}, player.section, player.space)


def test_a_snapshot_says_how_many_events_it_has_seen() -> None:
    """base.py: restore, then handle the stored events from number `events` on."""
    player = Player(config("random", max_trials=4, max_concurrent_trials=1)).start()
    player.exits(player[1])
    old = player.searcher.snapshot()
    player.exits(player[2])
    caught_up = Searcher.restore(old, player.section, player.space)
    for event in player.events[old["events"] :]:
        caught_up.handle(event)
    assert caught_up.snapshot() == player.searcher.snapshot()


class Scripted(SearchMethod):
    """Creates two trials, and answers reports with whatever it was given."""

    def __init__(self, answers: list[Any] | None = None) -> None:
        self.answers = answers or []
        self.seen: list[Any] = []

    def initial_trials(self, ctx: base.SearchContext) -> list[base.Action]:
        return [ctx.create(), ctx.create({"lr": 1})]

    def validation_completed(self, ctx: base.SearchContext, request_id: str, metrics: dict[str, Any]) -> Any:
        self.seen.append(metrics)
        return [answer(ctx, request_id) if callable(answer) else answer for answer in self.answers]


class TestCustom:
    def test_the_method_sees_numbers(self) -> None:
        """3.7, D3: metrics come as numbers, the searcher metric always, `batches` too."""
        method = Scripted()
        player = Player(config("custom"), custom=method).start()
        player.do(ValidationCompleted(player[1], {"loss": "Infinity", "acc": "NaN", "note": "x"}, 7))
        (seen,) = method.seen
        assert seen["loss"] == math.inf
        assert math.isnan(seen["acc"])
        assert (seen["note"], seen["batches"]) == ("x", 7)

    def test_actions_without_effect_are_dropped(self) -> None:
        """3.2: a trial is stopped once, and only while it lives; pausing what is paused is nothing."""
        stop = [lambda ctx, trial: Pause(trial), lambda ctx, trial: Pause(trial), lambda ctx, trial: Stop(trial)]
        player = Player(config("custom"), custom=Scripted(stop)).start()
        assert player.do(report(player[1], 0.1)) == [Pause(player[1]), Stop(player[1])]
        assert player.do(report(player[1], 0.1)) == []

    def test_nothing_follows_a_shutdown(self) -> None:
        """3.2: what a method returns after its Shutdown is dropped, and so is everything later."""
        answers = [Shutdown(cancel=True), lambda ctx, trial: ctx.create()]
        player = Player(config("custom"), custom=Scripted(answers)).start()
        assert player.do(report(player[1], 0.1)) == [Shutdown(cancel=True)]
        assert player.exits(player[2]) == []
        assert player.searcher.progress() < 1

    @pytest.mark.parametrize("answer", ["stop", None, Initial()])
    def test_what_is_no_action_is_refused(self, answer: Any) -> None:
        """The message names the class and what it may return."""
        player = Player(config("custom"), custom=Scripted([answer])).start()
        with pytest.raises(errors.SearchError, match=r"Scripted returned .* no action"):
            player.do(report(player[1], 0.1))

    @pytest.mark.parametrize("hook", ["validation_completed", "trial_exited", "trial_exited_early"])
    def test_a_forgotten_return_is_said(self, hook: str) -> None:
        """3.7: methods return lists; one that returns nothing is told what to return."""
        method = Scripted()
        setattr(method, hook, lambda *_: None)
        player = Player(config("custom"), custom=method).start()
        with pytest.raises(errors.SearchError, match=r"Scripted returned None .* Return \[\]"):
            player.do(report(player[1], 0.1)) if hook == "validation_completed" else player.exits(player[1])

    def test_a_request_id_is_used_once(self) -> None:
        """Two trials with one id could not be told apart."""
        player = Player(config("custom"), custom=Scripted([lambda ctx, trial: Create(trial, {}, 0)])).start()
        with pytest.raises(errors.SearchError, match="used twice"):
            player.do(report(player[1], 0.1))

    def test_a_search_without_trials_is_over(self) -> None:
        """3.2: Shutdown when trials requested == trials exited, also when both are none."""

        class Nothing(SearchMethod):
            def initial_trials(self, ctx: base.SearchContext) -> list[base.Action]:
                return []

        assert Player(config("custom"), custom=Nothing()).start().end == Shutdown()

    def test_a_method_must_begin(self) -> None:
        """The one method that has no default says what to return."""
        with pytest.raises(NotImplementedError, match=r"ctx\.create"):
            Player(config("custom"), custom=SearchMethod()).start()

    def test_stopped_without_a_report_is_no_failure(self) -> None:
        """D13 is about trials that ended by themselves; one the method stopped has done what it should."""

        class Impatient(Scripted):
            early = 0

            def trial_created(self, ctx: base.SearchContext, request_id: str) -> list[base.Action]:
                return [Stop(request_id)]

            def trial_exited_early(self, *args: Any) -> list[base.Action]:
                self.early += 1
                return []

        method = Impatient()
        player = Player(config("custom"), custom=method).start()
        player.do(TrialCreated(player[1]))
        player.exits(player[1])
        assert method.early == 0
        player.exits(player[2])
        assert method.early == 1

    def test_progress_of_its_own(self) -> None:
        """3.8: NaN or infinite becomes 0; the rest stays within 0..1."""
        for share, shown in ((math.nan, 0), (math.inf, 0), (-1, 0), (7, 1), (0.5, 0.5)):
            method = Scripted()
            method.progress = lambda state, share=share: share  # type: ignore[method-assign, misc]
            assert Player(config("custom"), custom=method).start().searcher.progress() == shown

    def test_a_restart_hands_the_state_back(self) -> None:
        """3.7: snapshot() and restore() carry what the method remembers."""

        class Counter(Scripted):
            count = 0

            def validation_completed(self, ctx: Any, request_id: str, metrics: Any) -> list[base.Action]:
                self.count += 1
                return [Shutdown()] if self.count == 3 else []

            def snapshot(self) -> dict[str, Any]:
                return {"count": self.count}

            def restore(self, state: Any) -> None:
                self.count = state["count"]

        player = Player(config("custom"), custom=Counter()).start()
        for _ in range(3):
            player.searcher = reloaded(player.searcher, player.section, player.space, Counter())
            player.do(report(player[1], 0.1))
        assert player.end == Shutdown()


def test_curves_are_fixed_fall_and_cross() -> None:
    """Synthetic curves follow from their seeds; more training is better, and an early lead is not always kept."""
    where = space(
        {
            "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
            "n": {"type": "int", "minval": 1, "maxval": 9},
            "o": {"c": {"type": "categorical", "vals": ["a", "b"]}, "d": 3},
        }
    )
    player = Player(config("random", max_trials=20), where).start()
    curves = [Landscape(where, 3).curve(trial.hparams, trial.seed) for trial in player.trials]
    assert curves == [Landscape(where, 3).curve(trial.hparams, trial.seed) for trial in player.trials]
    assert all(curve.at(1) < curve.at(0) for curve in curves)
    early, late = (sorted(range(16), key=lambda i: curves[i].at(share)) for share in (0.05, 1.0))
    assert early != late
