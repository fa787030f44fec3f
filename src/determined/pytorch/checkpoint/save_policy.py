"""Which validations earn a checkpoint: all, the best so far, or none."""

from __future__ import annotations

import dataclasses
import logging
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

logger = logging.getLogger("determined.pytorch")

POLICIES = ("best", "all", "none")


@dataclasses.dataclass(frozen=True)
class SavePolicy:
    """Which validations are saved: all, those whose searcher metric is strictly better than any before, or none."""

    kind: str
    metric: str = ""
    smaller_is_better: bool = True
    best_so_far: Callable[[], float | None] = lambda: None
    """Returns the best value of the experiment, if validations are compared; asked before each report."""
    is_strict: bool = True
    """A validation without the metric is an error; else it is saved, since nobody can say how good it is."""

    def earns_checkpoint(self, metrics: dict[str, Any]) -> bool:
        """Return whether to save. Called on the chief, before the metrics are reported."""
        if self.kind != "best":
            return self.kind == "all"
        value = (searcher_value if self.is_strict else value_or_none)(self.metric, metrics)
        best = self.best_so_far()
        if best is None or value is None:
            return True
        if math.isnan(value):
            return False
        return value < best if self.smaller_is_better else value > best


def searcher_value(metric: str, metrics: Mapping[str, Any]) -> float:
    """Return the searcher metric as a number.

    Raises:
        RuntimeError: It is missing, or is not one number.
    """
    if metric not in metrics:
        near = [name for name in metrics if metric in name or name in metric]
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RuntimeError(f"searcher.metric is {metric!r}, but this validation returned {sorted(metrics)}.{hint}")
    value = metrics[metric]
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, (numbers.Real, np.number)):
        raise RuntimeError(f"searcher.metric {metric!r} is {value!r}, and comparing checkpoints needs one number.")
    return float(value)


def value_or_none(metric: str | None, metrics: Mapping[str, Any]) -> float | None:
    """Return the searcher metric; None if it is unknown or not one number."""
    if metric is None or metric not in metrics:
        return None
    try:
        return searcher_value(metric, metrics)
    except RuntimeError:
        return None


def warn_of_missing(metric: str, metrics: Mapping[str, Any]) -> None:
    """Warn that a validation did not return the searcher metric."""
    try:
        searcher_value(metric, metrics)
    except RuntimeError as missing:
        logger.warning("%s Until it is there, no validation counts as the best.", missing)


def choose(
    policy: str,
    searcher: Mapping[str, Any] | None,
    best_so_far: Callable[[], float | None],
    *,
    is_chief: bool = True,
    is_managed: bool = True,
) -> SavePolicy:
    """Return the policy with this name: "best", "all" or "none".

    If the trial is managed, a search depends on the metric, so that a validation without it is an error under "best".
    """
    if policy not in POLICIES:
        raise ValueError(f"checkpoint_policy is {policy!r}; expected 'best', 'all' or 'none'.")
    if policy != "best":
        return SavePolicy(policy)
    metric = (searcher or {}).get("metric")
    if not metric:
        if is_chief:
            logger.warning(
                "checkpoint_policy='best' needs to know which metric, and there is none: every validation is saved. "
                "Pass init(exp_conf={'searcher': {'metric': 'loss', 'smaller_is_better': True}}), or say 'all'."
            )
        return SavePolicy("all")
    smaller_is_better = bool((searcher or {}).get("smaller_is_better", True))
    return SavePolicy(policy, metric, smaller_is_better, best_so_far, is_managed)


def retention(
    keep_best: int | None, keep_latest: int | None, searcher: Mapping[str, Any], *, is_managed: bool
) -> dict[str, int] | None:
    """Return how many checkpoints to keep, with the keys of `checkpoint_storage`; None for all, or as the config says.

    Raises:
        ValueError: A number that cannot be, or the best ones are to be kept and no metric says which they are.
    """
    for name, number in (("keep_best", keep_best), ("keep_latest", keep_latest)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise ValueError(f"{name} is {number!r}; expected how many checkpoints to keep, from 0 up.")
    if keep_best is None and keep_latest is None:
        return None
    if keep_best and not searcher.get("metric"):
        raise ValueError(
            f"keep_best={keep_best} needs to know which metric. Pass init(exp_conf={{'searcher': {{'metric': 'loss', "
            "'smaller_is_better': True}}), or keep_latest alone."
        )
    if is_managed:
        logger.warning("keep_best and keep_latest are ignored: checkpoint_storage of the experiment says what is kept.")
        return None
    return {
        "save_trial_best": 1 if keep_best is None else keep_best,
        "save_trial_latest": 1 if keep_latest is None else keep_latest,
    }
