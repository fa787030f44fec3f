"""TensorBoard event files of a run: their directory, and the scalars that reported metrics become."""

from __future__ import annotations

import enum
import numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from determined.core.recording.values import as_float
from determined.store.messages import MetricReport, Report

if TYPE_CHECKING:
    from determined.core.recording.event_file import EventFile

Selector = Callable[[Path], bool]
Mangler = Callable[[Path, int], Path]


class TensorboardMode(enum.Enum):
    """Who writes and uploads TensorBoard files.

    `AUTO`: reported training and validation metrics become scalars by themselves.
    `MANUAL`: the script writes its own files into `get_tensorboard_path()` and says when to upload them.
    """

    AUTO = "AUTO"
    MANUAL = "MANUAL"


def scalars(
    group: str, steps_completed: int, metrics: Mapping[str, Any], batches: Sequence[Mapping[str, Any]] = ()
) -> Iterator[tuple[str, float, int]]:
    """Yield the (tag, value, step) that reported metrics become; what is no number is left out."""
    if group == "training":
        for position, batch in enumerate(batches, start=steps_completed - len(batches)):
            yield from ((f"Determined/{name}", value, position) for name, value in _numeric(batch))
        shown = {name for batch in batches for name in batch}
        for name, value in _numeric(metrics):
            if name not in shown:  # a reducer's, usually
                yield f"Determined/{name}", value, steps_completed
    elif group == "validation":
        for name, value in _numeric(metrics):
            yield validation_tag(name), value, steps_completed


def validation_tag(name: str) -> str:
    """Return the tag of a validation metric, with `val_` in it exactly once."""
    return f"Determined/{name}" if name.startswith(("val_", "validation_")) else f"Determined/val_{name}"


def _numeric(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if type(value) is float:
            yield name, value
        elif isinstance(value, numbers.Real) or _is_numpy_number(value):
            yield name, as_float(value)


def _is_numpy_number(value: Any) -> bool:
    """Return whether `value` is a numpy bool or an array of one number; a tensor's dtype has no kind."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return kind in ("b", "i", "u", "f") and value.ndim == 0


class EventFiles:
    """Writes scalars into event files of one directory, which is made with the first of them."""

    def __init__(self, path: Path, mode: TensorboardMode) -> None:
        self.path = path
        self.mode = mode
        self._file: EventFile | None = None

    def follow(self, reports: Sequence[Report]) -> None:
        """Write what these reports hold, if the mode is AUTO."""
        if self.mode is not TensorboardMode.AUTO:
            return
        found = [
            scalar
            for report in reports
            if isinstance(report, MetricReport) and report.steps_completed is not None
            for scalar in scalars(report.group, report.steps_completed, report.metrics, report.batches())
        ]
        if not found:
            return
        if self._file is None:
            from determined.core.recording.event_file import (
                EventFile,  # numpy is loaded when there is something to write
            )

            self._file = EventFile(self.path)
        for scalar in found:
            self._file.add_scalar(*scalar)
        self._file.flush()


OTHER_RANK = re.compile(r"rank_\d+")
"""Directories of other ranks, inside the chief's."""


def rank_directory(path: Path, rank: int) -> Path:
    """Where a rank writes: the chief into the run's directory, others below it, where TensorBoard keeps them apart."""
    return path if rank == 0 else path / f"rank_{rank}"


P = TypeVar("P", bound="str | PurePath")

_TOOLS = (
    "dcn_collective_stats", "framework_op_stats", "hlo_proto", "input_pipeline", "input_pipeline_analyzer",
    "kernel_stats", "memory_profile", "memory_viewer", "op_profile", "overview_page", "pod_viewer",
    "tensorflow_stats", "tf_data_bottleneck_analysis", "trace", r"pt\.trace", "xplane",
)  # fmt: skip
_PROFILE = re.compile(rf"(?P<host>.+?)(?P<rest>(\.\d+)?\.({'|'.join(_TOOLS)})\.(pb|json)(\.gz)?)")


def rank_aware_path(path: P, rank: int) -> P:
    """`a/host.pt.trace.json` is `a/host#3.pt.trace.json` for rank 3; files that no profiler wrote keep their name.

    Example::

        rank_aware_path(Path("a/host.input_pipeline.pb"), 3)
    """
    known = PurePath(path)
    found = _PROFILE.fullmatch(known.name)
    if found is None:
        return path
    return type(path)(known.with_name(f"{found['host']}#{rank}{found['rest']}"))
