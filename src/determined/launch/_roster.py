"""The record of started and ended workers that a launcher and its workers share: a private directory, during the run.

Torch's launcher runs between us and the workers and passes no open files on, so they share files by name:

    alive       a pipe whose writing end only the launcher has open: however the launcher dies, readers see the end
    0.0.in      rank 0, restart 0 has started: its process ids
    0.0.out     ... has ended: its code, and the last lines of its error output
    torch/      what torch's launcher writes, which would otherwise stay in /tmp
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import glob
import json
import os
import platform
import select
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path

DIRECTORY_VARIABLE = "DET_LAUNCH_DIR"
TORCH_LOG_VARIABLE = "PET_LOG_DIR"
_NEW_SECONDS = 60.0  # a directory younger than this may be one that is just being made


@dataclasses.dataclass(frozen=True)
class WorkerStart:
    """A worker that has started."""

    rank: str
    wrapper_pid: int
    worker_pid: int
    last_try: bool  # torch's launcher will not start it again


@dataclasses.dataclass(frozen=True)
class WorkerEnd:
    """A worker that has ended."""

    rank: str
    code: int
    failed_at: float  # on the monotonic clock, which all processes of a machine share
    was_told: bool  # it had been sent a signal to stop, which may be why it ended
    blames_another: bool  # its traceback is about another rank that has ended
    last_lines: list[str]
    last_try: bool = True

    @property
    def is_failure(self) -> bool:
        return self.code != 0 and self.last_try

    @property
    def ended_by_signal(self) -> bool:
        """Whether a signal to stop ended it. With an exit code of its own it may have been ending before."""
        return self.was_told and (self.code < 0 or self.code > 128)  # the latter is how a shell reports it


class Roster:
    """The launcher's side: which workers have started, and how they ended."""

    def __init__(self) -> None:
        _remove_abandoned()
        self.directory = Path(tempfile.mkdtemp(prefix=_prefix()))
        pipe = self.directory / "alive"
        os.mkfifo(pipe, 0o600)
        # A pipe cannot be opened for writing before it has a reader.
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._alive = os.open(pipe, os.O_WRONLY)
        os.close(reader)
        self._in: dict[str, WorkerStart] = {}
        self._out: dict[str, WorkerEnd] = {}
        self._lost: dict[str, WorkerEnd] = {}

    def __enter__(self) -> Roster:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._alive)
        shutil.rmtree(self.directory, ignore_errors=True)

    def variables(self, for_torch_logs: bool) -> dict[str, str]:
        """Return the variables that name the directory to workers and, unless logs are kept, to torch's launcher."""
        logs = {TORCH_LOG_VARIABLE: str(self.directory / "torch")} if for_torch_logs else {}
        return {DIRECTORY_VARIABLE: str(self.directory), **logs}

    def refresh(self) -> None:
        """Read what was written since the last call."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.directory):  # noqa: PTH208 - twenty times a second, for days
                key, _, kind = name.rpartition(".")
                if kind == "in" and key not in self._in:
                    self._in[key] = WorkerStart(**json.loads((self.directory / name).read_text("utf-8")))
                elif kind == "out" and key not in self._out:
                    self._out[key] = WorkerEnd(**json.loads((self.directory / name).read_text("utf-8")))

    def present(self) -> dict[str, WorkerStart]:
        """Return the workers that have started and not ended."""
        return {key: worker for key, worker in self._in.items() if key not in self._out and key not in self._lost}

    def is_empty(self) -> bool:
        """Return whether no worker has started yet."""
        return not self._in

    def mark_lost(self, key: str, end: WorkerEnd) -> None:
        """Record the end of a worker that did not: its wrapper was killed, or ended well while the disk was full."""
        self._lost[key] = end

    def first_failure(self, include_lost: bool = False) -> WorkerEnd | None:
        """Return the failure that came first, preferably one that is no consequence of another.

        Include lost workers when it is known from elsewhere that one failed.
        """
        ends = {**self._lost, **self._out} if include_lost else self._out
        failures = [end for end in ends.values() if end.is_failure]
        return min(
            failures,
            key=lambda end: (end.ended_by_signal, end.blames_another, end.was_told, end.failed_at),
            default=None,
        )


def _prefix() -> str:
    """Return how names of our directories begin; machines may share them, but no pipes."""
    return f"det-launch-{platform.node()}-"


def _remove_abandoned() -> None:
    """Remove the directories of runs that were killed with all of their processes, as that of a lost attempt is."""
    for directory in Path(tempfile.gettempdir()).glob(f"{glob.escape(_prefix())}*"):
        with contextlib.suppress(OSError):  # somebody else's, or removed by now
            made = directory.lstat()
            is_ours = made.st_uid == os.getuid() and time.time() - made.st_mtime > _NEW_SECONDS
            if is_ours and not _is_open(directory / "alive"):
                shutil.rmtree(directory, ignore_errors=True)


def _is_open(pipe: Path) -> bool:
    """Return whether a launcher or a worker has a pipe open."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(reader, 1)  # at once b"" without a launcher
    except BlockingIOError:
        return True
    finally:
        os.close(reader)
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as refused:
        if refused.errno == errno.ENXIO:  # nobody reads
            return False
        raise
    return True


class Entry:
    """A worker's side: its own entry in the roster."""

    def __init__(self, directory: Path, rank: str, restart: int, last_try: bool) -> None:
        self.rank = rank
        self.last_try = last_try
        self._directory = directory
        self._key = f"{rank}.{restart}"
        try:
            # With a writer there, a read waits; without one, it ends at once. Opening never waits.
            self._alive = os.open(directory / "alive", os.O_RDONLY | os.O_NONBLOCK)
            os.set_blocking(self._alive, True)
        except OSError:  # the launcher, or another worker after the launcher's death, has cleaned up
            self._alive = os.open(os.devnull, os.O_RDONLY)

    @classmethod
    def find(cls, rank: str, environment: MutableMapping[str, str]) -> Entry | None:
        """Return the entry of this rank, or None without a launcher; remove the launcher's variables for the worker."""
        directory = environment.pop(DIRECTORY_VARIABLE, "")
        if not directory:
            return None
        if environment.get(TORCH_LOG_VARIABLE, "").startswith(directory):
            del environment[TORCH_LOG_VARIABLE]
        restart = int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))
        last_try = restart >= int(environment.get("TORCHELASTIC_MAX_RESTARTS", "0"))
        return cls(Path(directory), rank, restart, last_try)

    def launcher_has_died(self) -> bool:
        return bool(select.select([self._alive], [], [], 0)[0])

    def when_launcher_dies(self, act: Callable[[], None]) -> None:
        """Call `act` in a new thread if the launcher dies before us."""

        def wait() -> None:
            os.read(self._alive, 1)  # nothing is ever written: this returns when the pipe closes
            act()

        threading.Thread(target=wait, name="launcher watch", daemon=True).start()

    def write_start(self, worker_pid: int) -> None:
        self._write("in", WorkerStart(self.rank, os.getpid(), worker_pid, self.last_try))

    def write_end(self, end: WorkerEnd) -> None:
        if self.launcher_has_died():
            self.clean_up()
        else:
            self._write("out", dataclasses.replace(end, last_try=self.last_try))

    def clean_up(self) -> None:
        """Remove the directory of a launcher that has died. Each worker tries at its end, so the last one succeeds."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _write(self, kind: str, what: WorkerStart | WorkerEnd) -> None:
        draft = self._directory / f"{self._key}.draft"
        # A full disk may lose the report of a failure, but must not end the run.
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)  # a cleaner of /tmp may have removed it
            draft.write_text(json.dumps(dataclasses.asdict(what)), "utf-8")
            draft.replace(self._directory / f"{self._key}.{kind}")
