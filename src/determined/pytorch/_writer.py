"""The context's TensorBoard writer: made on first use, closed and reopened so that its files can be copied."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class EventWriter:
    """One `SummaryWriter` in the directory of this run.

    Args:
        directory: Asked for on first use, because only then must it exist.
        clock: Seconds.
    """

    def __init__(self, directory: Callable[[], Path], clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._writer: Any = None
        self._rotated: int | None = None

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
            self._writer = SummaryWriter(log_dir=str(self._directory()))
        return self._writer

    def rotate(self) -> None:
        """Get what was written into the file: at most once a second by closing it, and the next use opens another."""
        now = int(self._clock())
        if self._rotated is None:
            self._rotated = now
        if now > self._rotated:
            self._rotated = now
            self.close()
        elif self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Finish the file. Writing more opens another."""
        if self._writer is not None:
            self._writer.close()
