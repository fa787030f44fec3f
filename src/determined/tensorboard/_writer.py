"""Writers of scalars, and the one that turns reported metrics into them."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class MetricWriter(abc.ABC):
    """Where scalars go."""

    @abc.abstractmethod
    def add_scalar(self, name: str, value: Any, step: int) -> None:
        """Write one number."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Finish the file; the next number goes into a new one."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Make sure that what was written is on disk."""


class BatchMetricWriter:
    """Writes the metrics of a training window or a validation, each under its tag and step.

    Args:
        writer: Where to.
        clock: Seconds since the epoch.
    """

    def __init__(self, writer: MetricWriter, clock: Callable[[], float] = time.time) -> None:
        self.writer = writer
        self._clock = clock
        self._flushed = int(clock())

    def on_train_step_end(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Write a training window: its batches one by one, and averages that no batch had."""
        self._write("training", steps_completed, metrics, batch_metrics)

    def on_validation_step_end(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Write a validation."""
        self._write("validation", steps_completed, metrics)

    def _write(self, metric_type: str, *arguments: Any) -> None:
        from determined.pytorch.display.tensorboard import _log_tb_metrics

        if int(self._clock()) > self._flushed:  # files are named by the second: a new one each, so none grows for ever
            self.writer.reset()
        _log_tb_metrics(self.writer, metric_type, *arguments)
        self.writer.flush()
        self._flushed = int(self._clock())


def get_metric_writer() -> BatchMetricWriter:
    """Return a writer of metrics into this process's event files."""
    from determined.tensorboard.metric_writers.pytorch import EventWriter

    return BatchMetricWriter(EventWriter())
