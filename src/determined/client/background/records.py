"""Records of processes that go on without a terminal: `<data directory>/<kind>/<number>` holds one, and a log.

A record says which process it is, so that a number the system has given to another process is never mistaken for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from determined import _process
from determined._home import data_directory, make_data_directory
from determined.client.background import ending
from determined.errors import NotFound, Refused

RECORD, LOG = "record.json", "log.txt"


class EndedEarly(Refused):
    """A process ended before it answered. `lines` are what it printed."""

    lines: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Record:
    """One process that was left to itself.

    Args:
        pid: Its process; until that has started, the one that starts it.
        process_started: When that process began, in seconds since the epoch.
        node: The machine it runs on.
        address: What to type into a browser.
        started: When it was asked for, ISO 8601.
        about: What it shows.
    """

    pid: int
    process_started: float | None
    node: str
    address: str
    started: str
    about: dict[str, Any]

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. One on another machine counts as running."""
        return self.node != _process.this_node() or _process.is_alive(self.pid, self.process_started)

    @property
    def began(self) -> datetime.datetime:
        """When it was asked for."""
        return datetime.datetime.fromisoformat(self.started)

    def of_process(self, pid: int, address: str) -> Record:
        """Return a copy of the record for another process."""
        return dataclasses.replace(self, pid=pid, process_started=_process.started(pid), address=address)

    def write(self, directory: Path) -> None:
        """Replace the record atomically."""
        fresh = directory / f"{RECORD}.new"
        fresh.write_text(json.dumps(dataclasses.asdict(self), indent=2), encoding="utf-8")
        fresh.replace(directory / RECORD)


@dataclasses.dataclass(frozen=True)
class Register:
    """All processes of one kind.

    Args:
        kind: Their directory in the data directory.
        noun: What people call one.
        command: What to type to work with them.
    """

    kind: str
    noun: str
    command: str

    def place(self, number: int) -> Path:
        """Return the directory of one."""
        return data_directory() / self.kind / str(number)

    def found(self) -> dict[int, Record]:
        """Return all that have a record, by number, whether they still run or not."""
        try:
            names = [entry.name for entry in (data_directory() / self.kind).iterdir()]
        except FileNotFoundError:
            return {}
        records = {number: self._read(number) for number in sorted(int(name) for name in names if name.isdecimal())}
        return {number: record for number, record in records.items() if record is not None}

    def get(self, number: int) -> Record:
        """Return the one with this number.

        Raises:
            NotFound: There is none.
        """
        record = self._read(number)
        if record is None:
            raise NotFound(f"There is no {self.noun} {number}. See which there are: {self.command} list")
        return record

    def _read(self, number: int) -> Record | None:
        try:
            return Record(**json.loads((self.place(number) / RECORD).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):  # removed meanwhile, or nothing that we wrote
            return None

    @contextlib.contextmanager
    def claimed(self, about: dict[str, Any]) -> Iterator[tuple[int, Record]]:
        """Reserve a number and its directory, recorded as this process until its own runs; remove it on failure."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        record = Record(0, None, _process.this_node(), "", now, about).of_process(os.getpid(), "")
        home = make_data_directory() / self.kind
        home.mkdir(exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=".", dir=home))  # this user's only: an address may hold a token
        try:
            record.write(directory)
            directory = self._numbered(directory)
            yield int(directory.name), record
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def _numbered(self, directory: Path) -> Path:
        """Rename the directory to the next free number, with its record in it."""
        number = max(self.found(), default=0) + 1
        while True:
            try:
                return directory.rename(self.place(number))
            except OSError:
                if not self.place(number).exists():
                    raise
                number += 1  # another one was quicker

    def spawn(self, number: int, command: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
        """Start a process that outlives this one, with a log; `settings` are those of `Popen`."""
        directory = self.place(number)
        with (directory / LOG).open("wb") as log:
            # A working directory of its own: a folder called like a package in the user's directory is not the package.
            usual = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": directory}
            return subprocess.Popen(command, start_new_session=True, **{**usual, **settings})

    def end(self, number: int, record: Record) -> bool:
        """End one and remove what is kept of it; False if it had ended already.

        Raises:
            Refused: It is not ours to end.
        """
        import psutil

        here = _process.this_node()
        if record.node != here:
            raise Refused(f"{self.named(number)} runs on {record.node}, this is {here}. End it there.")
        was_alive = record.is_alive
        if was_alive:
            try:
                ending.end_family(record.pid)
            except psutil.AccessDenied:
                raise Refused(
                    f"{self.named(number)} is process {record.pid} of another user, who may end it."
                ) from None
        ending.reap(record.pid)
        shutil.rmtree(self.place(number), ignore_errors=True)
        return was_alive

    def named(self, number: int) -> str:
        """Return what one is called at the beginning of a sentence."""
        return f"{self.noun[0].upper()}{self.noun[1:]} {number}"

    def log_lines(self, number: int) -> list[str]:
        """Return the lines that one has printed so far."""
        try:
            return (self.place(number) / LOG).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except FileNotFoundError:
            return []
