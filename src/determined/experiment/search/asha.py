"""Asynchronous halving in its stopping form: a trial is judged at each rung when it gets there, and stops if weak.

Nobody waits and nobody comes back: a trial that is stopped is replaced by a new one. The promoting form, where weak
trials pause and may come back, is in promotion.py; several halving searches side by side are in adaptive_asha.py.
"""

from __future__ import annotations

import bisect
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from determined.experiment.search.base import (
    Action,
    Create,
    ExitedReason,
    SearchContext,
    SearchMethod,
    SearchState,
    Stop,
    spell,
)
from determined.experiment.search.rungs import Halving, keep_count

FULL = 1.2
"""Progress counts arrivals at the first rung, and leaves this much for what comes after."""


class Rung:
    """The values that arrived at one rung, ascending; None (a failed trial, or NaN) is worse than every number.

    Example::

        rung = Rung([0, 1.5, 2.1])
        rung.insert(1.2)  # 1
    """

    def __init__(self, values: list[float] | None = None, worst: int = 0, passed: int = 0) -> None:
        self.values = values or []
        self.worst = worst
        self.passed = passed  # how many trials went on from here

    def __len__(self) -> int:
        return len(self.values) + self.worst

    def insert(self, value: float | None) -> int:
        """Add a value before any equal ones (None after all), and say at which position."""
        if value is None:
            self.worst += 1
            return len(self) - 1
        position = bisect.bisect_left(self.values, value)
        self.values.insert(position, value)
        return position

    def remove(self, value: float | None) -> None:
        """Forget one such value."""
        if value is None:
            self.worst -= 1
        else:
            del self.values[bisect.bisect_left(self.values, value)]

    def snapshot(self) -> dict[str, Any]:
        return {"values": [spell(value) for value in self.values], "worst": self.worst, "passed": self.passed}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Rung:
        return cls([float(value) for value in state["values"]], state["worst"], state.get("passed", 0))


@dataclass(frozen=True)
class Standing:
    """Where a trial stands: its value at each rung where it arrived, by rank; None is a NaN, or a failure on the way.

    Args:
        values: The smaller, the better.
        is_waiting: It waits at the last of these rungs.
        is_out: It ended there: stopped, failed, or at the top.
    """

    values: tuple[float | None, ...]
    is_waiting: bool = False
    is_out: bool = False


class HalvingMethod(SearchMethod):
    """What both forms share: a budget of trials, how full the first rung is, and who has exited.

    Who has exited is no part of the snapshot: nothing is decided by it, and a replay knows it.
    """

    def __init__(self, settings: Halving) -> None:
        self.settings = settings
        self.created = 0
        self.invalid = 0
        self.exited = 0
        self._left: dict[str, Standing] = {}
        self._failed: set[str] = set()  # counted at a rung that they were on their way to

    def standings(self) -> dict[str, Standing]:
        """Return where each trial stands, also those that have exited while this object was there."""
        return {**self._left, **self._living()}

    @abstractmethod
    def _living(self) -> dict[str, Standing]:
        """Return where the trials stand that have not exited."""

    def _note_exit(self, request_id: str, values: Sequence[float | None], *, is_out: bool) -> None:
        on_the_way = (None,) if request_id in self._failed else ()
        self._failed.discard(request_id)
        self._left[request_id] = Standing((*values, *on_the_way), is_out=is_out)

    @abstractmethod
    def arrived(self) -> int:
        """Return how many values the first rung has."""

    @abstractmethod
    def judged(self, request_id: str) -> int | None:
        """Return at how many rungs a trial was judged; None once it has exited."""

    def may_create(self) -> bool:
        """Return whether the budget has another trial; those with unusable hyperparameters do not count."""
        return self.created - self.invalid < self.settings.max_trials

    def create(self, ctx: SearchContext) -> Create:
        self.created += 1
        return ctx.create()

    def progress(self, state: SearchState) -> float:  # noqa: ARG002 - a bracket knows only its own trials
        arrived, planned = self.arrived(), self.settings.max_trials
        share = arrived / (FULL * planned)
        return max(share, (self.exited - self.invalid) / planned) if arrived >= planned else share


@dataclass
class _Climber:
    """A trial that has not exited: the rung it is heading for, and its values at those it passed."""

    rung: int = 0
    values: list[float | None] = field(default_factory=list)
    is_out: bool = False  # stopped, or ended early
    is_replaced: bool = False


class StoppingHalving(HalvingMethod):
    """Stops a trial at a rung unless it is among the best 1/divisor that arrived there so far.

    The first to arrive always goes on, so at least one trial reaches the last rung.
    """

    def __init__(self, settings: Halving) -> None:
        super().__init__(settings)
        self.rungs = [Rung() for _ in settings.units]
        self._trials: dict[str, _Climber] = {}

    def arrived(self) -> int:
        return len(self.rungs[0])

    def judged(self, request_id: str) -> int | None:
        trial = self._trials.get(request_id)
        return None if trial is None else len(trial.values)

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        return [self.create(ctx) for _ in range(self.settings.first_trials)]

    def create(self, ctx: SearchContext) -> Create:
        action = super().create(ctx)
        self._trials[action.request_id] = _Climber()
        return action

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
        trial = self._trials[request_id]
        if trial.is_out:
            return []
        time = math.floor(metrics[self.settings.time_metric])
        if not self._falls(trial, time, self.settings.rank(metrics[self.settings.metric])):
            return []
        trial.is_out = True
        return [Stop(request_id), *self._replace(ctx, trial)]

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:
        trial = self._trials[request_id]
        if reason is ExitedReason.INVALID_HP:
            self.invalid += 1
            for rung, value in zip(self.rungs, trial.values, strict=False):
                rung.remove(value)
            for rung in self.rungs[: trial.rung]:
                rung.passed -= 1
            trial.values.clear()
        elif not trial.is_out:
            self.rungs[trial.rung].insert(None)
            self._failed.add(request_id)
        trial.is_out = True
        return self._replace(ctx, trial)

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
        self.exited += 1
        trial = self._trials.pop(request_id)
        self._note_exit(request_id, trial.values, is_out=trial.is_out)
        return self._replace(ctx, trial)

    def _living(self) -> dict[str, Standing]:
        return {each: Standing(tuple(trial.values), is_out=trial.is_out) for each, trial in self._trials.items()}

    def snapshot(self) -> dict[str, Any]:
        return {
            "created": self.created,
            "invalid": self.invalid,
            "exited": self.exited,
            "rungs": [rung.snapshot() for rung in self.rungs],
            "trials": {
                request_id: {
                    **vars(trial),
                    "values": [v if v is None else spell(v) for v in trial.values],
                }
                for request_id, trial in self._trials.items()
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.created, self.invalid, self.exited = state["created"], state["invalid"], state["exited"]
        self.rungs = [Rung.restore(rung) for rung in state["rungs"]]
        self._trials = {
            request_id: _Climber(**{**row, "values": [v if v is None else float(v) for v in row["values"]]})
            for request_id, row in state["trials"].items()
        }

    def _falls(self, trial: _Climber, time: int, value: float | None) -> bool:
        """Judge the trial at every rung it has reached; True if it has to stop."""
        last = len(self.rungs) - 1
        for r in range(trial.rung, last + 1):
            trial.rung = r
            if time < self.settings.units[r]:
                return False
            position = self.rungs[r].insert(value)
            trial.values.append(value)
            if r == last or position >= max(keep_count(len(self.rungs[r]), self.settings.divisor), 1):
                return True
            self.rungs[r].passed += 1
        raise AssertionError("the last rung stops every trial")

    def _replace(self, ctx: SearchContext, trial: _Climber) -> list[Action]:
        """Hand the trial's place to a new one, at most once, so that no more run than at the start."""
        if trial.is_replaced or not self.may_create():
            return []
        trial.is_replaced = True
        return [self.create(ctx)]
