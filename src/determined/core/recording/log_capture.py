"""LogTee: reports what the process prints, line by line, while it still appears on the terminal.

Only what Python writes is recorded, not the output of C libraries and child processes: that would need a pipe between
the process and its terminal, and then colours, progress bars and pdb behave differently.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO, cast

from determined import _notebook
from determined._redact import KeyBlocks
from determined.core.recording.shipper import Shipper
from determined.store.messages import LogLine, without_cursor_moves

LONGEST_LINE = 8191
_LINE_END = re.compile(r"\r\n|\r|\n")


class LogTee:
    """Listens to `sys.stdout` and `sys.stderr` and sends each line; stops on close.

    The streams stay the objects they are, with their terminal, encoding and buffer; only their `write` is replaced.
    So logging handlers and progress bars that took a stream earlier are recorded too.
    """

    def __init__(self, shipper: Shipper, rank: int = 0) -> None:
        self._shipper = shipper
        self._rank = rank
        self._collectors: list[_LineCollector] = []
        self._stop_watching_cells: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to listen."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            # A process without a console has no streams; one whose `write` cannot be replaced is left alone.
            with contextlib.suppress(AttributeError):
                self._collectors.append(_LineCollector(stream, name, self._rank, self._shipper))
        self._stop_watching_cells = _notebook.on_each_cell(self._attach_again)

    def close(self) -> None:
        """Send the last line, ended or not, and stop listening."""
        self._stop_watching_cells()
        for collector in self._collectors:
            collector.close()
        self._collectors.clear()

    def _attach_again(self) -> None:
        """IPython gives streams a `write` for each cell, and takes ours away with it."""
        for collector in self._collectors:
            collector.tap.attach()


class _LineCollector:
    """Collects what is written to one stream into lines."""

    def __init__(self, stream: TextIO, name: str, rank: int, shipper: Shipper) -> None:
        self._name = name
        self._rank = rank
        self._shipper = shipper
        self._key_blocks = KeyBlocks()
        self._lock = threading.RLock()  # a signal handler may print in the middle of our own work
        self._open_line = ""
        self._ended_with_return = False
        self._is_cut = False  # what there was of the open line is sent already
        self._pid = os.getpid()
        self._is_listening = True
        self.tap = _tap(stream)
        self.tap.add_listener(self.collect)

    def collect(self, text: str) -> None:
        # A forked child, such as a loader's worker, has this object but not the thread that sends: leave it alone.
        if not self._is_listening or os.getpid() != self._pid:
            return
        with self._lock:
            is_short = len(self._open_line) + len(text) <= LONGEST_LINE
            if is_short and "\n" not in text and "\r" not in text:  # one of the words of a print()
                self._open_line += text
                self._ended_with_return = False
                return
            if self._ended_with_return and text.startswith("\n"):
                text = text[1:]  # both belong to one end of a line
            self._ended_with_return = text.endswith("\r")
            self._take(self._open_line + text)

    def _take(self, text: str) -> None:
        start = 0
        for end in _LINE_END.finditer(text):
            line = text[start : end.start()]
            start = end.end()
            is_sent = self._is_cut and not line
            self._is_cut = False
            if not is_sent and (line.strip() or end.group() != "\r"):  # a progress bar wipes its line before the next
                self._send(line)
        self._open_line = text[start:]
        if len(self._open_line) > LONGEST_LINE:
            self._send(self._open_line)
            self._open_line, self._is_cut = "", True

    def close(self) -> None:
        with self._lock:
            if self._open_line.strip():
                self._send(self._open_line)
            self._open_line = ""
            self._is_listening = False
        self.tap.remove_listener(self.collect)

    def _send(self, line: str) -> None:
        try:
            self._shipper.put(LogLine(self._key_blocks.line(without_cursor_moves(line)), self._name, self._rank))
        except Exception:  # noqa: BLE001 - printing must work even when nothing can be sent
            self._is_listening = False


class _TappedStream:
    """A stream whose `write` also calls listeners."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._write: Callable[[str], int] = stream.write  # what ours calls
        self._ours: Callable[[str], int] | None = None
        self._before: Callable[[str], int] | None = None  # what the stream had of its own where ours is now
        self._listeners: tuple[Callable[[str], None], ...] = ()

    def add_listener(self, listener: Callable[[str], None]) -> None:
        if not self._listeners:
            self.attach()
        self._listeners = (*self._listeners, listener)

    def attach(self) -> None:
        """Replace the stream's `write` with ours, unless it is ours already."""
        before: Callable[[str], int] | None = self.stream.__dict__.get("write")
        below: Callable[[str], int] = self.stream.write
        if before is not None and before is self._ours:
            return

        def write(text: str) -> int:
            written = below(text)
            if self._ours is write:  # else a later one of ours calls it, and notifies
                self.notify(text)
            return written

        self.stream.write = write
        self._write, self._ours, self._before = below, write, before

    def remove_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners = tuple(one for one in self._listeners if one != listener)
        if not self._listeners:
            _tapped_streams.pop(id(self.stream), None)
            if self.stream.__dict__.get("write") is not self._ours:
                return  # another `write` was installed after ours: leave it alone
            if self._before is None:
                del self.stream.write
            else:
                self.stream.write = self._before

    def write_unrecorded(self, text: str) -> int:
        return self._write(text)

    def notify(self, text: str) -> None:
        for listener in self._listeners:
            listener(text)


def unrecorded(stream: TextIO) -> TextIO:
    """Return the stream for output that is not recorded, such as a progress bar, which redraws itself."""
    return cast(TextIO, _UnrecordedStream(stream))


class _UnrecordedStream:
    """A stream whose listeners are not called."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        tap = _find_tap(self._stream)
        write: Callable[[str], int] = self._stream.write if tap is None else tap.write_unrecorded
        return write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def record_as(proxy: Any, stream: Any) -> None:
    """Record what is written to `proxy`, which displays it in its own way, as written to `stream`."""
    write = proxy.write

    def write_and_notify(text: str) -> int:
        written: int = write(text)
        if (tap := _find_tap(stream)) is not None:
            tap.notify(text)
        return written

    proxy.write = write_and_notify


_tapped_streams: dict[int, _TappedStream] = {}


def _tap(stream: Any) -> _TappedStream:
    found = _find_tap(stream)
    if found is None:
        found = _tapped_streams[id(stream)] = _TappedStream(stream)
    return found


def _find_tap(stream: Any) -> _TappedStream | None:
    found = _tapped_streams.get(id(stream))
    return found if found is not None and found.stream is stream else None
