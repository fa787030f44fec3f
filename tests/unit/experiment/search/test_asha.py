"""Asynchronous halving, stopping form: rungs, the trace, and what becomes of trials that fail."""

from __future__ import annotations

import math
from typing import Any

import pytest

from determined.experiment.search.asha import Rung, StoppingHalving
from determined.experiment.search.base import ExitedReason, Shutdown, Stop, ValidationCompleted, creates
from determined.experiment.search.rungs import Bracket, first_trials, rung_units
from tests.searches import Player, asha, reloaded, report, shape


def rungs(player: Player) -> list[Rung]:
    method = player.searcher.method
    assert isinstance(method, StoppingHalving)
    return method.rungs


TRACE: dict[str, Any] = {"num_rungs": 3, "divisor": 4, "max_time": 16, "max_trials": 8, "max_concurrent_trials": 4}
DECISIONS: list[tuple[int, int, float | None, list[str]]] = [
    (1, 1, 0.50, []),
    (2, 1, 0.60, ["Stop", "Create"]),
    (3, 1, 0.40, []),
    (4, 4, 0.45, ["Stop", "Create"]),
    (5, 4, 0.30, []),
    (1, 4, 0.44, ["Stop", "Create"]),
    (3, 4, 0.38, ["Stop", "Create"]),
    (6, 0, None, []),  # fails for good
    (7, 1, 0.35, ["Stop"]),
    (8, 1, 0.20, []),
    (8, 4, 0.10, []),
    (5, 16, 0.25, ["Stop"]),
    (8, 16, 0.05, ["Stop"]),
]


@pytest.mark.parametrize(
    ("num_rungs", "divisor", "max_time", "units"),
    [
        (3, 3, 9, (1, 3, 9)),
        (4, 2, 10, (1, 2, 5, 10)),
        (1, 3, 9, (9,)),
        (3, 3, 900, (100, 300, 900)),
        (3, 4, 937, (58, 234, 937)),
        (5, 4, 256, (1, 4, 16, 64, 256)),
        (3, 1.5, 9, (4, 6, 9)),
    ],
)
def test_the_table_of_rungs(num_rungs: int, divisor: float, max_time: int, units: tuple[int, ...]) -> None:
    """P-29: Given every row of the 3.5 table, then equal rungs."""
    assert rung_units(num_rungs, divisor, max_time) == units


def test_absurdly_many_rungs_are_no_overflow() -> None:
    """3.5: `max(floor(...), 1)`: 2000 rungs are mostly rungs at 1."""
    assert rung_units(2000, 4, 16)[-3:] == (1, 4, 16)
    assert rung_units(2000, 4, 16)[0] == 1
    assert first_trials(Bracket(2000, 7, 0), 4) == 7


@pytest.mark.parametrize(
    ("bracket", "divisor", "started"),
    [
        (Bracket(3, 100, 16), 4, 16),
        (Bracket(3, 10, 16), 4, 10),
        (Bracket(3, 100, 0), 4, 16),
        (Bracket(3, 10, 0), 4, 10),
        (Bracket(1, 10, 0), 4, 1),
        (Bracket(3, 10, 0), 1.5, 2),
    ],
)
def test_first_trials(bracket: Bracket, divisor: float, started: int) -> None:
    """3.5: min(limit, max_trials); with limit 0, min(max_trials, floor(divisor**(num_rungs-1))), at least 1."""
    assert first_trials(bracket, divisor) == started


@pytest.mark.parametrize(
    ("value", "present", "position"),
    [
        (1.2, [0, 1.5, 2.1], 1),
        (3.0, [0, 1.5, 2.0], 3),
        (-3.4, [-3, -2, -1], 0),
        (1.2, [], 0),
        (1.5, [0, 1.5, 1.5, 2], 1),
        (math.inf, [0, math.inf], 1),
        (None, [0, math.inf], 2),
    ],
)
def test_the_insertion_vectors(value: float | None, present: list[float], position: int) -> None:
    """3.5: insertion vectors; before equal values; NaN (None here) after everything."""
    rung = Rung(list(present))
    assert rung.insert(value) == position
    assert len(rung) == len(present) + 1


def play_trace(player: Player, after: Any = lambda player: None) -> None:
    for number, time, loss, decision in DECISIONS:
        request_id = player[number]
        if loss is None:
            actions = player.exits(request_id, ExitedReason.ERRORED)
        else:
            actions = player.do(report(request_id, loss, time))
        after(player)
        assert shape(actions) == decision
        assert all(action.request_id == request_id for action in actions if isinstance(action, Stop))


def test_the_trace() -> None:
    """P-30: Given the trace of 3.5, then equal decisions and created trials."""
    player = Player(asha(**TRACE)).start()
    assert len(player.trials) == 4
    play_trace(player)
    assert [len(rung) for rung in rungs(player)] == [8, 4, 2]
    assert rungs(player)[0].worst == 1
    for request_id in list(player.live):
        player.exits(request_id)
    assert len(player.trials) == 8
    assert player.end == Shutdown()


SEQUENTIAL = {"num_rungs": 3, "divisor": 3, "max_time": 900, "max_trials": 10, "max_concurrent_trials": 3}


def test_sequential_and_always_worse() -> None:
    """3.5: metric rising by 1 per report: one trial stops at 900, nine at 100."""
    values = iter(range(10_000))
    player = Player(asha(**SEQUENTIAL)).start()
    ended = player.one_by_one(lambda number, time: next(values), range(0, 901, 100))
    assert sorted(ended.values()) == [100] * 9 + [900]
    assert player.end == Shutdown()


def test_sequential_and_always_better() -> None:
    """3.5: metric falling: all ten stop at 900."""
    values = iter(range(10_000))
    ended = Player(asha(**SEQUENTIAL)).start().one_by_one(lambda number, time: -next(values), range(0, 901, 100))
    assert list(ended.values()) == [900] * 10


def test_constant_metrics() -> None:
    """P-31: Given constant metrics, ASHA with 10 trials, then every trial reaches max_time."""
    ended = Player(asha(**SEQUENTIAL)).start().one_by_one(lambda number, time: 0.5, range(0, 901, 100))
    assert list(ended.values()) == [900] * 10


@pytest.mark.parametrize("nan", [math.nan, "NaN", "nan"])
@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_nan_stops_a_trial_unless_it_is_alone(nan: float | str, smaller_is_better: bool) -> None:
    """P-33: Given a NaN at rung 0, as a number or text, then stopped unless alone, and the search goes on."""
    player = Player(asha(**TRACE, smaller_is_better=smaller_is_better)).start()
    assert player.do(report(player[1], nan, 1)) == []
    assert shape(player.do(report(player[2], nan, 1))) == ["Stop", "Create"]
    assert player.do(report(player[3], 0.5, 1)) == []
    assert shape(player.do(report(player[4], nan, 1))) == ["Stop", "Create"]


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_infinity_compares_as_a_number(smaller_is_better: bool) -> None:
    """D3: ±inf compare as numbers, and NaN is worse than both."""
    player = Player(asha(**TRACE, smaller_is_better=smaller_is_better)).start()
    worst = "Infinity" if smaller_is_better else "-Infinity"
    assert player.do(report(player[1], math.nan, 1)) == []
    assert player.do(report(player[2], worst, 1)) == []
    assert player.do(report(player[3], 0.0, 1)) == []
    assert player.do(report(player[4], math.inf if worst.startswith("-") else -math.inf, 1)) == []
    player.searcher = reloaded(player.searcher, player.section, player.space)
    assert rungs(player)[0].values == [-math.inf, 0.0, math.inf]
    assert rungs(player)[0].worst == 1


def test_invalid_hyperparameters_leave_no_trace() -> None:
    """P-38, 3.9: rung 0 = [0.1(A), 0.2(B), 0.3(C)], B raises InvalidHP: [0.1, 0.3], and one new trial."""
    player = Player(asha(num_rungs=2, divisor=1.01, max_time=100, max_trials=3, max_concurrent_trials=3)).start()
    for number, loss in ((3, 0.3), (2, 0.2), (1, 0.1)):
        assert player.do(report(player[number], loss, 99)) == []
    assert rungs(player)[0].values == [0.1, 0.2, 0.3]
    assert shape(player.exits(player[2], ExitedReason.INVALID_HP)) == ["Create"]
    assert rungs(player)[0].values == [0.1, 0.3]
    assert len(player.trials) == 4


def test_invalid_after_a_stop_frees_its_place_once() -> None:
    """3.9: a stopped trial that then raises InvalidHP is not counted, and nobody runs above the limit for it."""
    player = Player(asha(num_rungs=2, divisor=4, max_time=4, max_trials=4, max_concurrent_trials=2)).start()
    player.do(report(player[1], 0.1, 1))
    assert shape(player.do(report(player[2], 0.2, 1))) == ["Stop", "Create"]
    assert player.exits(player[2], ExitedReason.INVALID_HP) == []
    while player.live:
        player.exits(player.live[0])
    assert len(player.trials) == 5


def test_a_clean_exit_is_replaced() -> None:
    """P-42, D6: Given ASHA max_trials 8 and a script that exits after rung 0, then 8 trials are created."""
    player = Player(asha(**TRACE)).start()
    while player.live:
        player.do(report(player.live[0], 0.5, 1))
        player.exits(player.live[0])
    assert len(player.trials) == 8
    assert player.end == Shutdown()


def test_steps_stand_in_for_batches() -> None:
    """P-43, D12: Given reports without `batches` and `time_metric: batches`, then steps_completed drives the rungs."""
    player = Player(asha(**TRACE)).start()
    assert player.do(ValidationCompleted(player[1], {"loss": 0.1}, 4)) == []
    assert [len(rung) for rung in rungs(player)] == [1, 1, 0]


def test_other_clocks_have_no_stand_in() -> None:
    """D13: a missing or non-numeric time is ignored for the search, with one warning per trial that names it."""
    player = Player(asha(**TRACE, time_metric="epochs") | {"time_metric": "epochs"}).start()
    for time in (None, "soon", math.nan):
        assert player.do(report(player[1], 0.1, 4, epochs=time)) == []
        assert len(rungs(player)[0]) == 0
        assert len(player.searcher.warnings) == (time is None)
    player.do(report(player[1], 0.1, 4, epochs=1.9))
    assert len(rungs(player)[0]) == 1


def test_reports_without_the_metric() -> None:
    """D13: ignored, one warning per trial with a guess; a trial that never reports it counts as failed."""
    player = Player(asha(**TRACE)).start()
    assert player.do(ValidationCompleted(player[1], {"val_loss": 0.1}, 4)) == []
    (warning,) = player.searcher.warnings
    assert "Did you mean 'val_loss'?" in warning
    player.do(ValidationCompleted(player[1], {"val_loss": 0.1}, 5))
    assert player.searcher.warnings == []
    assert len(creates(player.exits(player[1]))) == 1
    assert rungs(player)[0].worst == 1
    assert "without ever reporting 'loss'" in player.searcher.warnings[0]


def test_one_report_may_pass_several_rungs() -> None:
    """3.5: a trial adds at most one value per rung, and a late report is judged at each."""
    player = Player(asha(**TRACE)).start()
    assert player.do(report(player[1], 0.1, 15)) == []
    player.do(report(player[1], 0.2, 15))
    assert [rung.values for rung in rungs(player)] == [[0.1], [0.1], []]


def test_what_comes_after_the_end_is_ignored() -> None:
    """3.5, 3.2: reports of stopped or exited trials, second early exits and second exits change nothing."""
    player = Player(asha(**TRACE)).start()
    player.do(report(player[1], 0.1, 1))
    player.do(report(player[2], 0.2, 1))
    assert player.do(report(player[2], 0.0, 16)) == []
    player.exits(player[2], ExitedReason.ERRORED)
    before = player.searcher.snapshot() | {"events": None}
    player.do(report(player[2], 0.0, 16))
    player.exits(player[2], ExitedReason.INVALID_HP)
    assert player.searcher.snapshot() | {"events": None} == before


def test_progress() -> None:
    """3.8: n0 / (1.2 max_trials); once n0 == max_trials, the greater of that and (exited - invalid)/max_trials."""
    player = Player(asha(num_rungs=1, max_time=4, max_trials=4, max_concurrent_trials=4)).start()
    player.do(report(player[1], 0.1, 4))
    assert player.searcher.progress() == pytest.approx(1 / 4.8)
    for number in (2, 3, 4):
        player.do(report(player[number], 0.1, 4))
    assert player.searcher.progress() == pytest.approx(4 / 4.8)
    for number in (1, 2, 3):
        player.exits(player[number])
    assert player.searcher.progress() == pytest.approx(4 / 4.8)
    player.exits(player[4])
    assert player.searcher.progress() == 1.0


def test_asha_is_another_name() -> None:
    """3.5: `asha` is another name of async_halving."""
    player = Player({**asha(**TRACE), "name": "asha"}).start()
    play_trace(player)
