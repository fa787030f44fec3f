"""StopSignals: signals as requests to stop at a safe point, and signals that wait while a process closes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

STOPPING = "Stopping at the next safe point, with a checkpoint."
PATIENCE_SECONDS = 1.0


class StopSignals:
    """SIGTERM, SIGUSR2 and the first Ctrl-C as requests to stop.

    Handlers that were there are called too, and are back after `restore()`. A signal between `hold()` and `restore()`
    must not cut off what is being written: it is delivered after that.
    Only the main thread can have handlers; in others nothing is installed. In a process that was forked from this one
    the handlers before them are called, except for the first Ctrl-C, which a terminal sends to all processes.
    Where nobody has ever asked whether to stop, a request that is repeated after `PATIENCE_SECONDS` calls those too.
    """

    def __init__(self, prints: bool) -> None:
        self.received = False
        self.number: int | None = None  # of the first that came
        self._first_received = 0.0
        self.is_polled = False  # whether anybody has ever asked
        self._prints = prints
        self._process = 0  # the one that installed them
        self._previous: dict[int, Any] = {}
        self._holds = False
        self._is_over = False
        self._held: list[int] = []

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        names = ("SIGTERM", "SIGUSR2", "SIGINT")
        for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and friends mean it
                self._previous[number] = signal.signal(number, self._handle)

    def hold(self) -> None:
        self._holds = True

    def restore(self) -> None:
        self._is_over = True
        # A handler that was installed after ours stays; it has seen what is held, and only the one before ours has not.
        ours = {number for number in self._previous if self._is_ours(number)}
        if threading.current_thread() is threading.main_thread():
            for number in ours:
                self._restore_handler(number)
        held, self._held = self._held, []
        if held:
            _flush_output()
        for number in held:
            if number in ours:
                signal.raise_signal(number)
            else:
                self._call_previous(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_copy = os.getpid() != self._process
        if self._is_over or (is_copy and number != signal.SIGINT):
            self._call_previous(number, frame)
            return
        again = self.received
        if again and (number == signal.SIGINT or self._is_unanswered()):
            self._call_previous(number, frame)
            return
        if not again:
            self.received, self.number, self._first_received = True, number, time.monotonic()
        if self._prints and not again and not is_copy:
            self._print_notice(number)
        if not self._holds:
            previous = self._previous.get(number)
            if callable(previous) and previous is not signal.default_int_handler:
                previous(number, frame)
        elif number not in self._held and (self._held or not again):  # one that stops already needs no second signal
            self._held.append(number)

    def _is_unanswered(self) -> bool:
        """Whether nobody asks; repeated at once it may be the same request, sent to a process and to its group."""
        waited = time.monotonic() - self._first_received
        return not self.is_polled and not self._holds and waited > PATIENCE_SECONDS

    def _call_previous(self, number: int, frame: FrameType | None) -> None:
        """Call the handler before ours, where a later handler, or a close in a thread, left ours installed."""
        previous = self._previous.get(number)
        if self._is_ours(number):
            self._restore_handler(number)
            signal.raise_signal(number)
        elif callable(previous):
            previous(number, frame)

    def _is_ours(self, number: int) -> bool:
        return signal.getsignal(number) == self._handle

    def _restore_handler(self, number: int) -> None:
        previous = self._previous.get(number)
        signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def _print_notice(self, number: int) -> None:
        text = "Leaving once everything is written." if self._holds else STOPPING
        text += " Ctrl-C again stops at once." if number == signal.SIGINT else ""
        with contextlib.suppress(OSError):  # stderr may be closed, or a pipe that nobody reads
            os.write(2, f"\n{text}\n".encode())  # no logging here: the interrupted code may hold a lock of it


def _flush_output() -> None:
    """Write out what was printed: a process that a signal ends does not do so itself."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, a pipe that nobody reads, or None
            stream.flush()
