"""TensorBoard event files of a run: their directory, and the scalars that reported metrics become."""

from __future__ import annotations

import abc
import enum
import logging
import numbers
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from determined.artifacts.driver import random_state_kept
from determined.core.recording.values import as_float
from determined.store.messages import MetricReport, Report

if TYPE_CHECKING:
    from determined.artifacts import Storage
    from determined.core.recording.event_file import EventFile

Selector = Callable[[Path], bool]
Mangler = Callable[[Path, int], PurePath]


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


logger = logging.getLogger("determined.tensorboard")

Request = tuple[Selector, Mangler, int]

PAUSE_SECONDS = 1.0
SAY_SECONDS = 10.0
_MOST_REQUESTS = 50


def every_file(path: Path) -> bool:  # noqa: ARG001  what a selector gets
    """Select all files."""
    return True


def all_but_events(path: Path) -> bool:
    """Select profiles and the like: the chief uploads event files."""
    return ".tfevents." not in path.name


def same_path(path: Path, _: int) -> Path:
    return path


class EventUploads(abc.ABC):
    """Uploads files of one directory that changed since they were last uploaded.

    An upload that fails is a warning, never an exception: the file is tried again with the next sync.

    Args:
        base_path: The directory that event files are written to.
        async_upload: Upload in a thread of its own, between `start()` and `close()`.
        sync_on_close: Make a last sync in `close()`. One that was requested and postponed is made in any case.
    """

    def __init__(
        self, base_path: os.PathLike[str] | str, async_upload: bool = True, sync_on_close: bool = True
    ) -> None:
        self.base_path = Path(base_path)
        self._sync_on_close = sync_on_close
        self._uploaded: dict[tuple[Path, str], tuple[int, int]] = {}
        self._failed: set[Path] = set()  # warned of once, for a sync may come every second
        self._last_sync: float | None = None
        self._requests: list[Request] = []  # not done yet
        self._usual: Request = (every_file, same_path, 0)
        self._thread = threading.Thread(target=self._work, name="tensorboard", daemon=True) if async_upload else None
        self._change = threading.Condition()
        self._closing = False

    @abc.abstractmethod
    def upload(self, source: Path, name: PurePosixPath) -> None:
        """Store one file under `name`, which is relative to where they are kept."""

    def start(self) -> None:
        """Start the thread, if there is to be one."""
        if self._thread is not None and self._thread.ident is None:
            self._thread.start()

    def sync(self, selector: Selector = every_file, mangler: Mangler = same_path, rank: int = 0) -> None:
        """Upload what has changed, unless the last sync began less than a second ago: then a little later.

        Args:
            selector: Gets each file's path and says whether to upload it.
            mangler: Gets a path relative to the directory, and the rank; returns the path to store it under.
            rank: The rank that `mangler` gets.
        """
        with self._change:
            self._usual = (selector, mangler, rank)
            if self._usual not in self._requests:
                self._requests = [*self._requests, self._usual][-_MOST_REQUESTS:]
            self._change.notify()
        if not self._has_thread() and not self._seconds_to_wait():
            self._upload_requested()

    def close(self) -> None:
        """Make the last sync, and wait until everything is uploaded."""
        with self._change:
            if self._closing:
                return
            self._closing = True
            if self._sync_on_close and self._usual not in self._requests:
                self._requests.append(self._usual)
            self._change.notify()
        if not self._has_thread():
            self._upload_requested()
            return
        assert self._thread is not None
        while self._thread.is_alive():
            self._thread.join(SAY_SECONDS)
            if self._thread.is_alive():
                logger.info("Waiting for TensorBoard files to be uploaded ...")

    def _has_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _seconds_to_wait(self) -> float:
        if self._last_sync is None:
            return 0.0
        return max(0.0, self._last_sync + PAUSE_SECONDS - time.monotonic())

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._closing and (not self._requests or self._seconds_to_wait()):
                    self._change.wait(self._seconds_to_wait() if self._requests else None)
                done = self._closing
            self._upload_requested()
            if done:
                return

    def _upload_requested(self) -> None:
        with self._change:
            requests, self._requests = self._requests, []
            if requests:
                self._last_sync = time.monotonic()
        with random_state_kept():
            for request in requests:
                for path in self._files():
                    self._upload_changed(path, *request)

    def _files(self) -> Iterator[Path]:
        for directory, _, names in os.walk(self.base_path):
            yield from (Path(directory, name) for name in sorted(names))

    def _upload_changed(self, path: Path, selector: Selector, mangler: Mangler, rank: int) -> None:
        try:
            if not selector(path):
                return
            name = PurePosixPath(mangler(path.relative_to(self.base_path), rank))
            stat = path.stat()
            seen = (stat.st_mtime_ns, stat.st_size)  # before the upload: what is written meanwhile counts as a change
            if self._uploaded.get((path, str(name))) != seen:
                self.upload(path, name)
                self._uploaded[path, str(name)] = seen
                self._failed.discard(path)
        except FileNotFoundError:
            logger.debug("%s is gone before it was uploaded", path)
        except Exception as error:  # noqa: BLE001  training goes on without
            level = logging.DEBUG if path in self._failed else logging.WARNING
            self._failed.add(path)
            logger.log(level, "TensorBoard file %s was not uploaded, and is tried again: %s", path, error)


class RunUploads(EventUploads):
    """Uploads the event files of one rank to the storage of its checkpoints, where another machine can read them.

    Args:
        storage: Where to.
        run: The name of the run.
        base_path: The directory of this rank. Other ranks upload theirs, also those inside of it.
        rank: This rank.
    """

    def __init__(self, storage: Storage, run: str, base_path: Path, rank: int) -> None:
        super().__init__(base_path)
        self._storage = storage
        self._run = run
        if rank > 0:
            self._usual = (all_but_events, rank_aware_path, rank)

    def upload(self, source: Path, name: PurePosixPath) -> None:
        self._storage.keep(source, f"tensorboard/{self._run}/{name}")

    def _files(self) -> Iterator[Path]:
        for path in super()._files():
            if not OTHER_RANK.fullmatch(path.relative_to(self.base_path).parts[0]):
                yield path
