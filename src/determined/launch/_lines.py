"""Forwards the output of a worker line by line, with a prefix."""

from __future__ import annotations

import codecs
import collections
import os
import re
import select
import threading
import time
from collections.abc import Callable

# A longer line is written in pieces, so that a worker that never ends its line does not fill our memory.
LONGEST_LINE = 65536
READ_SIZE = 65536
END = re.compile(r"\r\n|\n|\r")  # the end alone: a pattern for the whole line takes quadratic time where there is none
TRACEBACK = "Traceback (most recent call last)"
TORCH_PREFIX = re.compile(r"\[rank\d+\]: ")  # torch writes it before tracebacks once there is a process group
# Errors on one rank because another has ended: of gloo, NCCL, the key-value store, and our own collectives.
LOST_A_PEER = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|remote process (has )?(exited|terminated)|DistNetworkError"
    r"|ncclRemoteError|Collective(Error|Timeout)"
)


class LineSplitter:
    """Splits bytes into lines. A carriage return ends a line too, so each refresh of a progress bar is a line."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        # An incremental decoder waits for the rest of a character that was cut, and replaces what is not UTF-8.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._after_return = False

    def feed(self, data: bytes, final: bool = False) -> list[str]:
        """Return the lines that `data` completes; with `final`, also an unfinished last line."""
        text = self._decoder.decode(data, final)
        if text:
            if self._after_return:  # the second half of "\r\n", whose line was returned already
                text = text.removeprefix("\n")
            self._after_return = text.endswith("\r")

        text, lines, begin = self._rest + text, [], 0
        for match in END.finditer(text):
            line = text[begin : match.start()]
            begin = match.end()
            # Progress bars begin with a carriage return, and wipe their line with blanks: neither is an empty line.
            if line.strip() or match[0] != "\r":
                lines.append(line)
        self._rest = text[begin:]
        while len(self._rest) > self._longest:
            lines.append(self._rest[: self._longest])
            self._rest = self._rest[self._longest :]
        if final and self._rest:
            lines.append(self._rest)
            self._rest = ""
        return lines


class Tail:
    """Keeps the last lines of a stream, with their times, in bounded memory."""

    def __init__(self, lines: int = 100, width: int = 2000) -> None:
        self._width = width
        self._lines: collections.deque[tuple[float, str]] = collections.deque(maxlen=lines)

    def add(self, line: str) -> None:
        self._lines.append((time.monotonic(), _without_torch_prefix(line)[: self._width]))

    def traceback_time(self) -> float | None:
        """Return when the last traceback began, or None."""
        return next((at for at, line in reversed(self._lines) if line.startswith(TRACEBACK)), None)

    def blames_another(self) -> bool:
        """Return whether the last traceback is about another rank that has ended."""
        lines = [line for _, line in self._lines]
        last = max((i for i, line in enumerate(lines) if line.startswith(TRACEBACK)), default=len(lines))
        return any(LOST_A_PEER.search(line) for line in lines[last:])

    def lines(self) -> list[str]:
        """Return the lines to show after a failure: the tracebacks, else the last 20 lines."""
        lines = [line for _, line in self._lines]
        first = next((i for i, line in enumerate(lines) if line.startswith(TRACEBACK)), max(0, len(lines) - 20))
        return lines[first:]


class Pump(threading.Thread):
    """Copies one stream of a worker to one of ours, with a prefix on each line, until the worker closes it.

    Errors of our stream do not stop the reading: a worker must not block, or die, because of its log.
    """

    def __init__(self, source: int, sink: int, prefix: str, also: Callable[[str], None] | None = None) -> None:
        super().__init__(name=f"pump {prefix}to {sink}", daemon=True)
        self._source = source
        self._sink = sink
        self._prefix = prefix
        self._also = also
        self._sink_is_open = True
        self._waiting_since: float | None = None

    def run(self) -> None:
        splitter = LineSplitter()
        while data := self._read():
            self._pass_on(splitter.feed(data))
        self._pass_on(splitter.feed(b"", final=True))

    def finish(self, patience: float) -> None:
        """Wait until everything is copied.

        Usually that is when the stream ends. A process that left the worker's group may keep it open, so a stream
        without output for `patience` seconds counts as ended too. Time spent in writing does not count.
        """
        start = time.monotonic()
        while self.is_alive():
            waiting_since = self._waiting_since
            if waiting_since is not None and time.monotonic() - max(waiting_since, start) > patience:
                return
            self.join(timeout=0.05)

    def _read(self) -> bytes:
        self._waiting_since = time.monotonic()
        try:
            return os.read(self._source, READ_SIZE)
        except OSError:
            return b""
        finally:
            self._waiting_since = None

    def _pass_on(self, lines: list[str]) -> None:
        for line in lines:
            if self._also is not None:
                self._also(line)
            if self._sink_is_open:
                try:
                    # One write per line: ranks share the sink, and short writes to a pipe are atomic.
                    _write(self._sink, f"{self._prefix}{line}\n".encode())
                except OSError:  # the reader has ended, as in `... | head`
                    self._sink_is_open = False


def _without_torch_prefix(line: str) -> str:
    match = TORCH_PREFIX.match(line)
    return line[match.end() :] if match else line


def _write(sink: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BlockingIOError:  # somebody made the terminal non-blocking
            select.select([], [sink], [])
