"""The context's TensorBoard files: the user's writer, made on first use, and the scalars that metrics become."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from determined.core.recording.event_file import EventFile
from determined.pytorch.display.tensorboard import _log_tb_metrics

logger = logging.getLogger("determined.pytorch")


class EventWriter:
    """What one rank writes into the TensorBoard directory of this run. A disk that refuses it never stops training.

    Args:
        directory: Asked for on first use, because only then must it exist.
        clock: Seconds.
    """

    def __init__(self, directory: Callable[[], Path], clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._writer: Any = None
        self._rotated: int | None = None
        self._scalars: EventFile | None = None
        self._is_troubled = False

    def get(self) -> Any:
        """The writer, the same object each time."""
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
        with self.tolerant():
            writer = self._writer
            if writer is None:
                writer = self._scalars = self._scalars or EventFile(self._directory())
            _log_tb_metrics(writer, metric_type, steps_completed, metrics, batch_metrics)

    def rotate(self) -> None:
        """Get what was written into the file: at most once a second by closing it, and the next use opens another."""
        if self._scalars is not None:
            self._scalars.flush()
        now = int(self._clock())
        if self._rotated is None:
            self._rotated = now
        with self.tolerant():
            if now > self._rotated:
                self._rotated = now
                self._close_writer()
            elif self._writer is not None:
                self._writer.flush()

    def close(self) -> None:
        """Finish the files. Writing more opens another."""
        self._finish_scalars()
        with self.tolerant():
            self._close_writer()

    @contextlib.contextmanager
    def tolerant(self) -> Iterator[None]:
        """Say the first trouble with the files in one line, and go on."""
        try:
            yield
        except OSError as error:
            if not self._is_troubled:
                self._is_troubled = True
                logger.warning("TensorBoard files are not written as they should be; training goes on: %s", error)

    def _finish_scalars(self) -> None:
        if self._scalars is not None:
            self._scalars.flush()
            self._scalars = None

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
