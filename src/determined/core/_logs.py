"""What the process prints, sent along as lines while it still appears where it always did."""

from __future__ import annotations

import sys
import threading
from typing import Any, TextIO

from determined.core._metrics import Shipper
from determined.store.messages import LogLine

LONGEST_LINE = 64 * 1024


class LogTee:
    """Puts itself between `print` and the terminal; gives the streams back on close."""

    def __init__(self, shipper: Shipper, rank: int = 0) -> None:
        self._shipper = shipper
        self._rank = rank
        self._tees: dict[str, _Tee] = {}

    def start(self) -> None:
        """Begin to listen to `sys.stdout` and `sys.stderr`."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None:  # a process without a console has none
                self._tees[name] = _Tee(stream, name, self._rank, self._shipper)
                setattr(sys, name, self._tees[name])

    def close(self) -> None:
        """Send the last line, ended or not, and put the streams back."""
        for name, tee in self._tees.items():
            tee.finish()
            if getattr(sys, name) is tee:
                setattr(sys, name, tee.stream)
        self._tees.clear()


class _Tee:
    """A text stream that also collects whole lines."""

    def __init__(self, stream: TextIO, name: str, rank: int, shipper: Shipper) -> None:
        self.stream = stream
        self._name = name
        self._rank = rank
        self._shipper = shipper
        self._lock = threading.Lock()
        self._open_line = ""
        self._is_listening = True

    def write(self, text: str) -> int:
        written = self.stream.write(text)
        if self._is_listening:
            with self._lock:
                *lines, self._open_line = (self._open_line + text).split("\n")
                if len(self._open_line) > LONGEST_LINE:
                    lines.append(self._open_line)
                    self._open_line = ""
                for line in lines:
                    self._send(line)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        with self._lock:
            self._is_listening = False
            if self._open_line:
                self._send(self._open_line)
                self._open_line = ""

    def _send(self, line: str) -> None:
        # A progress bar rewrites its line; only what it said last was seen to stay.
        shown = line.rstrip("\r").rsplit("\r", 1)[-1]
        try:
            self._shipper.put(LogLine(shown, self._name, self._rank))
        except Exception:  # noqa: BLE001 - printing must work even when nothing can be sent
            self._is_listening = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
