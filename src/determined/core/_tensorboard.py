"""TensorBoard event files of a run: where they lie, and the scalars that reported metrics become."""

from __future__ import annotations

import enum
import logging
import numbers
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from determined.store.messages import CheckpointReport, MetricReport, Report

logger = logging.getLogger("determined.core")

Selector = Callable[[Path], bool]
Mangler = Callable[[Path, int], Path]


class TensorboardMode(enum.Enum):
    """Who writes and uploads TensorBoard files.

    `AUTO`: reported training and validation metrics become scalars by themselves.
    `MANUAL`: the script writes its own files into `get_tensorboard_path()` and says when to upload them.
    """

    AUTO = "AUTO"
    MANUAL = "MANUAL"


def scalars(report: MetricReport) -> Iterator[tuple[str, float, int]]:
    """The (tag, value, step) that a report becomes; only plain numbers do."""
    if report.steps_completed is None:
        return
    if report.group == "training":
        batches = report.batch_metrics or []
        for position, batch in enumerate(batches, start=report.steps_completed - len(batches)):
            yield from ((f"Determined/{name}", value, position) for name, value in _numeric(batch))
        shown = {name for batch in batches for name in batch}
        for name, value in _numeric(report.metrics):
            if name not in shown:
                yield f"Determined/{name}", value, report.steps_completed
    elif report.group == "validation":
        for name, value in _numeric(report.metrics):
            yield validation_tag(name), value, report.steps_completed


def validation_tag(name: str) -> str:
    """The tag of a validation metric: it says `val_` exactly once."""
    return f"Determined/{name}" if name.startswith(("val_", "validation_")) else f"Determined/val_{name}"


def _numeric(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, numbers.Real):
            yield name, float(value)


class EventFiles:
    """Writes scalars into event files of one directory, which is made with the first of them."""

    def __init__(self, path: Path, mode: TensorboardMode) -> None:
        self.path = path
        self.mode = mode
        self._writer: Any = None

    def follow(self, reports: Sequence[Report]) -> None:
        """Write what these reports hold, if the mode is AUTO."""
        if self.mode is not TensorboardMode.AUTO:
            return
        for report in reports:
            if isinstance(report, MetricReport):
                for tag, value, step in scalars(report):
                    self._add(tag, value, step, report.time.timestamp())
        if self._writer is not None and any(isinstance(r, (MetricReport, CheckpointReport)) for r in reports):
            self._writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add(self, tag: str, value: float, step: int, seconds: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._writer is None:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter

            self._writer = EventFileWriter(str(self.path))
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        self._writer.add_event(Event(wall_time=seconds, step=step, summary=summary))


def can_write_events() -> bool:
    """Whether the package that writes event files is there; says once what to install if it is not."""
    import importlib.util

    if importlib.util.find_spec("tensorboard") is not None:
        return True
    logger.info("No TensorBoard files are written. To have them: pip install 'resolute[tensorboard]'")
    return False
