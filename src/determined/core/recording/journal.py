"""A run's own directory, `runs/<run>` in the data directory: reports not delivered yet, and pending checkpoints.

It exists only while it is needed. What a run leaves in it when it dies, `recovery` delivers in the next run.
"""

from __future__ import annotations

import array
import base64
import collections
import contextlib
import dataclasses
import datetime
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from determined import _process
from determined._redact import by_shape, redacted
from determined.core.recording.run_description import RunDescription
from determined.store import messages
from determined.store.messages import FitReport, LogLine, Report

RECOVERY_SECONDS = 10.0
"""How long to wait for another process that recovers the same run."""
ABANDONED_SECONDS = 60.0
"""A directory without a readable description is abandoned after this time."""
COPIES, PENDING, UNSENT, DESCRIPTION = "copies", "checkpoints", "unsent.jsonl", "run.json"

KINDS: dict[str, type[Report]] = {
    name: kind for name, kind in vars(messages).items() if isinstance(kind, type) and issubclass(kind, Report)
}


class Journal:
    """Writes the directory of a run that is alive: unsent reports, copies of reports, ids of pending checkpoints.

    While it is open it holds a lock, which the kernel releases when the process dies, however it dies.

    Args:
        directory: The run's directory. It is made when there is something to keep.
        description: Written into it, so that a run that never reached the store can be recorded by another.
    """

    def __init__(self, directory: Path, description: RunDescription) -> None:
        self.directory = directory
        self._description = description
        self._lock: IO[bytes] | None = None
        self._locking = threading.Lock()  # checkpoints and reports come from different threads
        self._pending: collections.Counter[str] = collections.Counter()  # may be stored and deleted before any report
        self._whole = 0  # bytes of the unsent file that are whole lines
        self.is_empty = True
        self.fit: FitReport | None = None
        """How training began: whoever recovers a checkpoint of this run needs the trial that it continues."""

    def keep(self, reports: Sequence[Report]) -> None:
        """Add reports to the unsent file; OSError if that fails."""
        lines = _as_lines(reports)
        self._open()
        with (self.directory / UNSENT).open("ab") as file:
            if file.tell() > self._whole:  # an earlier attempt, on a full disk, got only so far
                file.truncate(self._whole)
            file.write(lines)
            file.flush()
        self._whole += len(lines)
        self.is_empty = False

    def unsent(self) -> list[Report]:
        """Return the reports in the unsent file."""
        return read_reports(self.directory / UNSENT)

    def remove_unsent(self) -> None:
        """Remove the unsent file: the store has its reports."""
        (self.directory / UNSENT).unlink(missing_ok=True)
        self._whole, self.is_empty = 0, True

    def copy(self, reports: Sequence[Report], number: int) -> None:
        """Write reports that are still on their way to a file of their own; OSError if that fails.

        Not synced, as a commit of the store is not: a kill loses nothing of either. See docs/decisions/store.md.
        """
        lines = _as_lines(reports)
        self._open()
        path = self._copy(number)
        path.parent.mkdir(exist_ok=True)
        try:
            path.write_bytes(lines)
        except OSError:
            self.drop_copy(number)
            raise

    def drop_copy(self, number: int) -> None:
        """Remove a copy: the store has its reports, or the unsent file has."""
        with contextlib.suppress(OSError):
            self._copy(number).unlink(missing_ok=True)

    def _copy(self, number: int) -> Path:
        return self.directory / COPIES / f"{number:012}.jsonl"

    def mark_pending(self, storage_id: str) -> None:
        """Note that a checkpoint is about to be stored or deleted, before it is; OSError if that fails."""
        self._open()
        with self._locking:
            self._pending[storage_id] += 1
            (self.directory / PENDING).mkdir(exist_ok=True)
            (self.directory / PENDING / storage_id).touch()

    def clear_pending(self, storage_id: str) -> None:
        """Remove one note of a checkpoint: the store has a report of it."""
        with self._locking, contextlib.suppress(OSError):
            self._pending[storage_id] -= 1
            if self._pending[storage_id] <= 0:
                del self._pending[storage_id]
                (self.directory / PENDING / storage_id).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock, and remove the directory unless something is left in it."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            if not (self.directory / UNSENT).exists():
                for name in (COPIES, PENDING):  # stays, with all else, if there is anything in it
                    with contextlib.suppress(FileNotFoundError):
                        (self.directory / name).rmdir()
                (self.directory / DESCRIPTION).unlink()
                self.directory.rmdir()
        self._lock.close()
        self._lock = None

    def _open(self) -> None:
        with self._locking:
            if self._lock is None:
                self._lock = self._make()

    def _make(self) -> IO[bytes]:
        """Make the directory with its description, locked."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = (self.directory / DESCRIPTION).open("wb")
        try:
            _lock(file)
            fit = None if self.fit is None else _as_json([self.fit])[0]
            content = json.dumps({"run": dataclasses.asdict(self._description), "fit": fit})
            try:
                file.write(content.encode())
                file.flush()
            except OSError:  # a full disk: leave no empty description behind
                with contextlib.suppress(OSError):
                    (self.directory / DESCRIPTION).unlink()
                    self.directory.rmdir()
                raise
        except BaseException:
            with contextlib.suppress(OSError):  # the same failure again
                file.close()
            raise
        return file


@dataclasses.dataclass
class UnfinishedRun:
    """The directory that a dead run has left."""

    name: str
    directory: Path
    description: RunDescription
    fit: FitReport | None = None

    def reports(self) -> list[Report]:
        """Return the reports it left. The store may have the last of them: it died before it could remove them."""
        return read_reports(self.directory / UNSENT, *sorted((self.directory / COPIES).glob("*.jsonl")))

    def pending_checkpoints(self) -> dict[str, datetime.datetime]:
        """Return the ids of checkpoints that may have been stored or deleted without a report, and when."""
        found = {}
        with contextlib.suppress(OSError):
            for path in sorted((self.directory / PENDING).iterdir()):
                found[path.name] = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
        return found

    def remove(self) -> None:
        """Remove the directory: the store has all of it."""
        with contextlib.suppress(OSError):
            for name in (COPIES, PENDING):
                for path in (self.directory / name).glob("*"):
                    path.unlink()
                with contextlib.suppress(FileNotFoundError):
                    (self.directory / name).rmdir()
            (self.directory / UNSENT).unlink(missing_ok=True)
            (self.directory / DESCRIPTION).unlink()
            self.directory.rmdir()


def find_unfinished(runs: Path) -> Iterator[UnfinishedRun]:
    """Yield what dead runs have left, one after the other, each locked while the caller looks at it."""
    with contextlib.suppress(OSError):
        for directory in sorted(path for path in runs.iterdir() if path.is_dir()):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                if not (directory / DESCRIPTION).exists() and _is_abandoned(directory.stat()):
                    directory.rmdir()  # its process died as it made or removed the directory
                with (directory / DESCRIPTION).open("r+b") as file:
                    found = _read(file, directory)
                    _lock_unfinished(file, found.description)
                    if (directory / DESCRIPTION).exists():  # else another process has recovered it meanwhile
                        yield found


def _read(file: IO[bytes], directory: Path) -> UnfinishedRun:
    try:
        content = json.loads(file.read())
    except ValueError:
        if _is_abandoned(os.fstat(file.fileno())):
            _lock(file)
            UnfinishedRun(directory.name, directory, RunDescription("")).remove()  # it died before its first report
        raise
    fit = None if content["fit"] is None else _from_json(content["fit"])
    assert fit is None or isinstance(fit, FitReport)
    return UnfinishedRun(directory.name, directory, RunDescription(**content["run"]), fit)


def _is_abandoned(found: os.stat_result) -> bool:
    return time.time() - found.st_mtime > ABANDONED_SECONDS


def _lock_unfinished(file: IO[bytes], description: RunDescription) -> None:
    """Lock a run that has died; OSError if it is alive, or if another process takes too long to recover it."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while True:
        try:
            _lock(file)
            return
        except OSError:
            is_here = description.host == _process.this_node()
            if time.monotonic() > deadline or not is_here or _process.is_alive(description.pid):
                raise
        # Another process recovers it just now. What it finds may be what we are about to ask for.
        time.sleep(0.05)


def read_reports(*paths: Path) -> list[Report]:
    """Return the reports in files, each once; a line that is not whole is the last one, and was never complete."""
    lines: dict[bytes, None] = {}  # in order
    for path in paths:
        with contextlib.suppress(OSError):
            lines.update(dict.fromkeys(path.read_bytes().splitlines()))
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            found.append(_from_json(json.loads(line)))
    return found


def _as_lines(reports: Sequence[Report]) -> bytes:
    return "".join([json.dumps(fields, default=_packed) + "\n" for fields in _as_json(reports)]).encode()


def _as_json(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """The reports without their secrets. NaN and infinities are Python's own: only this module reads the file."""
    shown = iter(redacted([vars(report) for report in reports if not isinstance(report, LogLine)]))
    found = []
    for report in reports:
        fields = {**vars(report), "text": by_shape(report.text)} if isinstance(report, LogLine) else next(shown)
        found.append({"report": type(report).__name__, **fields, "time": report.time.isoformat()})
    return found


def _packed(column: Any) -> Any:
    """Metrics of single batches, a hundred times as many as averages, as bytes: a tenth of the time of digits."""
    if isinstance(column, array.array) and sys.byteorder == "little":
        return {"typecode": column.typecode, "base64": base64.b64encode(column).decode()}
    return list(column)


def _from_json(fields: dict[str, Any]) -> Report:
    kind = KINDS[fields.pop("report")]
    if isinstance(batches := fields.get("batch_metrics"), dict):
        fields["batch_metrics"] = {
            name: array.array(column["typecode"], base64.b64decode(column["base64"]))
            if isinstance(column, dict)
            else column
            for name, column in batches.items()
        }
    return kind(**fields | {"time": datetime.datetime.fromisoformat(fields["time"])})


def _lock(file: IO[bytes]) -> None:
    """Lock the file for this process; BlockingIOError if another has it."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]  # not on this system
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
