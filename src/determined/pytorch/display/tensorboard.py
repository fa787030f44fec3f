"""The scalars that training and validation metrics become in TensorBoard."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from determined.core.recording.event_file import EventFile
from determined.core.recording.tensorboard import validation_tag
from determined.core.recording.values import BatchColumns, as_float

logger = logging.getLogger("determined.pytorch")


class ScalarWriter(Protocol):
    """What is needed of a `SummaryWriter`, or of a `determined.tensorboard.MetricWriter`."""

    def add_scalar(self, name: str, value: Any, step: int, /) -> Any: ...


def _log_tb_metrics(
    writer: ScalarWriter,
    metric_type: str,
    steps_completed: int,
    metrics: Mapping[str, Any],
    batch_metrics: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Write metrics as scalars under `Determined/`; what is no number is left out.

    Args:
        writer: Where to.
        metric_type: "training" or "validation" ("train" and "val" will do).
        steps_completed: Batches trained so far.
        metrics: Averages of the window, or metrics of the validation.
        batch_metrics: The window's batches one by one, the last of which is batch `steps_completed - 1`.
    """
    if metric_type in ("training", "train"):
        if isinstance(batch_metrics, BatchColumns) and isinstance(writer, EventFile) and len(batch_metrics):
            columns = batch_metrics.columns
            writer.add_rows(
                [f"Determined/{name}" for name in columns],
                steps_completed - len(batch_metrics),
                np.stack(list(columns.values()), axis=1).astype(np.float64),
            )
            metrics = {name: value for name, value in metrics.items() if name not in columns}
            batch_metrics = None
        scalars = _training(steps_completed, metrics, batch_metrics or [])
    elif metric_type in ("validation", "val"):
        scalars = ((validation_tag(name), value, steps_completed) for name, value in _numeric(metrics))
    else:
        logger.warning(
            "Metrics of type %r are not written to TensorBoard: only training and validation are.", metric_type
        )
        return
    for tag, value, step in scalars:
        writer.add_scalar(tag, value, step)


def _training(
    steps_completed: int, metrics: Mapping[str, Any], batches: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Any, int]]:
    for step, batch in enumerate(batches, start=steps_completed - len(batches)):
        yield from ((f"Determined/{name}", value, step) for name, value in _numeric(batch))
    shown = {name for batch in batches for name in batch}
    for name, value in _numeric(metrics):
        if name not in shown:  # a reducer's, usually
            yield f"Determined/{name}", value, steps_completed


def _numeric(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in metrics.items():
        if type(value) is float:
            yield name, value
        elif isinstance(value, np.ndarray):  # before the abstract class, which is slow to ask
            if value.ndim == 0 and value.dtype.kind in "biuf":
                yield name, value.item()
        elif isinstance(value, (numbers.Real, np.bool_)):
            yield name, as_float(value)
