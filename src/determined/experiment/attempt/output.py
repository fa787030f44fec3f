"""Follow the processes of an attempt: what they print, how they end, and the signals on their way to them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType

from determined.experiment.attempt.guard import Guard, Report
from determined.experiment.attempt.log_writer import LogWriter
from determined.launch._lines import LineSplitter

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
KILL = signal.SIGQUIT
READ_SIZE = 1 << 16


@dataclass(frozen=True)
class Order:
    """What an agent is told to do about its attempt, before its processes have ended by themselves.

    Attributes:
        reason: Why, in words.
        code: The exit code to record; None records no end: the attempt is lost.
    """

    reason: str
    code: int | None = None


class Lifeline:
    """The agent's standard input, whose other end is held by whoever started it: the task, later orders, line by line.

    If the other end closes, whoever held it is dead, and the agent's processes must not outlive it.

    Args:
        file: Where orders come from.
        questions: Where the agent asks, also line by line.
    """

    def __init__(self, file: int = 0, questions: int = 1) -> None:
        self.file, self._questions = file, questions
        self.order: Order | None = None
        self._unread = b""

    def line(self) -> str:
        """Wait for the next line and return it; the empty text means that the other end is closed."""
        while b"\n" not in self._unread:
            data = os.read(self.file, READ_SIZE)
            if not data:
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def read(self) -> None:
        """Take the order that has come."""
        text = self.line()
        self.order = Order(**json.loads(text)) if text else Order("whoever started its agent is gone")

    def ask_for_loss(self) -> None:
        """Ask whether another node is lost, and take the order if one is; with what others have ended is no matter."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._questions, b"lost?\n")
        while answer := json.loads(self.line() or '{"reason": "whoever started its agent is gone"}'):
            if answer.get("code") is None:
                self.order = Order(**answer)
                return

    def is_cut(self) -> bool:
        """Return whether the other end is closed, without waiting."""
        poller = select.poll()
        poller.register(self.file, select.POLLIN)
        if self.order is None and poller.poll(0):
            self.read()
        return self.order is not None and self.order.code is None


class Signals:
    """The signals of the agent. `woken` becomes readable when one has come."""

    def __init__(self, lifeline: Lifeline | None = None) -> None:
        self.lifeline = lifeline
        self.woken, wakes = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wakes, False)
        self._received: list[int] = []
        self.was_killed = False
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (*FORWARDED, KILL):
            signal.signal(number, self._receive)

    @property
    def order(self) -> Order | None:
        """What the agent was told over its lifeline."""
        return None if self.lifeline is None else self.lifeline.order

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
    if signals.lifeline is not None:
        poller.register(signals.lifeline.file, select.POLLIN)
    waiting: list[int] = []  # signals that came before the entry point
    is_over = False
    while not is_over:
        if signals.was_killed or signals.order is not None:
            watched.kill()
        for file, _ in poller.poll():
            if file == watched.reports:
                is_over = not watched.read()
            elif signals.lifeline is not None and file == signals.lifeline.file:
                signals.lifeline.read()
                poller.unregister(file)
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
