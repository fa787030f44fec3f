"""Write what an attempt prints to the store, in batches and on a thread, with the attempt's heart-beat.

Whoever prints never waits for the store: lines wait in memory, then in a file, and only when that is very large are
some dropped.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

from determined import _process, errors
from determined._redact import KeyBlocks
from determined.experiment.attempt import policies
from determined.store import attempts, logs
from determined.store.attempts import Attempt
from determined.store.database.connection import Store
from determined.store.messages import LogLine, without_cursor_moves

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = logging.getLogger("determined.experiment")

COLLECT_SECONDS = 0.2  # lines wait so long for others, so that a chatty trial is not a transaction per line
BEAT_SECONDS = 20.0
REST_SECONDS = 2.0  # after so long without a line the connection is given back: most trials print seldom
LINES_PER_WRITE = 2000
IN_MEMORY = 20_000  # lines
IN_FILE = 1 << 30  # bytes
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclasses.dataclass(frozen=True)
class Line:
    """One line on its way: `controller` is what we say about a trial, `trial` what it prints itself."""

    log: LogLine
    source: str = "trial"


class LogWriter(threading.Thread):
    """The thread.

    Args:
        store: Where lines go.
        attempt: Whose they are.
        entries: `log_policies` of the config.
        spool: A file that is made if lines have to wait.
        fenced: Called once when the attempt may go on no longer: it was ended or killed by whoever drives it.
        node: What people call this node; by default the name of the machine.
    """

    def __init__(
        self,
        store: Store,
        attempt: Attempt,
        entries: policies.Policies,
        spool: Path,
        fenced: Callable[[], None],
        node: str | None = None,
    ) -> None:
        super().__init__(name="log writer", daemon=True)
        self._store = store
        self._attempt = attempt
        self._policies = entries
        self._queue = _Queue(spool)
        self._fenced = fenced
        self._is_fenced = False
        self._key_blocks = collections.defaultdict[str, KeyBlocks](KeyBlocks)
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._node = node or _process.this_node()
        self._wrote_at = time.monotonic()
        self._next_beat = self._wrote_at + BEAT_SECONDS

    def put(self, text: str, stream: str) -> None:
        """Add a line of the trial. Returns at once."""
        shown = self._key_blocks[stream].line(without_cursor_moves(text))
        self._add(Line(LogLine(shown, stream, rank=None)))

    def say(self, text: str, level: str = "INFO") -> None:
        """Add a line of our own."""
        self._add(Line(LogLine(f"{level}: {text}", "stdout", rank=None), "controller"))

    def close(self, patience: float) -> None:
        """Write what waits, for so many seconds at most, and end the thread."""
        self._closing.set()
        self._wake.set()
        if self.ident is None:  # nothing was started whose lines it could have written
            self.start()
        self.join(patience)
        self._queue.close()

    def run(self) -> None:
        """Write until closed and empty."""
        failures = 0
        while True:
            self._wait_for_work()
            self._closing.wait(COLLECT_SECONDS if not failures else RETRY_SECONDS[min(failures, 5) - 1])
            try:
                self._write()
                failures = 0
            except errors.StoreUnavailable as failed:
                if not failures:
                    logger.warning("%s: log lines wait: %s", self._attempt.allocation_id, failed)
                failures += 1
                if self._closing.is_set():
                    time.sleep(RETRY_SECONDS[min(failures, 5) - 1])
                self._wake.set()
            except Exception:  # a trial must go on without its log
                logger.exception("%s: lines could not be stored", self._attempt.allocation_id)
                self._queue.drop()
            if self._closing.is_set() and self._queue.is_empty:
                return

    def _wait_for_work(self) -> None:
        """Wait for a line or the next heart-beat."""
        rest_at = self._wrote_at + REST_SECONDS
        if not self._wake.wait(max(0.0, min(rest_at, self._next_beat) - time.monotonic())):
            self._store.rest()
            self._wake.wait(max(0.0, self._next_beat - time.monotonic()))
        self._wake.clear()

    def _add(self, line: Line) -> None:
        self._queue.put(line)
        self._wake.set()

    def _write(self) -> None:
        if time.monotonic() >= self._next_beat:
            self._beat()
        while batch := self._queue.peek(LINES_PER_WRITE):
            matches = [
                match for line in batch if line.source == "trial" for match in self._policies.match(line.log.text)
            ]
            self._store_lines(batch, matches)
            self._queue.remove(len(batch))
            self._wrote_at = time.monotonic()

    def _store_lines(self, batch: list[Line], matches: list[policies.Match]) -> None:
        try:
            with self._store.write() as conn:
                for source, lines in groupby(batch, key=lambda line: line.source):
                    logs.append(conn, self._attempt, [line.log for line in lines], source=source, node=self._node)
                said = [f"WARNING: {match.sentence()}" for match in matches if self._record(conn, match)]
                ours = [LogLine(text, "stdout", rank=None) for text in said]
                logs.append(conn, self._attempt, ours, source="controller", node=self._node)
        except BaseException:
            self._policies.forget(matches)
            raise

    def _record(self, conn: Connection, match: policies.Match) -> bool:
        return policies.record(conn, self._attempt, match, self._node)

    def _beat(self) -> None:
        """Record that the attempt is alive, and look whether it may go on."""
        with self._store.write() as conn:
            row = attempts.get(conn, self._attempt.allocation_id)
            may_go_on = row.state != "TERMINATED" and not row.killed
            if may_go_on:
                try:
                    attempts.beat(conn, self._attempt)
                except errors.StaleAttempt:
                    may_go_on = False
        self._next_beat = time.monotonic() + BEAT_SECONDS
        if not may_go_on and not self._is_fenced:
            self._is_fenced = True
            self._fenced()


class _Queue:
    """Lines that wait: in memory and, when there are many, in a file after that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._memory: collections.deque[Line] = collections.deque()
        self._file_lines = 0  # in the file, after those in memory
        self._read_from = 0
        self._size = 0
        self._dropped = 0

    @property
    def is_empty(self) -> bool:
        return not self._memory and not self._file_lines and not self._dropped

    def put(self, line: Line) -> None:
        with self._lock:
            if len(self._memory) < IN_MEMORY and not self._file_lines:
                self._memory.append(line)
                return
            try:
                if self._size > IN_FILE:
                    raise OSError("the file is full")
                with self._path.open("ab") as file:
                    self._size += file.write(_dump(line))
                self._file_lines += 1
            except OSError:
                self._dropped += 1

    def peek(self, count: int) -> list[Line]:
        """Return the first lines."""
        with self._lock:
            if not self._memory and self._file_lines:
                self._memory.extend(self._from_file(count))
            if not self._memory and self._dropped:
                text = f"WARNING: {self._dropped} lines were lost here: the store could not be written to for too long."
                self._memory.append(Line(LogLine(text, "stdout", rank=None), "controller"))
                self._dropped = 0
            return list(islice(self._memory, count))

    def remove(self, count: int) -> None:
        with self._lock:
            for _ in range(count):
                self._memory.popleft()

    def drop(self) -> None:
        """Give up the lines that are next."""
        with self._lock:
            for _ in range(min(len(self._memory), LINES_PER_WRITE)):
                self._memory.popleft()

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    def _from_file(self, count: int) -> list[Line]:
        found = []
        with self._path.open("rb") as file:
            file.seek(self._read_from)
            for text in islice(file, count):
                found.append(_load(text))
                self._read_from += len(text)
        self._file_lines -= len(found)
        if not self._file_lines:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._read_from = self._size = 0
        return found


def _dump(line: Line) -> bytes:
    return json.dumps([line.log.text, line.log.stream, line.log.time.isoformat(), line.source]).encode() + b"\n"


def _load(text: bytes) -> Line:
    words, stream, time, source = json.loads(text)
    return Line(LogLine(words, stream, rank=None, time=datetime.fromisoformat(time)), source)
