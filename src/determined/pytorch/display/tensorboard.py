"""TensorBoard files of a trial: the user's own writer, made on first use, and the scalars that metrics become."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from determined import core
from determined.core.recording.event_file import EventFile
from determined.core.recording.tensorboard import all_but_events, every_file, rank_aware_path, scalars
from determined.core.recording.values import BatchColumns

logger = logging.getLogger("determined.pytorch")


class EventWriter:
    """Writes TensorBoard files of one rank. An error of the disk never stops training.

    Args:
        directory: Called on first use, because it makes the directory.
        clock: Seconds.
    """

    def __init__(self, directory: Callable[[], Path], clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._writer: Any = None
        self._rotated: int | None = None
        self._scalars: EventFile | None = None
        self._has_warned = False

    def get(self) -> Any:
        """Return the user's writer, the same object each time."""
        if self._writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as missing:
                raise ImportError(
                    "get_tensorboard_writer() needs a package that is not installed: "
                    "pip install 'resolute[tensorboard]'"
                ) from missing
            self._finish_scalars()
            self._writer = SummaryWriter(log_dir=str(self._directory()))
        return self._writer

    def write(
        self,
        metric_type: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Write metrics as scalars, at the latest with the next `rotate()`."""
        # TensorBoard follows only the newest file of a directory, so metrics go where the user writes, if they do.
        try:
            writer = self._writer
            if writer is None:
                writer = self._scalars = self._scalars or EventFile(self._directory())
            _log_tb_metrics(writer, metric_type, steps_completed, metrics, batch_metrics)
        except OSError as error:
            self._warn(error)

    def rotate(self) -> None:
        """Flush what was written; once a second at most close the file, and the next use opens another."""
        if self._scalars is not None:
            self._scalars.flush()
        now = int(self._clock())
        before = now if self._rotated is None else self._rotated
        self._rotated = max(now, before)
        try:
            if self._writer is not None:
                self._writer.close() if now > before else self._writer.flush()
        except OSError as error:
            self._warn(error)

    def upload(self, train: core.TrainContext, *, is_chief: bool) -> None:
        """Get what was written into the files, and copy them to where they are kept; other ranks copy profiles."""
        self.rotate()
        try:
            train.upload_tensorboard_files(every_file if is_chief else all_but_events, rank_aware_path)
        except OSError as error:
            self._warn(error)

    def close(self) -> None:
        """Finish the files. Writing more opens another."""
        self._finish_scalars()
        try:
            if self._writer is not None:
                self._writer.close()
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("TensorBoard files cannot be written; training continues without them: %s", error)

    def _finish_scalars(self) -> None:
        if self._scalars is not None:
            self._scalars.flush()
            self._scalars = None


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
    group = {"train": "training", "val": "validation"}.get(metric_type, metric_type)
    if group not in ("training", "validation"):
        logger.warning(
            "Metrics of type %r are not written to TensorBoard: only training and validation are.", metric_type
        )
        return
    if isinstance(batch_metrics, BatchColumns) and isinstance(writer, EventFile):
        columns = batch_metrics.columns
        rows = np.stack(list(columns.values()), axis=1).astype(np.float64)
        metrics = {name: value for name, value in metrics.items() if name not in columns}
        writer.add_rows([f"Determined/{name}" for name in columns], steps_completed - len(rows), rows)
        if not metrics:
            return
        batch_metrics = None
    for tag, value, step in scalars(group, steps_completed, metrics, batch_metrics or ()):
        writer.add_scalar(tag, value, step)
