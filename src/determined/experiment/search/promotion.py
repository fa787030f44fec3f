"""Asynchronous halving in its promoting form: a trial pauses at each rung until it is known to be among the best.

Whenever a place is free, the best paused trial that belongs to the best floor(n / divisor) of its rung goes on, the
highest rung first; if there is none, a new trial starts. When nothing runs and nothing can start, a rung from which
nobody went on yet lets its best trial go on, so that one trial always trains to the end; then all others are stopped.

Against the stopping form: a weak start can be made good later, and no early arrival gets through for free; the price is
a checkpoint per pause, and paused trials that stay around until the end.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from determined.experiment.search.asha import HalvingMethod, Standing
from determined.experiment.search.base import (
    Action,
    Create,
    ExitedReason,
    Pause,
    Resume,
    SearchContext,
    Stop,
    spell,
)
from determined.experiment.search.rungs import Halving, keep_count

Place = tuple[float, int]
"""A value and its number of arrival: of equal values the earlier one is the better."""


class PromotionRung:
    """Who arrived at one rung, best first, and who waits there."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.worst = 0  # failed trials, and NaN: they count, and never go on
        self.promoted = 0
        self.waiting: list[tuple[Place, str]] = []  # a heap; may hold trials that have ended since

    def __len__(self) -> int:
        return len(self.places) + self.worst

    def is_kept(self, place: Place, keep: int) -> bool:
        return bisect.bisect_left(self.places, place) < keep

    def add(self, place: Place | None) -> None:
        if place is None:
            self.worst += 1
        else:
            bisect.insort(self.places, place)

    def remove(self, place: Place | None) -> None:
        if place is None:
            self.worst -= 1
        else:
            del self.places[bisect.bisect_left(self.places, place)]


@dataclass
class _Climber:
    """A trial that has not exited: the rung it is heading for, or waiting at, and where it stood at each one."""

    rung: int = 0
    places: list[Place | None] = field(default_factory=list)
    is_running: bool = True
    is_waiting: bool = False


class PromotingHalving(HalvingMethod):
    """Pauses a trial at a rung until it is among the best floor(n / divisor) that arrived there."""

    def __init__(self, settings: Halving) -> None:
        super().__init__(settings)
        self.rungs = [PromotionRung() for _ in settings.units]
        self._trials: dict[str, _Climber] = {}
        self._running = 0
        self._waiting = 0
        self._arrivals = 0

    def arrived(self) -> int:
        return len(self.rungs[0])

    def judged(self, request_id: str) -> int | None:
        trial = self._trials.get(request_id)
        return None if trial is None else len(trial.places)

    def waiting(self, rung: int) -> int:
        """Return how many trials wait at a rung."""
        return sum(trial.is_waiting and trial.rung == rung for trial in self._trials.values())

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        return self._fill(ctx)

    def create(self, ctx: SearchContext) -> Create:
        action = super().create(ctx)
        self._trials[action.request_id] = _Climber()
        self._running += 1
        return action

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
        trial = self._trials[request_id]
        if not trial.is_running:
            return []
        time = math.floor(metrics[self.settings.time_metric])
        action = self._judge(request_id, trial, time, self.settings.rank(metrics[self.settings.metric]))
        return [] if action is None else [action, *self._fill(ctx)]

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:
        trial = self._trials[request_id]
        if trial.is_running or trial.is_waiting:
            for rung in self.rungs[: trial.rung]:
                rung.promoted -= 1  # it went on, but not to the end: another one may have to
        if reason is ExitedReason.INVALID_HP:
            self.invalid += 1
            for rung, place in zip(self.rungs, trial.places, strict=False):
                rung.remove(place)
            trial.places.clear()
        elif trial.is_running:
            self.rungs[trial.rung].add(None)
            self._failed.add(request_id)
        self._leave(trial)
        return self._fill(ctx)

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
        self.exited += 1
        trial = self._trials.pop(request_id)
        self._note_exit(request_id, _values(trial), is_out=not trial.is_running)
        self._leave(trial)
        return self._fill(ctx)

    def _living(self) -> dict[str, Standing]:
        return {
            each: Standing(_values(trial), trial.is_waiting, not trial.is_running and not trial.is_waiting)
            for each, trial in self._trials.items()
        }

    def snapshot(self) -> dict[str, Any]:
        return {
            "created": self.created,
            "invalid": self.invalid,
            "exited": self.exited,
            "arrivals": self._arrivals,
            "rungs": [
                {"places": [_spelled(p) for p in rung.places], "worst": rung.worst, "promoted": rung.promoted}
                for rung in self.rungs
            ],
            "trials": {
                request_id: {**vars(trial), "places": [_spelled(p) for p in trial.places]}
                for request_id, trial in self._trials.items()
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.created, self.invalid, self.exited = state["created"], state["invalid"], state["exited"]
        self._arrivals = state["arrivals"]
        for rung, row in zip(self.rungs, state["rungs"], strict=True):
            rung.places = [(float(value), number) for value, number in row["places"]]
            rung.worst, rung.promoted, rung.waiting = row["worst"], row["promoted"], []
        self._trials = {
            request_id: _Climber(**{**row, "places": [p and (float(p[0]), p[1]) for p in row["places"]]})
            for request_id, row in state["trials"].items()
        }
        self._running = sum(trial.is_running for trial in self._trials.values())
        self._waiting = sum(trial.is_waiting for trial in self._trials.values())
        for request_id, trial in self._trials.items():
            if trial.is_waiting and (place := trial.places[-1]) is not None:
                heapq.heappush(self.rungs[trial.rung].waiting, (place, request_id))

    def _judge(self, request_id: str, trial: _Climber, time: int, value: float | None) -> Action | None:
        last = len(self.rungs) - 1
        for r in range(trial.rung, last + 1):
            trial.rung = r
            if time < self.settings.units[r]:
                return None
            rung = self.rungs[r]
            place = None if value is None else (value, self._arrivals)
            self._arrivals += 1
            rung.add(place)
            trial.places.append(place)
            if r == last:
                self._leave(trial)
                return Stop(request_id)
            if place is None or not rung.is_kept(place, keep_count(len(rung), self.settings.divisor)):
                self._wait(request_id, trial, place)
                return Pause(request_id)
            rung.promoted += 1
        raise AssertionError("the last rung stops every trial")

    def _wait(self, request_id: str, trial: _Climber, place: Place | None) -> None:
        self._leave(trial)
        trial.is_waiting = True
        self._waiting += 1
        if place is not None:
            heapq.heappush(self.rungs[trial.rung].waiting, (place, request_id))

    def _leave(self, trial: _Climber) -> None:
        """The trial no longer runs, nor waits."""
        self._running -= trial.is_running
        self._waiting -= trial.is_waiting
        trial.is_running = trial.is_waiting = False

    def _fill(self, ctx: SearchContext) -> list[Action]:
        """Use every free place; when there is nothing left to do, stop those who wait."""
        actions: list[Action] = []
        while self._running < self.settings.first_trials:
            action = self._promote(at_least=0) or (self.create(ctx) if self.may_create() else None)
            if action is None and self._running == 0:
                action = self._promote(at_least=1)
            if action is None:
                break
            actions.append(action)
        return [*actions, *self._stop_all()] if self._running == 0 and self._waiting else actions

    def _promote(self, at_least: int) -> Action | None:
        """Let the best one that waits go on, from the highest rung that has one among its best."""
        for rung in reversed(self.rungs):
            while rung.waiting and not self._still_waits(rung.waiting[0][1]):
                heapq.heappop(rung.waiting)
            if not rung.waiting:
                continue
            place, request_id = rung.waiting[0]
            is_kept = rung.is_kept(place, keep_count(len(rung), self.settings.divisor))
            if is_kept or rung.promoted < at_least:
                heapq.heappop(rung.waiting)
                rung.promoted += 1
                self._continue(self._trials[request_id])
                return Resume(request_id)
        return None

    def _still_waits(self, request_id: str) -> bool:
        trial = self._trials.get(request_id)
        return trial is not None and trial.is_waiting

    def _continue(self, trial: _Climber) -> None:
        trial.rung += 1
        trial.is_running, trial.is_waiting = True, False
        self._running += 1
        self._waiting -= 1

    def _stop_all(self) -> list[Action]:
        waiting = [(request_id, trial) for request_id, trial in self._trials.items() if trial.is_waiting]
        for _, trial in waiting:
            self._leave(trial)
        return [Stop(request_id) for request_id, _ in waiting]


def _values(trial: _Climber) -> tuple[float | None, ...]:
    return tuple(place and place[0] for place in trial.places)


def _spelled(place: Place | None) -> list[float | str | int] | None:
    return place and [spell(place[0]), place[1]]
