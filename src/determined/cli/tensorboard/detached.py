"""TensorBoards that go on without a terminal: `<data directory>/tensorboards/<number>` holds a record, links and a log.

The record says which process it is, so that a number the system has given to another process is never mistaken for it.
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
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined import _process
from determined._home import data_directory, make_data_directory
from determined.cli.output import terminal
from determined.cli.tensorboard import event_files, server
from determined.errors import NotFound, Refused

if TYPE_CHECKING:
    import psutil

    from determined.client import Trial

RECORD, LOG, LINKS = "tensorboard.json", "log.txt", "events"
PATIENCE_SECONDS = 5.0  # for one that was asked to end
LAST_LINES = 20
MOST_PORTS = 5


@dataclasses.dataclass(frozen=True)
class Detached:
    """One TensorBoard that was started with -d.

    Args:
        pid: Its process; until that has started, the one that starts it.
        process_started: When that process began, in seconds since the epoch.
        node: The machine it runs on.
        address: What to type into a browser.
        experiments: Those that were named.
        trials: Those that were named.
        started: When it was asked for, ISO 8601.
    """

    pid: int
    process_started: float | None
    node: str
    address: str
    experiments: list[int]
    trials: list[int]
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. One on another machine counts as running."""
        return self.node != _process.this_node() or _process.is_alive(self.pid, self.process_started)

    def of_process(self, pid: int, address: str) -> Detached:
        """Return a copy of the record for another process."""
        return dataclasses.replace(self, pid=pid, process_started=_process.started(pid), address=address)

    def write(self, directory: Path) -> None:
        """Replace the record atomically."""
        fresh = directory / f"{RECORD}.new"
        fresh.write_text(json.dumps(dataclasses.asdict(self), indent=2), encoding="utf-8")
        fresh.replace(directory / RECORD)


def place(number: int) -> Path:
    """Return the directory of a detached TensorBoard."""
    return data_directory() / "tensorboards" / str(number)


def found() -> dict[int, Detached]:
    """Return all that have a record, by number, whether they still run or not."""
    try:
        names = [entry.name for entry in (data_directory() / "tensorboards").iterdir()]
    except FileNotFoundError:
        return {}
    records = {number: _read(number) for number in sorted(int(name) for name in names if name.isdecimal())}
    return {number: record for number, record in records.items() if record is not None}


def get(number: int) -> Detached:
    """Return the one with this number.

    Raises:
        NotFound: There is none.
    """
    record = _read(number)
    if record is None:
        raise NotFound(f"There is no TensorBoard {number}. See which there are: det tensorboard list")
    return record


def _read(number: int) -> Detached | None:
    try:
        return Detached(**json.loads((place(number) / RECORD).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):  # removed meanwhile, or nothing that we wrote
        return None


def start(
    trials: Sequence[Trial], host: str, port: int | None, *, experiments: Sequence[int], named: Sequence[int]
) -> tuple[int, Detached]:
    """Start one that outlives this process, and wait until it answers.

    Args:
        trials: What it shows.
        host: Where it listens.
        port: None is the first free one.
        experiments: Those that were named, for the record.
        named: The trials that were named, for the record.
    """
    with _claimed(experiments, named) as (number, record):
        (place(number) / LINKS).mkdir()
        event_files.link(trials, place(number) / LINKS)
        for _ in range(MOST_PORTS):
            chosen = port or server.free_port(host)
            if started := _launch(number, record, host, chosen):
                return number, started
            if port or server.free_port(host) == chosen:
                break  # the port was not taken meanwhile: it failed for another reason
        terminal.say("".join(log_lines(number)[-LAST_LINES:]).rstrip(), lines=True)
        raise click.ClickException(f"TensorBoard ended before it answered on port {chosen}; its last lines are above.")


@contextlib.contextmanager
def _claimed(experiments: Sequence[int], trials: Sequence[int]) -> Iterator[tuple[int, Detached]]:
    """Reserve a number and its directory, recorded as this process until TensorBoard runs; remove it on failure."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    record = Detached(0, None, _process.this_node(), "", list(experiments), list(trials), now)
    record = record.of_process(os.getpid(), "")
    home = make_data_directory() / "tensorboards"
    home.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=".", dir=home))
    try:
        record.write(directory)
        directory = _numbered(directory)
        yield int(directory.name), record
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _numbered(directory: Path) -> Path:
    """Rename the directory to the next free number, with its record in it."""
    number = max(found(), default=0) + 1
    while True:
        try:
            return directory.rename(place(number))
        except OSError:
            if not place(number).exists():
                raise
            number += 1  # another one was quicker


def _launch(number: int, record: Detached, host: str, port: int) -> Detached | None:
    """Start the process and wait until it answers; None if it ends instead."""
    directory = place(number)
    command = server.command(directory / LINKS, host, port)
    with (directory / LOG).open("wb") as log:
        # A working directory of its own: a folder called `tensorboard` in the user's directory is not the package.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, start_new_session=True
        )
    try:
        record = record.of_process(process.pid, server.address(host, port))
        record.write(directory)
        if not server.wait_until_up(process, directory / LINKS, host, port):
            return None
    except BaseException:
        _end_process(process.pid)
        process.wait()
        raise
    process.returncode = 0  # it outlives us on purpose, so Popen has nothing to warn of
    return record


def end(number: int, record: Detached) -> bool:
    """End one and remove what is kept of it; False if it had ended already.

    Raises:
        Refused: It is not ours to end.
    """
    import psutil

    if record.node != _process.this_node():
        raise Refused(f"TensorBoard {number} runs on {record.node}, this is {_process.this_node()}. End it there.")
    was_alive = record.is_alive
    if was_alive:
        try:
            _end_process(record.pid)
        except psutil.AccessDenied:
            raise Refused(f"TensorBoard {number} is process {record.pid} of another user, who may end it.") from None
    shutil.rmtree(place(number), ignore_errors=True)
    return was_alive


def _end_process(pid: int) -> None:
    """Ask a process and those it has started to end; after a while, make them."""
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                stop(each)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(map(_runs, family)) and time.monotonic() < deadline:
            time.sleep(0.05)


def _runs(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie does not."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def log_lines(number: int) -> list[str]:
    """Return the lines that one has printed so far."""
    try:
        return (place(number) / LOG).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return []
