"""Asynchronous halving, promoting form: pause at a rung, go on when it is earned."""

from __future__ import annotations

import math
from typing import Any

from determined.experiment.generator import Generator
from determined.experiment.search.adaptive_asha import halving
from determined.experiment.search.base import ExitedReason, Pause, Resume, SearchContext, Shutdown, Stop
from tests.searches import Player, asha, report, shape, space

SMALL: dict[str, Any] = {
    "num_rungs": 2, "divisor": 2, "max_time": 4, "max_trials": 4, "max_concurrent_trials": 1, "form": "promotion"
}  # fmt: skip


def play(player: Player, loss: dict[int, float], units: tuple[int, ...] = (2, 4)) -> Player:
    """Run whatever runs, one at a time, until the search is over; trial n has the loss of n."""
    reached: dict[str, int] = {}
    while player.end is None:
        number = next(
            n
            for n in range(1, len(player.trials) + 1)
            if player[n] in player.running | player.stopped & set(player.live)
        )
        request_id = player[number]
        if request_id in player.stopped:
            player.exits(request_id)
            continue
        reached[request_id] = reached.get(request_id, -1) + 1
        player.do(report(request_id, loss[number], units[reached[request_id]]))
    return player


def test_a_trial_pauses_until_it_is_among_the_best() -> None:
    """form: promotion, divisor 2: the first of one pauses (floor(1/2) is 0); the better of two goes on."""
    player = Player(asha(**SMALL)).start()
    assert shape(player.do(report(player[1], 0.5, 2))) == ["Pause", "Create"]
    assert player.do(report(player[2], 0.7, 2)) == [Pause(player[2]), Resume(player[1])]
    assert shape(player.do(report(player[1], 0.4, 4))) == ["Stop", "Create"]


def test_a_newcomer_among_the_best_goes_on_at_once() -> None:
    """A trial that is among the best floor(n/divisor) when it arrives does not pause."""
    player = Player(asha(**SMALL)).start()
    player.do(report(player[1], 0.5, 2))
    assert player.do(report(player[2], 0.3, 2)) == []
    assert player.do(report(player[2], 0.2, 4))[0] == Stop(player[2])


def test_the_highest_rung_goes_first() -> None:
    """Of two that have earned it, at different rungs, the one that is nearer to the end goes on first."""
    section = asha(**{**SMALL, "num_rungs": 3, "max_time": 8, "max_trials": 5})
    method = halving(section)
    waiting = {"is_running": False, "is_waiting": True}
    low, high = [[0.1, 0], [0.2, 1], [0.3, 2], [0.4, 3]], [[0.2, 4], [0.9, 5]]
    method.restore(
        {
            "created": 5, "invalid": 0, "exited": 2, "arrivals": 6,
            "rungs": [{"places": p, "worst": 0, "promoted": n} for p, n in ((low, 2), (high, 0), ([], 0))],
            "trials": {
                "lower": {"rung": 0, "places": [[0.1, 0]], **waiting},
                "higher": {"rung": 1, "places": [[0.2, 1], [0.2, 4]], **waiting},
                "runs": {"rung": 0, "places": [], "is_running": True, "is_waiting": False},
            },
        }
    )  # fmt: skip
    ctx = SearchContext(Generator(0), space(), section)
    assert method.trial_exited(ctx, "runs") == [Resume("higher")]
    assert method.trial_exited(ctx, "higher") == [Resume("lower")]


def test_the_whole_search() -> None:
    """Four trials, two rungs: the best two train to the end, the others are stopped where they paused."""
    player = play(Player(asha(**SMALL)).start(), {1: 0.5, 2: 0.7, 3: 0.3, 4: 0.6})
    assert len(player.trials) == 4
    assert player.end == Shutdown()
    went_on = {event.request_id for event in player.events if getattr(event, "metrics", {}).get("batches") == 4}
    assert went_on == {player[1], player[3]}
    assert player.stopped == {trial.request_id for trial in player.trials}


def test_somebody_always_trains_to_the_end() -> None:
    """max_trials 3, divisor 4: floor(3/4) is 0, so the best one is let go on when nothing else can be done."""
    section = asha(**{**SMALL, "divisor": 4, "max_trials": 3})
    player = play(Player(section).start(), {1: 0.5, 2: 0.4, 3: 0.6}, units=(1, 4))
    assert Resume(player[2]) in [action for actions in player.actions for action in actions]
    assert player.end == Shutdown()


def test_if_that_one_fails_the_next_best_goes_on() -> None:
    """The one let go on fails: its place at the end goes to the next best."""
    player = Player(asha(**{**SMALL, "divisor": 4, "max_trials": 3})).start()
    for number, loss in ((1, 0.5), (2, 0.4), (3, 0.6)):
        player.do(report(player[number], loss, 1))
    assert player.running == {player[2]}
    assert player.exits(player[2], ExitedReason.ERRORED) == [Resume(player[1])]


def test_failed_trials_count_and_never_go_on() -> None:
    """A failed trial and a NaN fill a rung from below: the only number above them goes on."""
    player = Player(asha(**SMALL)).start()
    player.exits(player[1], ExitedReason.ERRORED)
    assert shape(player.do(report(player[2], math.nan, 2))) == ["Pause", "Create"]
    assert player.do(report(player[3], 0.9, 2)) == []


def test_a_paused_trial_that_is_killed_does_not_come_back() -> None:
    """USER_CANCELED while paused: the next best goes on instead."""
    player = Player(asha(**{**SMALL, "max_concurrent_trials": 2})).start()
    player.do(report(player[1], 0.1, 2))
    player.exits(player[1], ExitedReason.USER_CANCELED)
    actions = player.do(report(player[2], 0.5, 2))
    assert all(action != Resume(player[1]) for action in actions)


def test_invalid_hyperparameters_leave_no_trace() -> None:
    """3.9: values removed, replaced, not counted: 4 trials still train."""
    player = Player(asha(**SMALL)).start()
    player.do(report(player[1], 0.1, 2))
    player.exits(player[1], ExitedReason.INVALID_HP)
    assert player.searcher.progress() == 0
    play(player, {2: 0.5, 3: 0.7, 4: 0.3, 5: 0.6})
    assert len(player.trials) == 5


def test_reports_while_paused_are_ignored() -> None:
    """A report that was under way when the trial paused decides nothing."""
    player = Player(asha(**SMALL)).start()
    player.do(report(player[1], 0.5, 2))
    assert player.do(report(player[1], 0.1, 4)) == []


def test_equal_metrics_promote_the_share_and_no_more() -> None:
    """Of equal values the earlier is the better: of four, two go on."""
    player = play(Player(asha(**SMALL)).start(), dict.fromkeys((1, 2, 3, 4), 0.5))
    went_on = {event.request_id for event in player.events if getattr(event, "metrics", {}).get("batches") == 4}
    assert went_on == {player[1], player[2]}
