"""What a search found, as methods of `Experiment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from determined.client.following.driven import Driven

if TYPE_CHECKING:
    from determined.client._experiment import Experiment
    from determined.client._search.importance import Importance
    from determined.client._search.results import SearchResults
    from determined.client._search.savings import Savings
    from determined.client.following.replay import Ladder


class Searched(Driven):
    """An experiment as a search: its trials compared, what mattered, and what stopping early saved."""

    def search_results(
        self,
        metric: str | None = None,
        *,
        smaller_is_better: bool | None = None,
        steps: int | None = None,
        margin: float = 10.0,
    ) -> SearchResults:
        """Return its trials, the best first: the hyperparameters that differ, and the best value of a metric.

        Args:
            metric: `loss` of validation, or `training.loss`; the searcher metric by default.
            smaller_is_better: By default as the experiment says of its searcher metric, else True.
            steps: Take each trial's value at this step instead of its best.
            margin: Or at the nearest step that is at most so many percent away.

        Raises:
            NotFound: Nobody reported that metric; the message says what there is.

        Example::

            [(result.trial_id, result.value) for result in experiment.search_results().results[:3]]
        """
        from determined.client._search.results import At, read_results

        return read_results(
            cast("Experiment", self), metric, smaller_is_better, None if steps is None else At(steps, margin)
        )

    def hyperparameter_importance(self, metric: str | None = None) -> Importance:
        """Estimate how much of a metric's variance between the trials each hyperparameter explains.

        Args:
            metric: As for `search_results`.

        Example::

            print(experiment.hyperparameter_importance().shares)  # {'lr': 0.61, 'hidden': 0.12, ...}
        """
        from determined.client._search.importance import importance

        return importance(self.search_results(metric))

    def savings(self, ladder: Ladder | None = None) -> Savings:
        """Return what stopping trials early saved, in a search with rungs.

        Args:
            ladder: Its rungs, if they are known already.

        Example::

            print(experiment.savings())  # Stopping early saved 59 % of 46,080 batches.
        """
        from determined.client._search import savings

        return savings.read(cast("Experiment", self), ladder or self.ladder())
