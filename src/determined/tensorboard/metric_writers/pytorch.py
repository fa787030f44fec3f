"""Scalars through `torch.utils.tensorboard`."""

from __future__ import annotations

import warnings
from typing import Any

from determined.tensorboard._manager import get_base_path
from determined.tensorboard._writer import MetricWriter


class EventWriter(MetricWriter):
    """Writes into this process's directory of event files; `writer` is the `SummaryWriter`."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("Event files need the package: pip install 'resolute[tensorboard]'") from error

        self.writer: Any = SummaryWriter(log_dir=str(get_base_path({})))

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        self.writer.add_scalar(name, value, step)

    def reset(self) -> None:
        self.writer.close()  # it opens a new file when it is next written to

    def flush(self) -> None:
        self.writer.flush()


class TorchWriter(EventWriter):
    """The writer of older trials. New ones use `context.get_tensorboard_writer()`."""

    def __init__(self) -> None:
        warnings.warn(
            "TorchWriter is deprecated. Use context.get_tensorboard_writer(), or a SummaryWriter on "
            "core_context.train.get_tensorboard_path().",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__()
