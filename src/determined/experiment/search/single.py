"""One trial."""

from __future__ import annotations

from determined.experiment.search.base import Action, SearchContext, SearchMethod, SearchState


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
