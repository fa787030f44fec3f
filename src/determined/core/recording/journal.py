"""A run's own directory, `runs/<run>` in the data directory: what could not be delivered yet, and what is in doubt.

It is there only while it is needed. What a run leaves in it when it dies, the next run delivers: see `_store_link`.
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
import platform
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from determined._redact import by_shape, redacted
from determined.core.recording.run_description import RunDescription
from determined.store import messages
from determined.store.messages import FitReport, LogLine, Report

ADOPTION_SECONDS = 10.0
STILLBORN_SECONDS = 60.0
COPIES = "copies"

KINDS: dict[str, type[Report]] = {
    name: kind for name, kind in vars(messages).items() if isinstance(kind, type) and issubclass(kind, Report)
}


class Journal:
    """Reports that wait for the store in a file, and ids of checkpoints that it may not know about.

    Whoever has it open holds a lock, which the kernel lets go when the process dies, however it dies.

    Args:
        directory: The run's directory. It is made when there is something to keep.
        description: Written into it, so that a run that never reached the store can be recorded by another.
    """

    def __init__(self, directory: Path, description: RunDescription) -> None:
        self.directory = directory
        self._description = description
        self._lock: IO[bytes] | None = None
        self._locking = threading.Lock()  # checkpoints and reports come from different threads
        self._doubts: collections.Counter[str] = collections.Counter()  # one may come and go before either is known
        self._whole = 0  # bytes of the file that are whole lines
        self.is_empty = True
        self.fit: FitReport | None = None
        """How training began: whoever adopts a checkpoint of ours has to know which trial it goes on with."""

    @property
    def path(self) -> Path:
        """The file with the reports."""
        return self.directory / "unsent.jsonl"

    def keep(self, reports: Sequence[Report]) -> None:
        """Add reports to the file; OSError if that cannot be."""
        lines = _as_lines(reports)
        self._open()
        with self.path.open("ab") as file:
            if file.tell() > self._whole:  # an earlier attempt, on a full disk, got only so far
                file.truncate(self._whole)
            file.write(lines)
            file.flush()
        self._whole += len(lines)
        self.is_empty = False

    def copy(self, reports: Sequence[Report], number: int) -> None:
        """Write reports that are still on their way to a file of their own; OSError if that cannot be.

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
        """The store has the reports of that file, or `keep` has."""
        with contextlib.suppress(OSError):
            self._copy(number).unlink(missing_ok=True)

    def _copy(self, number: int) -> Path:
        return self.directory / COPIES / f"{number:012}.jsonl"

    def doubt(self, storage_id: str) -> None:
        """Remember that a checkpoint is about to come or go, before it does; OSError if that cannot be."""
        self._open()
        with self._locking:
            self._doubts[storage_id] += 1
            (self.directory / "checkpoints").mkdir(exist_ok=True)
            (self.directory / "checkpoints" / storage_id).touch()

    def trust(self, storage_id: str) -> None:
        """The store knows about that now."""
        with self._locking, contextlib.suppress(OSError):
            self._doubts[storage_id] -= 1
            if self._doubts[storage_id] <= 0:
                del self._doubts[storage_id]
                (self.directory / "checkpoints" / storage_id).unlink(missing_ok=True)

    def waiting(self) -> list[Report]:
        """The reports in the file."""
        return read_reports(self.path)

    def delivered(self) -> None:
        """The store has the reports of the file."""
        self.path.unlink(missing_ok=True)
        self._whole, self.is_empty = 0, True

    def close(self) -> None:
        """Let go of it, and remove the directory unless something is left in it."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            if not self.path.exists():
                for name in (COPIES, "checkpoints"):  # stays, with all else, if there is anything in it
                    with contextlib.suppress(FileNotFoundError):
                        (self.directory / name).rmdir()
                (self.directory / "run.json").unlink()
                self.directory.rmdir()
        self._lock.close()
        self._lock = None

    def _open(self) -> None:
        with self._locking:
            if self._lock is None:
                self._lock = self._claim()

    def _claim(self) -> IO[bytes]:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = (self.directory / "run.json").open("wb")
        try:
            _lock(file)
            fit = None if self.fit is None else _as_json(self.fit)
            told = json.dumps({"run": dataclasses.asdict(self._description), "fit": fit})
            self._write_or_remove(file, told.encode())
        except BaseException:
            with contextlib.suppress(OSError):  # again what went wrong before
                file.close()
            raise
        return file

    def _write_or_remove(self, file: IO[bytes], content: bytes) -> None:
        """On a full disk, leave no empty file for others to wonder about."""
        try:
            file.write(content)
            file.flush()
        except OSError:
            with contextlib.suppress(OSError):
                (self.directory / "run.json").unlink()
                self.directory.rmdir()
            raise


@dataclasses.dataclass
class Remains:
    """What a dead run has left."""

    name: str
    directory: Path
    description: RunDescription
    fit: FitReport | None = None

    def reports(self) -> list[Report]:
        """What it could not deliver. The store may have the last of it: it died before it could take a note of that."""
        return read_reports(self.directory / "unsent.jsonl", *sorted((self.directory / COPIES).glob("*.jsonl")))

    def in_doubt(self) -> dict[str, datetime.datetime]:
        """Ids of checkpoints that may have come, or gone, without a word; and when."""
        found = {}
        with contextlib.suppress(OSError):
            for path in sorted((self.directory / "checkpoints").iterdir()):
                found[path.name] = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
        return found

    def bury(self) -> None:
        """All of it is in the store: the directory can go."""
        with contextlib.suppress(OSError):
            for name in (COPIES, "checkpoints"):
                for path in (self.directory / name).glob("*"):
                    path.unlink()
                with contextlib.suppress(FileNotFoundError):
                    (self.directory / name).rmdir()
            (self.directory / "unsent.jsonl").unlink(missing_ok=True)
            (self.directory / "run.json").unlink()
            self.directory.rmdir()


def left_behind(runs: Path) -> Iterator[Remains]:
    """What dead runs have left, one after the other. Each is ours alone while it is looked at."""
    with contextlib.suppress(OSError):
        for directory in sorted(path for path in runs.iterdir() if path.is_dir()):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                if not (directory / "run.json").exists() and _is_stillborn(directory.stat()):
                    directory.rmdir()  # it died as it made it, or as it removed it
                with (directory / "run.json").open("r+b") as file:
                    found = _read(file, directory)
                    _lock_dead(file, found.description)
                    if (directory / "run.json").exists():  # else somebody else has looked after it meanwhile
                        yield found


def _read(file: IO[bytes], directory: Path) -> Remains:
    try:
        told = json.loads(file.read())
    except ValueError:
        if _is_stillborn(os.fstat(file.fileno())):
            _lock(file)
            Remains(directory.name, directory, RunDescription("")).bury()  # it died before it had anything to say
        raise
    fit = None if told["fit"] is None else _from_json(told["fit"])
    assert fit is None or isinstance(fit, FitReport)
    return Remains(directory.name, directory, RunDescription(**told["run"]), fit)


def _is_stillborn(found: os.stat_result) -> bool:
    """Whether whoever has begun to write this would have gone on by now."""
    return time.time() - found.st_mtime > STILLBORN_SECONDS


def _lock_dead(file: IO[bytes], description: RunDescription) -> None:
    """Take what a dead run has left; OSError if it lives, or if another process takes too long to look after it."""
    deadline = time.monotonic() + ADOPTION_SECONDS
    while True:
        try:
            _lock(file)
            return
        except OSError:
            if time.monotonic() > deadline or not _is_dead(description):
                raise
        # Another process looks after it just now. What it finds may be what we are about to ask for.
        time.sleep(0.05)


def _is_dead(description: RunDescription) -> bool:
    if os.name == "nt" or description.host != platform.node():
        return False
    try:
        os.kill(description.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def read_reports(*paths: Path) -> list[Report]:
    """The reports in files, each once; a line that is not whole is the last one, and was never complete."""
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
    return "".join(json.dumps(_as_json(_redacted(report)), default=_packed) + "\n" for report in reports).encode()


def _packed(column: Any) -> Any:
    """Metrics of single batches, a hundred times as many as averages, as bytes: a tenth of the time of digits."""
    if isinstance(column, array.array) and sys.byteorder == "little":
        return {"typecode": column.typecode, "base64": base64.b64encode(column).decode()}
    return list(column)


def _unpacked(batches: Any) -> Any:
    if not isinstance(batches, dict):
        return batches
    return {
        name: array.array(column["typecode"], base64.b64decode(column["base64"]))
        if isinstance(column, dict)
        else column
        for name, column in batches.items()
    }


def _redacted(report: Report) -> Report:
    if isinstance(report, LogLine):
        return dataclasses.replace(report, text=by_shape(report.text))
    return dataclasses.replace(report, **redacted({k: v for k, v in vars(report).items() if k != "time"}))


def _as_json(report: Report) -> dict[str, Any]:
    # Python's own NaN and Infinity: this file is read by nobody else, and gets back exactly what was reported.
    fields = dict(vars(report))
    stamp: datetime.datetime = fields.pop("time")
    return {"report": type(report).__name__, "time": stamp.isoformat(), **fields}


def _from_json(fields: dict[str, Any]) -> Report:
    kind = KINDS[fields.pop("report")]
    if "batch_metrics" in fields:
        fields["batch_metrics"] = _unpacked(fields["batch_metrics"])
    return kind(**fields | {"time": datetime.datetime.fromisoformat(fields["time"])})


def _lock(file: IO[bytes]) -> None:
    """Take the file for this process; BlockingIOError if another has it."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]  # not on this system
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
