"""The searches that ignore metrics: single, random and grid. Every trial trains to its own end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined.experiment.hparams import Space
from determined.experiment.search.base import Action, ExitedReason, SearchContext, SearchMethod, SearchState


class SingleSearch(SearchMethod):
    """Exactly one trial, which trains to its own end."""

    uses_metrics = False

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        if not ctx.space.is_constant():
            ctx.warn(
                "searcher.name is single, but some hyperparameters are ranges: one value of each was drawn. "
                "Make them constants, or search with for example name: random."
            )
        return [ctx.create()]

    def progress(self, state: SearchState) -> float:
        return state.work_done()


CONCURRENT_TRIALS = 16
"""How many trials run at once if the configuration does not say."""


def concurrency(searcher: Mapping[str, Any]) -> int:
    """`max_concurrent_trials`; 0 means that there is no limit."""
    limit = searcher.get("max_concurrent_trials")
    return CONCURRENT_TRIALS if limit is None else int(limit)


class RandomSearch(SearchMethod):
    """`max_trials` samples, at most `max_concurrent_trials` at once. One that cannot be trained is drawn anew."""

    uses_metrics = False

    def __init__(self, searcher: Mapping[str, Any]) -> None:
        self.max_trials = int(searcher["max_trials"])
        self._at_once = min(self.max_trials, concurrency(searcher) or self.max_trials)
        self._created = 0
        self._invalid = 0

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        return [self._create(ctx) for _ in range(self._at_once)]

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:  # noqa: ARG002
        self._invalid += reason is ExitedReason.INVALID_HP
        return []

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:  # noqa: ARG002
        return [self._create(ctx)] if self._created - self._invalid < self.max_trials else []

    def progress(self, state: SearchState) -> float:
        return state.work_done() / self.max_trials

    def snapshot(self) -> dict[str, Any]:
        return {"created": self._created, "invalid": self._invalid}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._created, self._invalid = state["created"], state["invalid"]

    def _create(self, ctx: SearchContext) -> Action:
        self._created += 1
        return ctx.create()


class GridSearch(SearchMethod):
    """All points of the grid; points are computed when their turn comes, so that a large grid costs nothing."""

    uses_metrics = False

    def __init__(self, searcher: Mapping[str, Any], space: Space) -> None:
        self._grid = space.grid()
        self._left = self._grid.size  # points that no trial has yet
        self._at_once = min(self._left, concurrency(searcher) or self._left)

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        return [self._create(ctx) for _ in range(self._at_once)]

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:  # noqa: ARG002
        return [self._create(ctx)] if self._left else []

    def progress(self, state: SearchState) -> float:
        planned = self._grid.size - state.invalid  # a point that cannot be trained is not replaced
        return state.work_done() / planned if planned else 0.0

    def snapshot(self) -> dict[str, Any]:
        return {"left": self._left}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._left = state["left"]

    def _create(self, ctx: SearchContext) -> Action:
        self._left -= 1
        return ctx.create(self._grid[self._left])
