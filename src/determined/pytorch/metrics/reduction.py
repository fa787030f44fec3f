"""What `train_batch` and `evaluate_batch` return, reduced over batches and ranks at a stop.

One exchange carries the sums, the reducers' values and errors of all ranks: all ranks raise, or none. One process takes
the same path with itself. How one rank collects without slowing down is in `rank_metrics.py`.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from determined import errors
from determined.core import DistributedContext
from determined.core.recording.values import BatchColumns
from determined.pytorch.metrics.rank_metrics import Array, Column, RankMetrics, described, join_sums, to_numpy
from determined.pytorch.metrics.reducer import Reducer, _PyTorchReducerContext, exchange

logger = logging.getLogger("determined.pytorch")

KEPT_BATCHES = 1000
"""How many of a window's last batches `batch_metrics` has. Averages cover all."""

NO_BATCH = (
    "The validation data loader gave no batch on any rank. Look at build_validation_data_loader(): the dataset is "
    "empty, or drop_last drops its only batch."
)


@dataclass(frozen=True)
class Reduced:
    """The metrics of a training window or of a validation; the same on every rank.

    `records` counts all ranks, and so does `batches` of a validation; of a window it is how many each rank had.
    `batch_metrics` has the last batches of a window one by one: all of them, unless there were more than it keeps.
    """

    metrics: dict[str, Any]
    batches: int
    records: int
    batch_metrics: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True)
class _Part:
    """What one rank sends to the others."""

    columns: dict[str, Column]
    batches: int
    records: int
    lengths: tuple[int, ...] = ()
    rows: Sequence[dict[str, Any]] = ()  # batch by batch, if there is one rank; else the columns have means
    reducers: list[Any] = field(default_factory=list)
    plan: Any = None


class _Results:
    """What a method of the trial returns on this rank until a stop, and the exchange with the other ranks."""

    def __init__(
        self, distributed: DistributedContext | None, method: str, first_batch: int = 0, **options: Any
    ) -> None:
        self._ranks = distributed or DistributedContext()
        rank, size = self._ranks.rank, self._ranks.size
        self._collect = functools.partial(RankMetrics, method, rank=rank, size=size, **options)
        self._mine = self._collect(first_batch=first_batch)
        self.add: Callable[..., None] = self._mine.add
        """The method that takes in a batch's result, and its record count if known. Look it up after each stop."""
        self._noted: set[str] = set()

    @property
    def batches(self) -> int:
        """The number of batches that this rank has added since the last stop."""
        return self._mine.batches

    def _exchange(
        self, reducers: _PyTorchReducerContext | None, *, for_training: bool, plan: Any = None
    ) -> list[_Part]:
        """Return the parts of all ranks and start afresh; an error on any rank is raised on every rank. Collective."""
        mine = self._mine
        self._mine = self._collect(first_batch=mine.first_batch + mine.batches if for_training else 0)
        self.add = self._mine.add
        part: _Part | None = None
        error: Exception | None = None
        values: list[Any] = []
        try:
            if not for_training:
                _check_plan(plan)
            columns = mine.finish()
            rows = mine.batch_metrics() if for_training and self._ranks.size == 1 else ()
            if reducers is not None:
                values, error = reducers.collect(for_training)
            part = _Part(columns, mine.batches, mine.records, mine.lengths, rows, values, plan)
        except Exception as problem:  # noqa: BLE001  other ranks wait: it has to be sent before it is raised
            error = problem
        return exchange(self._ranks.allgather, part, error)

    def _is_news(self, subject: str) -> bool:
        """Return whether to speak of this, which is so once, and on the chief."""
        is_news = subject not in self._noted and self._ranks.rank == 0
        self._noted.add(subject)
        return is_news


class TrainingWindow(_Results):
    """Collects what `train_batch` returns between two stops. One object serves all windows of a `fit()`.

    With one process an unusable result raises at once; with several, every rank raises in `close()`.

    Args:
        distributed: The ranks; None for one process.
        kept_batches: How many of the last batches `batch_metrics` can show; 0 for none.
        first_batch: The index of the first batch, for messages.

    Example::

        window = TrainingWindow(core_context.distributed)
        window.add({"loss": loss})
        result = window.close(reducers)
    """

    def __init__(
        self,
        distributed: DistributedContext | None = None,
        *,
        kept_batches: int = KEPT_BATCHES,
        first_batch: int = 0,
    ) -> None:
        super().__init__(distributed, "train_batch", first_batch, kept=kept_batches)
        self._kept = kept_batches

    def close(self, reducers: _PyTorchReducerContext | None = None) -> Reduced:
        """End the window: average over batches and ranks, run the training reducers, start afresh. Collective.

        Raises:
            ValueError: Names differ between ranks.
        """
        parts = self._exchange(reducers, for_training=True)
        names = _agreed_names(parts, "train_batch")
        metrics = {name: self._average(name, _columns(name, parts)) for name in names}
        batches, records = max(part.batches for part in parts), sum(part.records for part in parts)
        rows = parts[0].rows if len(parts) == 1 else _mean_rows(names, parts, batches, self._kept)
        per_rank = [part.reducers for part in parts]
        if reducers is not None and any(per_rank):
            metrics.update(reducers.run_cross_slot_reduction(True, per_rank))
        return Reduced(metrics, batches, records, rows)

    def _average(self, name: str, columns: list[Column]) -> float | None:
        if reason := _first(column.not_a_number or (column.ragged and f"it has {column.ragged}") for column in columns):
            if self._is_news(name):
                logger.warning("Metric %r of train_batch() has no average, None is reported: %s.", name, reason)
            return None
        return float(_reduce(name, Reducer.AVG, columns)) if any(column.elements for column in columns) else None


class ValidationPass(_Results):
    """Collects what `evaluate_batch` returns in one validation. One object serves all validations of a `fit()`.

    Args:
        distributed: The ranks; None for one process.
        keep_outputs: Keep each batch's result on the host for `on_validation_epoch_end`; costs memory per batch.

    Example::

        validation = ValidationPass(core_context.distributed)
        validation.add({"accuracy": accuracy}, records=len(batch))
        result = validation.reduce(trial.evaluation_reducer(), reducers)
    """

    def __init__(self, distributed: DistributedContext | None = None, *, keep_outputs: bool = False) -> None:
        super().__init__(distributed, "evaluate_batch", kept=None if keep_outputs else 0, validation=True)

    def outputs(self) -> list[dict[str, Any]]:
        """Return this rank's results batch by batch, tensors as numpy; needs `keep_outputs`."""
        return [] if self._mine.problem else self._mine.outputs()  # reduce() raises the problem, on all ranks

    def reduce(
        self, evaluation_reducer: Reducer | Mapping[str, Reducer], reducers: _PyTorchReducerContext | None = None
    ) -> Reduced:
        """End the validation: reduce over batches and ranks, run the validation reducers, start afresh. Collective.

        Raises:
            RuntimeError: No rank had a batch.
            ValueError: Names differ between batches or ranks, or sizes between batches that are to be averaged.
            TypeError: A result is not a dict, or a value not a number.
            InvalidExperimentException: `evaluation_reducer` does not fit the metrics.
        """
        parts = self._exchange(reducers, for_training=False, plan=evaluation_reducer)
        filled = [part for part in parts if part.batches]
        if not filled:
            raise RuntimeError(NO_BATCH)
        names = _agreed_names(parts, "evaluate_batch")
        methods = _prepare_metrics_reducers(parts[0].plan, names)
        metrics = {name: self._reduce(name, methods[name], _columns(name, filled)) for name in names}
        self._note_lengths(methods, filled)
        if reducers is not None:
            metrics.update(reducers.run_cross_slot_reduction(False, [part.reducers for part in parts]))
        return Reduced(metrics, sum(part.batches for part in parts), sum(part.records for part in parts))

    def _reduce(self, name: str, method: Reducer, columns: list[Column]) -> Any:
        if reason := _first(column.not_a_number for column in columns):
            raise TypeError(f"Metric {name!r} of evaluate_batch() cannot be reduced: {reason}. Return numbers.")
        sizes = {column.size or 0: column.origin for column in reversed(columns)}
        if method in (Reducer.AVG, Reducer.RECORD_AVG):
            ragged = _first(column.ragged for column in columns)
            if ragged is None and len(sizes) > 1:
                ragged = " but ".join(f"{size} elements in {origin}" for size, origin in sizes.items())
            if ragged:
                raise ValueError(
                    f"Metric {name!r} of evaluate_batch() cannot be averaged over batches: it has {ragged}. Return its "
                    "mean, or use a reducer of your own with context.wrap_reducer()."
                )
        if max(sizes) > 1 and self._is_news(name):
            logger.info(
                "Metric %r of evaluate_batch() has %d elements per batch, and its %s is one number over all of them. "
                "For one per element use context.wrap_reducer(pytorch.MeanReducer(keep_shape=True), name=...).",
                name, max(sizes), method.name,
            )  # fmt: skip
        return _reduce(name, method, columns)

    def _note_lengths(self, methods: dict[str, Reducer], filled: list[_Part]) -> None:
        lengths = [length for part in filled for length in part.lengths]
        if Reducer.AVG in methods.values() and lengths and min(lengths) != max(lengths) and self._is_news(""):
            logger.info(
                "Validation batches hold %d to %d records, and Reducer.AVG weighs each batch the same. "
                "Reducer.RECORD_AVG weighs them by their records.",
                min(lengths), max(lengths),
            )  # fmt: skip


def reduce_full_dataset(
    metrics: Any, distributed: DistributedContext | None = None, reducers: _PyTorchReducerContext | None = None
) -> Reduced:
    """Return what `evaluate_full_dataset` returned on the chief, and the validation reducers' metrics. Collective.

    Args:
        metrics: On the chief what the method returned, or the exception that it raised; elsewhere None.
        distributed: The ranks; None for one process.
        reducers: The trial's reducers.
    """
    ranks = distributed or DistributedContext()
    error = metrics if isinstance(metrics, Exception) else None
    if error is None and ranks.rank == 0 and not isinstance(metrics, Mapping):
        error = TypeError(f"evaluate_full_dataset() returned {described(metrics)}. Return a dict from name to value.")
    values, failed = ([], None) if reducers is None else reducers.collect(for_training=False)
    host = to_numpy(dict(metrics)) if ranks.rank == 0 and error is None else None
    answers = exchange(ranks.allgather, (host, values), error or failed)
    reduced = dict(answers[0][0])
    if reducers is not None:
        reduced.update(reducers.run_cross_slot_reduction(False, [values for _, values in answers]))
    return Reduced(reduced, 0, 0)


def _columns(name: str, parts: Iterable[_Part]) -> list[Column]:
    return [part.columns[name] for part in parts if name in part.columns]


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason), None)


def _mean_rows(names: Iterable[str], parts: list[_Part], batches: int, kept: int) -> Sequence[dict[str, Any]]:
    """Return the mean over ranks of each batch that every rank has kept."""
    shown = [part.batches - len(column.means) for part in parts for column in part.columns.values()]
    start = max(shown, default=max(0, batches - kept))
    means: dict[str, tuple[Array, Array]] = {}
    for name in names:
        total, count = np.zeros(batches - start), np.zeros(batches - start)
        with np.errstate(invalid="ignore", divide="ignore"):  # no rank has it; infinities of both signs
            for part in parts:
                if name in part.columns and (own := part.batches - start):
                    total[:own] += part.columns[name].means[-own:]
                    count[:own] += part.columns[name].known[-own:]
            means[name] = (total / count, count > 0)
    arrays = {name: _columns(name, parts)[0].is_array for name in names}

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{} for _ in range(start, batches)]
        for name, (column, known) in means.items():
            for row, mean, is_known in zip(found, column, known, strict=True):
                row[name] = (np.asarray(mean) if arrays[name] else float(mean)) if is_known else None
        return found

    if batches > start and means and all(known.all() for _, known in means.values()):
        return BatchColumns({name: column for name, (column, _) in means.items()}, rows)
    return rows()


def _agreed_names(parts: list[_Part], method: str) -> list[str]:
    """Return the metric names, which must be the same on every rank that had a batch."""
    have = {rank: set(part.columns) for rank, part in enumerate(parts) if part.batches}
    every = dict.fromkeys(name for part in parts for name in part.columns)
    for name in every:
        missing = [rank for rank, names in have.items() if name not in names]
        if missing:
            present = [rank for rank, names in have.items() if name in names]
            raise ValueError(
                f"{method}() returned {name!r} on ranks {present} but not on ranks {missing}. Return the same names on "
                "every rank."
            )
    return list(every)


def _check_plan(plan: Any) -> None:
    values = plan.values() if isinstance(plan, Mapping) else [plan]
    for value in values:
        if not isinstance(value, Reducer):
            raise errors.InvalidExperimentException(
                f"evaluation_reducer() returned {described(plan)}. Return a pytorch.Reducer, or a dict of them."
            )


def _prepare_metrics_reducers(reducer: Reducer | Mapping[str, Reducer], keys: Iterable[str]) -> dict[str, Reducer]:
    """Return one reducer per metric, from what `evaluation_reducer()` returned."""
    names = list(keys)
    _check_plan(reducer)
    if isinstance(reducer, Reducer):
        return dict.fromkeys(names, reducer)
    if set(reducer) != set(names):
        raise errors.InvalidExperimentException(
            f"evaluation_reducer() covers {sorted(map(str, reducer))} but evaluate_batch() returned {sorted(names)}. "
            "Give each metric one."
        )
    return dict(reducer)


def _reduce(name: str, method: Reducer, columns: list[Column]) -> Any:
    """Return one number over all ranks. Integers stay integers where float64 holds them exactly."""
    totals = functools.reduce(join_sums, [column.totals for column in columns])
    elements = sum(column.elements for column in columns)
    if method is Reducer.AVG:
        return np.float64(totals[0] / elements if elements else math.nan)
    if method is Reducer.RECORD_AVG:
        if any(column.records is None for column in columns):
            raise ValueError(
                f"Metric {name!r} is to be averaged over records (Reducer.RECORD_AVG), but the length of a batch is "
                "not known. Override get_batch_length() in the trial, or use Reducer.AVG."
            )
        records = sum(column.records or 0 for column in columns)
        return np.float64(totals[1] / records if records else math.nan)
    if method is not Reducer.SUM and not elements:
        raise ValueError(f"Metric {name!r} of evaluate_batch() was empty in every batch, so it has no extreme.")
    number = {Reducer.SUM: totals[0], Reducer.MAX: totals[2], Reducer.MIN: -totals[3]}[method]
    is_exact = all(column.is_whole for column in columns) and abs(number) < 2**53
    return np.int64(number) if is_exact else np.float64(number)


# Underscore names that older code imports, on top of what does the work now.


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
    context: DistributedContext,
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
    context: DistributedContext, per_batch_metrics: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Return each batch's mean over ranks on the chief, this rank's own list elsewhere. Collective."""
    if context.size == 1:
        raise AssertionError("There is one rank, so there are no others to average with. Use the metrics as they are.")
    window = TrainingWindow(context, kept_batches=len(per_batch_metrics))
    for metrics in per_batch_metrics:
        window.add(metrics)
    result = window.close().batch_metrics
    return list(result if context.rank == 0 else per_batch_metrics)
