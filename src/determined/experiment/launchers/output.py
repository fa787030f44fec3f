"""Follow the processes of an attempt: what they print, how they end, and the signals on their way to them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping
from types import FrameType

from determined.experiment.launchers.guard import Guard, Report
from determined.experiment.launchers.log_writer import LogWriter
from determined.launch._lines import LineSplitter

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
KILL = signal.SIGQUIT
READ_SIZE = 1 << 16


class Signals:
    """The signals of the agent. `woken` becomes readable when one has come."""

    def __init__(self) -> None:
        self.woken, wakes = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wakes, False)
        self._received: list[int] = []
        self.was_killed = False
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (*FORWARDED, KILL):
            signal.signal(number, self._receive)

    def take(self) -> list[int]:
        """Return the signals to forward that have come since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, READ_SIZE)
        received, self._received = self._received, []
        return received

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number == KILL:
            self.was_killed = True
        else:
            self._received.append(number)


def capture(watched: Guard, streams: Mapping[int, str], lines: LogWriter, signals: Signals) -> Report:
    """Pass on what is printed until all processes have ended, and return what the guard said last.

    Args:
        watched: The guard of the processes.
        streams: The files that output is read from, with the name of each. They are closed.
        lines: Where lines go.
        signals: Those that came, and come.
    """
    splitters = {file: LineSplitter() for file in streams}
    poller = select.poll()
    for file in (*streams, watched.reports, signals.woken):
        poller.register(file, select.POLLIN)
    waiting: list[int] = []  # signals that came before the entry point
    is_over = False
    while not is_over:
        if signals.was_killed:
            watched.kill()
        for file, _ in poller.poll():
            if file == watched.reports:
                is_over = not watched.read()
            elif file in splitters and not _pass_on(file, streams[file], splitters[file], lines):
                poller.unregister(file)
        waiting += signals.take()
        while waiting and watched.report.pid is not None:
            watched.forward(waiting.pop(0))
    report = watched.report
    watched.close()
    for file, splitter in splitters.items():
        os.set_blocking(file, False)  # what has been written is there; a stranger may hold the other end open
        while _pass_on(file, streams[file], splitter, lines):
            pass
        for line in splitter.feed(b"", final=True):
            lines.put(line, streams[file])
        os.close(file)
    return report


def _pass_on(file: int, name: str, splitter: LineSplitter, lines: LogWriter) -> bool:
    """Read once; return whether there may be more."""
    try:
        data = os.read(file, READ_SIZE)
    except BlockingIOError:
        return False
    for line in splitter.feed(data):
        lines.put(line, name)
    return bool(data)
