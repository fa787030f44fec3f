"""How lists are ordered: the SDK's words for it in the store's."""

from __future__ import annotations

from typing import Any

from determined.client._enums import CheckpointSortBy, ExperimentSortBy, ModelSortBy, OrderBy, TrialSortBy

_TRIALS = {
    TrialSortBy.BEST_VALIDATION_METRIC: "best_metric",
    TrialSortBy.LATEST_VALIDATION_METRIC: "latest_metric",
    TrialSortBy.BATCHES_PROCESSED: "batches",
}
_CHECKPOINTS = {CheckpointSortBy.BATCH_NUMBER: "steps", CheckpointSortBy.END_TIME: "time"}
_EXPERIMENTS = {
    ExperimentSortBy.USER: "owner",
    ExperimentSortBy.FORKED_FROM: "parent_id",
    ExperimentSortBy.RESOURCE_POOL: "id",  # there is one pool: this machine
}


def trials_by(sort_by: TrialSortBy) -> str:
    """The store's word for an order of trials."""
    return _TRIALS.get(sort_by, str(sort_by).lower())


def experiments_by(sort_by: ExperimentSortBy) -> str:
    """The store's word for an order of experiments."""
    return _EXPERIMENTS.get(sort_by, str(sort_by).lower())


def models_by(sort_by: ModelSortBy) -> str:
    """The store's word for an order of models."""
    return str(sort_by).lower()


def checkpoints_by(sort_by: str | CheckpointSortBy | None, order_by: OrderBy | None) -> dict[str, Any]:
    """The store's words for an order of checkpoints: by what, and whether the largest comes first.

    Both or neither has to be given; neither means the best by the searcher metric first.

    Example::

        assert checkpoints_by(None, None) == {}
        assert checkpoints_by("accuracy", OrderBy.DESC) == {"metric": "accuracy", "descending": True}
    """
    if sort_by is None and order_by is None:
        return {}
    if sort_by is not None and not isinstance(sort_by, str):  # a CheckpointSortBy is a str, too
        raise ValueError(f"sort_by is {sort_by!r}. Use a CheckpointSortBy, or the name of a validation metric.")
    if sort_by is None or order_by is None:  # the contract's exception
        raise AssertionError("sort_by and order_by go together. Give both, or neither for the best first.")
    if isinstance(sort_by, CheckpointSortBy):
        by = {"sort_by": _CHECKPOINTS.get(sort_by, str(sort_by).lower())}
    else:
        by = {"metric": sort_by}
    return {**by, "descending": order_by == OrderBy.DESC}


def best_by(sort_by: str | None, smaller_is_better: bool | None) -> tuple[str | None, OrderBy | None]:
    """The same in the older words, in which a metric comes with what is better.

    Example::

        assert best_by("accuracy", False) == ("accuracy", OrderBy.DESC)
    """
    if (sort_by is None) != (smaller_is_better is None):
        raise AssertionError("sort_by and smaller_is_better go together. Give both, or neither.")
    if sort_by is None:
        return None, None
    return sort_by, OrderBy.ASC if smaller_is_better else OrderBy.DESC
