"""What a halving search has decided so far: a row per bracket and rung, and how high each trial has climbed.

It is read off the search method itself, so it is the same for a live search, a restored one and a replayed one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from determined.experiment.search.adaptive_asha import AdaptiveAsha
from determined.experiment.search.asha import HalvingMethod, StoppingHalving
from determined.experiment.search.base import SearchMethod
from determined.experiment.search.promotion import PromotingHalving


@dataclass(frozen=True)
class RungRow:
    """One rung.

    Args:
        bracket: Which of the halving searches, from 1, the longest first.
        rung: Which of its rungs, from 1.
        units: When trials are judged here, in `time_metric`.
        time_metric: What `units` counts.
        arrived: How many values there are; a trial that failed on its way here counts, too.
        passed: How many went on from here.
        waiting: How many wait here to go on, in a search that promotes.
        best: The best value; None if there is none yet.
    """

    bracket: int
    rung: int
    units: int
    time_metric: str
    arrived: int
    passed: int
    waiting: int
    best: float | None

    @property
    def stopped(self) -> int:
        """How many ended here: stopped by the search, failed, or at the top."""
        return self.arrived - self.passed - self.waiting

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "stopped": self.stopped}


@dataclass(frozen=True)
class RungTrial:
    """A trial at a rung where it arrived.

    Args:
        request_id: Which.
        value: What it was judged by; None for NaN, and if it failed on its way here.
        is_stopped_here: It ended here: stopped by the search, failed, or at the top.
        is_waiting: It waits here to go on.
    """

    request_id: str
    value: float | None
    is_stopped_here: bool
    is_waiting: bool


@dataclass(frozen=True)
class Place:
    """How high a trial has climbed: at how many of the rungs of its bracket it was judged."""

    bracket: int
    judged: int
    rungs: int

    def __str__(self) -> str:
        return f"{self.judged}/{self.rungs}"


def brackets_of(method: SearchMethod) -> list[HalvingMethod]:
    """Return the halving searches that a search consists of; none if it is another kind of search."""
    if isinstance(method, AdaptiveAsha):
        return method.brackets
    return [method] if isinstance(method, HalvingMethod) else []


def rung_table(method: SearchMethod) -> list[RungRow]:
    """Return a row per bracket and rung; none if the search has no rungs.

    Example::

        [row.arrived for row in rung_table(engine.searcher.method)]
    """
    return [row for number, each in enumerate(brackets_of(method), start=1) for row in _rows(number, each)]


def trials_at_rungs(method: SearchMethod) -> dict[tuple[int, int], list[RungTrial]]:
    """Return who arrived at each bracket and rung, the best first.

    Trials that exited before a search was restored from a snapshot are not known; a replay knows all.

    Example::

        [trial.value for trial in trials_at_rungs(engine.searcher.method)[1, 1]]
    """
    found: dict[tuple[int, int], list[RungTrial]] = {}
    for bracket, halving in enumerate(brackets_of(method), start=1):
        sign = 1.0 if halving.settings.smaller_is_better else -1.0
        for request_id, standing in halving.standings().items():
            for index, rank in enumerate(standing.values):
                is_last = index == len(standing.values) - 1
                value = None if rank is None else sign * rank
                ends = (is_last and standing.is_out, is_last and standing.is_waiting)
                found.setdefault((bracket, index + 1), []).append(RungTrial(request_id, value, *ends))
        for (of, _), trials in found.items():
            if of == bracket:
                trials.sort(key=lambda trial: (trial.value is None, sign * (trial.value or 0.0)))
    return found


def place_of(method: SearchMethod, request_id: str) -> Place | None:
    """Return how high a trial has climbed; None if it has exited, or if there are no rungs."""
    found = brackets_of(method)
    bracket = method.bracket_of(request_id) if isinstance(method, AdaptiveAsha) else 0
    if not found or bracket is None or (judged := found[bracket].judged(request_id)) is None:
        return None
    return Place(bracket + 1, judged, len(found[bracket].settings.units))


def _rows(bracket: int, method: HalvingMethod) -> list[RungRow]:
    settings = method.settings
    sign = 1.0 if settings.smaller_is_better else -1.0

    def row(index: int, arrived: int, passed: int, waiting: int, best: list[float]) -> RungRow:
        value = sign * best[0] if best else None
        return RungRow(bracket, index + 1, settings.units[index], settings.time_metric, arrived, passed, waiting, value)

    if isinstance(method, StoppingHalving):
        return [row(i, len(rung), rung.passed, 0, rung.values) for i, rung in enumerate(method.rungs)]
    if isinstance(method, PromotingHalving):
        return [
            row(i, len(rung), rung.promoted, method.waiting(i), [place[0] for place in rung.places[:1]])
            for i, rung in enumerate(method.rungs)
        ]
    return []
