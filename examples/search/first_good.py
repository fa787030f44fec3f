"""A search of your own: random trials until one is good enough. `custom.yaml` names it."""

from __future__ import annotations

from typing import Any

from determined.experiment.search.base import Action, SearchContext, SearchMethod, Shutdown


class FirstGood(SearchMethod):
    """Random trials, `at_once` at a time, until one reaches `goal` or `max_trials` have been tried."""

    def __init__(self, goal: float, at_once: int = 2, max_trials: int = 16) -> None:
        self.goal = goal
        self.at_once = at_once
        self.max_trials = max_trials
        self.created = 0

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        self.created = self.at_once
        return [ctx.create() for _ in range(self.at_once)]

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
        return [Shutdown()] if metrics[ctx.metric] >= self.goal else []

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
        if self.created == self.max_trials:
            return []
        self.created += 1
        return [ctx.create()]

    def snapshot(self) -> dict[str, Any]:
        return {"created": self.created}

    def restore(self, state: Any) -> None:
        self.created = state["created"]
