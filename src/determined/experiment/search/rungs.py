"""The arithmetic of halving: rungs, brackets, and how trials are shared among them. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from determined.experiment.search.simple import concurrency

DIVISOR = 4
MAX_RUNGS = 5


class Bracket(NamedTuple):
    """One halving search: how many rungs and trials it has, and how many run at once (0: see `first_trials`)."""

    rungs: int
    trials: int
    concurrency: int


@dataclass(frozen=True)
class Halving:
    """What one halving search goes by."""

    units: tuple[int, ...]
    divisor: float
    max_trials: int
    first_trials: int
    metric: str
    time_metric: str
    smaller_is_better: bool

    @classmethod
    def of(cls, searcher: Mapping[str, Any], bracket: Bracket) -> Halving:
        """Return the settings of one bracket of a checked `searcher` section."""
        divisor = divisor_of(searcher)
        return cls(
            units=rung_units(bracket.rungs, divisor, int(searcher["max_time"])),
            divisor=divisor,
            max_trials=bracket.trials,
            first_trials=first_trials(bracket, divisor),
            metric=searcher["metric"],
            time_metric=searcher["time_metric"],
            smaller_is_better=bool(searcher.get("smaller_is_better", True)),
        )

    def rank(self, value: float) -> float | None:
        """Return the value by which trials are ranked, smallest first; None, for NaN, is worse than any."""
        if math.isnan(value):
            return None
        return value if self.smaller_is_better else -value


def divisor_of(searcher: Mapping[str, Any]) -> float:
    """`divisor`, as a whole number if it is one."""
    divisor = searcher.get("divisor")
    if divisor is None:
        return DIVISOR
    return int(divisor) if float(divisor).is_integer() else float(divisor)


def rung_units(num_rungs: int, divisor: float, max_time: int) -> tuple[int, ...]:
    """At what time each rung is judged, ascending.

    Example::

        rung_units(3, 4, 937)  # (58, 234, 937)
    """
    return tuple(max(math.floor(max_time / _power(divisor, num_rungs - 1 - i)), 1) for i in range(num_rungs))


def first_trials(bracket: Bracket, divisor: float) -> int:
    """Return how many trials a bracket starts with, which is how many of its trials run at once."""
    limit = bracket.concurrency or _floor(_power(divisor, bracket.rungs - 1))
    return max(min(limit, bracket.trials), 1)


def keep_count(arrived: int, divisor: float) -> int:
    """Return how many of those that arrived at a rung are among the best share."""
    return math.floor(arrived / divisor)


def brackets(searcher: Mapping[str, Any]) -> list[Bracket]:
    """Return the brackets of a checked `async_halving` or `adaptive_asha` section, the longest first.

    Example::

        brackets({"name": "adaptive_asha", "max_trials": 16, "max_time": 937})  # [(3, 12, 8), (2, 4, 8)]
    """
    limit, max_trials, divisor = concurrency(searcher), int(searcher["max_trials"]), divisor_of(searcher)
    if searcher["name"] != "adaptive_asha":
        return [Bracket(int(searcher["num_rungs"]), max_trials, limit)]
    counts = sorted(bracket_rungs(searcher), reverse=True)
    trials = split_trials(max_trials, divisor, counts)
    return [Bracket(*row) for row in zip(counts, trials, split_concurrency(limit, divisor, trials), strict=True)]


def bracket_rungs(searcher: Mapping[str, Any]) -> Iterable[int]:
    """Return how many rungs each bracket of an `adaptive_asha` section has, by its mode unless it says so itself."""
    if chosen := searcher.get("bracket_rungs"):
        return [int(count) for count in chosen]
    divisor = divisor_of(searcher)
    most = min(
        int(searcher.get("max_rungs") or MAX_RUNGS),
        math.floor(math.log(searcher["max_time"]) / math.log(divisor)) + 1,
        math.floor(math.log(searcher["max_trials"]) / math.log(divisor)) + 1,
    )
    least = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}
    return range(least[searcher.get("mode") or "standard"], most + 1)


def split_trials(max_trials: int, divisor: float, rungs: Sequence[int]) -> list[int]:
    """Return how many trials each bracket gets: more for those that stop more of them early.

    Example::

        split_trials(20, 3, [3, 2, 1])  # [12, 5, 3]
    """
    weights = [_power(divisor, n - 1) / n for n in rungs]
    if math.isinf(sum(weights)):  # rungs beyond what a double holds: the longest bracket outweighs all others
        weights = [1.0] + [0.0] * (len(rungs) - 1)
    trials = [max(math.floor(weight / sum(weights) * max_trials), 1) for weight in weights]
    trials[0] += max(max_trials - sum(trials), 0)
    return trials


def split_concurrency(limit: int, divisor: float, trials: Sequence[int]) -> list[int]:
    """Return how many trials of each bracket run at once.

    Example::

        split_concurrency(11, 3, [9, 3, 1])  # [4, 4, 3]
    """
    if limit == 0:
        return [max(trials[-1], math.floor(divisor))] * len(trials)
    each, more = divmod(max(limit, len(trials)), len(trials))
    return [each + (k < more) for k in range(len(trials))]


def _power(divisor: float, exponent: int) -> float:
    try:
        return math.pow(divisor, exponent)
    except OverflowError:
        return math.inf


def _floor(value: float) -> int:
    return math.floor(value) if math.isfinite(value) else 2**63
