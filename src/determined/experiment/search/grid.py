"""Grid search: every combination once, from the last one backwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined.experiment.hparams import Space
from determined.experiment.search.base import Action, SearchContext, SearchMethod, SearchState
from determined.experiment.search.random import concurrency


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
