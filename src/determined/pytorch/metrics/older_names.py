"""Underscore names that older code imports, on top of what does the work now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from determined.pytorch.metrics.arrays import to_numpy
from determined.pytorch.metrics.reducer import Reducer
from determined.pytorch.metrics.reduction import Collective, TrainingWindow, ValidationPass


def _simple_reduce_metrics(reducer: Reducer, metrics: Any, num_batches: Sequence[int] | None = None) -> Any:
    """Reduce all numbers in `metrics` to one; an average may be weighted by `num_batches`."""
    if reducer in (Reducer.AVG, Reducer.RECORD_AVG):
        if num_batches is not None and len(metrics) != len(num_batches):
            raise RuntimeError(
                f"{len(metrics)} metrics were given with {len(num_batches)} batch counts. Give one count for each."
            )
        return np.average(metrics, weights=num_batches)
    reductions: dict[Reducer, Callable[[Any], Any]] = {
        Reducer.SUM: np.sum,
        Reducer.MAX: np.max,
        Reducer.MIN: np.min,
    }
    if reducer not in reductions:
        raise NotImplementedError(f"There is no reducer {reducer!r}. Use one of {[r.name for r in Reducer]}.")
    return reductions[reducer](metrics)


def _convert_metrics_to_numpy(metrics: dict[str, Any]) -> dict[str, Any]:
    """Replace the tensors in the dict by numpy arrays, and return it."""
    for name, value in metrics.items():
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                value.numpy()  # raises torch's own error
            metrics[name] = to_numpy(value)
    return metrics


def _combine_metrics(per_rank: Iterable[tuple[Mapping[str, Any], int]]) -> tuple[dict[str, list[Any]], list[int]]:
    """Return values by metric, and batch counts, of the ranks that had batches."""
    filled = [(metrics, count) for metrics, count in per_rank if count]
    names = dict.fromkeys(name for metrics, _ in filled for name in metrics)
    return {name: [metrics[name] for metrics, _ in filled] for name in names}, [count for _, count in filled]


def _reduce_metrics(
    context: Collective,
    batch_metrics: Sequence[Mapping[str, Any]],
    keys: Iterable[str] | None,
    metrics_reducers: Mapping[str, Reducer] | Reducer,
) -> dict[str, Any]:
    """Return the validation metrics of all ranks on the chief, `{}` elsewhere. Collective."""
    validation = ValidationPass(context)
    names = None if keys is None else list(keys)
    for metrics in batch_metrics:
        validation.add(metrics if names is None else {name: metrics[name] for name in names})
    reduced = validation.reduce(metrics_reducers).metrics
    return reduced if context.rank == 0 else {}


def _combine_and_average_training_metrics(
    context: Collective, per_batch_metrics: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Return each batch's mean over ranks on the chief, this rank's own list elsewhere. Collective."""
    if context.size == 1:
        raise AssertionError("There is one rank, so there are no others to average with. Use the metrics as they are.")
    window = TrainingWindow(context, kept_batches=len(per_batch_metrics))
    for metrics in per_batch_metrics:
        window.add(metrics)
    result = window.close().batch_metrics
    return list(result if context.rank == 0 else per_batch_metrics)
