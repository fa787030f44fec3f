"""Adaptive ASHA and previews: every row of the tables."""

from __future__ import annotations

from typing import Any

import pytest

from determined.experiment.search.adaptive_asha import AdaptiveAsha
from determined.experiment.search.base import ExitedReason
from determined.experiment.search.rungs import brackets, rung_units, split_concurrency, split_trials
from determined.experiment.simulation.preview import preview
from tests.searches import Player, adaptive, asha, config, report, space

CONCURRENT = "max_concurrent_trials"
CONSERVATIVE = {"mode": "conservative"}
THREE = {"divisor": 3, CONCURRENT: 5}
BRACKETS = {"divisor": 3, "bracket_rungs": [1, 2, 3]}
ROWS: list[tuple[int, int, dict[str, Any], str, tuple[int, ...], str]] = [
    (16, 937, {}, "3/12/8, 2/4/8", (58, 234, 937), "9@58, 5@234, 2@937"),
    (16, 100000, {CONCURRENT: 8}, "3/12/4, 2/4/4", (6250, 25000, 100000), "9@6250, 5@25000, 2@100000"),
    (100, 1000, {}, "4/70/6, 3/22/5, 2/8/5", (15, 62, 250, 1000), "53@15, 30@62, 13@250, 4@1000"),
    (100, 1000, {"mode": "aggressive"}, "4/100/16", (15, 62, 250, 1000), "75@15, 19@62, 5@250, 1@1000"),
    (100, 1000, CONSERVATIVE, "4/67/4, 3/21/4, 2/8/4, 1/4/4", (15, 62, 250, 1000), "51@15, 28@62, 13@250, 8@1000"),
    (500, 256, {}, "5/354/6, 4/110/5, 3/36/5", (1, 4, 16, 64, 256), "266@1, 149@4, 65@16, 16@64, 4@256"),
    (500, 256, {"mode": "aggressive"}, "5/500/16", (1, 4, 16, 64, 256), "375@1, 94@4, 24@16, 6@64, 1@256"),
    (64, 16, {}, "3/47/8, 2/17/8", (1, 4, 16), "36@1, 22@4, 6@16"),
    (64, 16, {CONCURRENT: 0}, "3/47/17, 2/17/17", (1, 4, 16), "36@1, 22@4, 6@16"),
    (10, 100, {CONCURRENT: 2}, "2/7/1, 1/3/1", (25, 100), "6@25, 4@100"),
    (10, 900, {"max_rungs": 10, **THREE}, "3/7/3, 2/3/2", (100, 300, 900), "5@100, 3@300, 2@900"),
    (10, 1000, {**CONSERVATIVE, **THREE}, "3/7/2, 2/2/2, 1/1/1", (111, 333, 1000), "5@111, 2@333, 3@1000"),
    (10, 1000, {"divisor": 5, CONCURRENT: 5}, "2/8/3, 1/2/2", (200, 1000), "7@200, 3@1000"),
    (9, 90, {"divisor": 3, CONCURRENT: 3}, "3/6/2, 2/3/1", (10, 30, 90), "4@10, 3@30, 2@90"),
    (20, 1000, BRACKETS, "3/12/6, 2/5/5, 1/3/5", (111, 333, 1000), "8@111, 7@333, 5@1000"),
    (1000, 1000, {"divisor": 10}, "3/870/8, 2/130/8", (10, 100, 1000), "783@10, 196@100, 21@1000"),
    (3, 3, {}, "1/3/16", (3,), "3@3"),
    (1, 10, {}, "1/1/16", (10,), "1@10"),
]  # fmt: skip


@pytest.mark.parametrize(("trials", "time", "other", "expected", "units", "counts"), ROWS)
def test_the_full_vectors(
    trials: int, time: int, other: dict[str, Any], expected: str, units: tuple[int, ...], counts: str
) -> None:
    """P-29: Given every row of 3.6's full vectors, then equal brackets, rungs and previews."""
    section = adaptive(trials, time, **other)
    made = brackets(section)
    assert ", ".join("/".join(map(str, bracket)) for bracket in made) == expected
    assert rung_units(made[0].rungs, section.get("divisor", 4), time) == units
    rows = [(int(n), f"train for {at} batches") for n, at in (entry.split("@") for entry in counts.split(", "))]
    assert preview(section, space()) == rows
    assert preview({**section, "divisor": float(section.get("divisor", 4))}, space()) == rows


@pytest.mark.parametrize(
    ("trials", "divisor", "rungs", "result"),
    [
        (20, 3, [3, 2, 1], [12, 5, 3]),
        (50, 3, [4, 3], [35, 15]),
        (50, 4, [3, 2], [37, 13]),
        (100, 4, [4, 3, 2], [70, 22, 8]),
        (2, 4, [3, 2, 1], [1, 1, 1]),
    ],
)
def test_the_split_of_trials(trials: int, divisor: float, rungs: list[int], result: list[int]) -> None:
    """P-29: trials are split over the brackets as documented; with tiny `max_trials` the sum may exceed it."""
    assert split_trials(trials, divisor, rungs) == result


@pytest.mark.parametrize(
    ("limit", "divisor", "trials", "result"),
    [
        (0, 3, [9, 3, 1], [3, 3, 3]),
        (11, 3, [9, 3, 1], [4, 4, 3]),
        (0, 4, [40, 10], [10, 10]),
        (1, 4, [40, 10], [1, 1]),
    ],
)
def test_the_split_of_concurrency(limit: int, divisor: float, trials: list[int], result: list[int]) -> None:
    """P-29: concurrent trials are split over the brackets as documented; no bracket is left without one."""
    assert split_concurrency(limit, divisor, trials) == result


def test_the_dynamic_vector() -> None:
    """3.6: metrics always worse, one at a time, every 10 to 90: five at 10 and one at 90; two at 30 and one at 90."""
    player = Player(adaptive(9, 90, divisor=3, max_concurrent_trials=3)).start()
    values = iter(range(10_000))
    ended = player.one_by_one(lambda number, time: next(values), range(0, 91, 10))
    assert sorted(ended.values()) == [10] * 5 + [30] * 2 + [90] * 2
    assert len(player.trials) == 9


def test_initial_trials_come_bracket_by_bracket() -> None:
    """3.6: initial trials are created bracket by bracket, and events go to the bracket that created the trial."""
    player = Player(adaptive(64, 16)).start()
    assert len(player.trials) == 16
    method = player.searcher.method
    assert isinstance(method, AdaptiveAsha)
    player.do(report(player[1], 0.1, 1))
    player.do(report(player[9], 0.1, 4))
    assert [bracket.arrived() for bracket in method.brackets] == [1, 1]
    player.exits(player[9], ExitedReason.ERRORED)
    assert [bracket.created for bracket in method.brackets] == [8, 9]


def test_progress_is_the_mean_over_brackets() -> None:
    """3.8: the progress of adaptive_asha is the mean over its brackets."""
    player = Player(adaptive(64, 16)).start()
    player.do(report(player[1], 0.1, 1))
    player.do(report(player[9], 0.1, 4))
    assert player.searcher.progress() == pytest.approx((1 / (1.2 * 47) + 1 / (1.2 * 17)) / 2)


class TestPreview:
    def test_whole_trials(self) -> None:
        """3.10: single 1, random max_trials, grid its size: train to completion."""
        grid = space({"a": {"type": "int", "minval": 0, "maxval": 9, "count": 5}, "b": {"c": [1, 2]}})
        assert preview(config("single"), space()) == [(1, "train to completion")]
        assert preview(config("random", max_trials=7), space()) == [(7, "train to completion")]
        assert preview(config("grid"), grid) == [(5, "train to completion")]
        assert preview(config("optuna", max_trials=7), space()) == [(7, "train to completion")]

    def test_halving_is_supported(self) -> None:
        """D7: async_halving has a preview, and so has Optuna with stopping."""
        rows = [(8, "train for 4 epochs"), (3, "train for 16 epochs")]
        section = asha(num_rungs=2, max_time=16, max_trials=11, time_metric="epochs", divisor=3.5)
        assert preview(section, space()) == rows
        assert preview({**section, "name": "asha"}, space()) == rows
        assert preview({**section, "name": "optuna"}, space()) == rows

    def test_a_custom_search_decides_as_it_goes(self) -> None:
        """3.10: a preview of a custom search lists no rows, since it decides as it goes."""
        assert preview(config("custom"), space()) == []
