"""Adaptive ASHA: several halving searches side by side, from hasty to patient, that share one generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined.experiment.search.asha import HalvingMethod, StoppingHalving
from determined.experiment.search.base import Action, ExitedReason, SearchContext, SearchMethod, SearchState, creates
from determined.experiment.search.promotion import PromotingHalving
from determined.experiment.search.rungs import Bracket, Halving, brackets


def halving(searcher: Mapping[str, Any]) -> HalvingMethod:
    """Return the method that a checked `async_halving` section asks for."""
    (bracket,) = brackets(searcher)
    return _halving(searcher, bracket)


def _halving(searcher: Mapping[str, Any], bracket: Bracket) -> HalvingMethod:
    form = PromotingHalving if searcher.get("form") == "promotion" else StoppingHalving
    return form(Halving.of(searcher, bracket))


class AdaptiveAsha(SearchMethod):
    """Hedges between stopping early and waiting: each bracket has another number of rungs.

    Events go to the bracket that made the trial; what one bracket sees changes nothing in another.
    """

    def __init__(self, searcher: Mapping[str, Any]) -> None:
        self.brackets = [_halving(searcher, bracket) for bracket in brackets(searcher)]
        self._bracket_of: dict[str, int] = {}  # of trials that have not exited

    def bracket_of(self, request_id: str) -> int | None:
        """Return the bracket that made a trial; None once the trial has exited."""
        return self._bracket_of.get(request_id)

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        return [
            action
            for index, bracket in enumerate(self.brackets)
            for action in self._owned(index, bracket.initial_trials(ctx))
        ]

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
        index = self._bracket_of[request_id]
        return self._owned(index, self.brackets[index].validation_completed(ctx, request_id, metrics))

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:
        index = self._bracket_of[request_id]
        return self._owned(index, self.brackets[index].trial_exited_early(ctx, request_id, reason))

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
        index = self._bracket_of.pop(request_id)
        return self._owned(index, self.brackets[index].trial_exited(ctx, request_id))

    def progress(self, state: SearchState) -> float:
        return sum(bracket.progress(state) for bracket in self.brackets) / len(self.brackets)

    def snapshot(self) -> dict[str, Any]:
        return {"brackets": [bracket.snapshot() for bracket in self.brackets], "bracket_of": dict(self._bracket_of)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._bracket_of = dict(state["bracket_of"])
        for bracket, row in zip(self.brackets, state["brackets"], strict=True):
            bracket.restore(row)

    def _owned(self, index: int, actions: list[Action]) -> list[Action]:
        for create in creates(actions):
            self._bracket_of[create.request_id] = index
        return actions
