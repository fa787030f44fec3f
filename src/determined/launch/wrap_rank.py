"""One worker, with its rank before each line: `python -m determined.launch.wrap_rank RANK SCRIPT...`.

Starts the script, passes its output, its signals and its exit code on, and leaves no process of it behind.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from determined.launch import _lines, _processes, _roster, _signals

# What a worker left running when it ended, and a worker whose launcher was killed, have this long to end.
LEFTOVER_SECONDS = 2.0
ORPHAN_SECONDS = 10.0
SILENCE_SECONDS = 0.5
# A traceback older than this when the worker ends was not what ended it.
TRACEBACK_SECONDS = 10.0
CANNOT_START = 127
STDOUT, STDERR = 1, 2  # the files themselves: sys.stdout may be None


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m determined.launch.wrap_rank",
        description="Run a script with [rank=N] before each line that it writes.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--no-redirect-stdio",
        action="store_true",
        help="accepted for older scripts; output always goes to our own stdout and stderr",
    )
    parser.add_argument("rank", metavar="RANK", help="a number, or names of environment variables, as in RANK,PMI_RANK")
    parser.add_argument("script", metavar="SCRIPT...", nargs=argparse.REMAINDER)
    options = parser.parse_args(args)
    if not options.script:
        parser.error("there is no script to run. Add one after the rank, for example: wrap_rank 0 python train.py")

    rank = find_rank(options.rank, os.environ)
    if rank is None:
        sys.stderr.write(
            f"wrap_rank: RANK is {options.rank!r}, and no environment variable of that name is set. "
            "Pass a number, or the name of a variable that your launcher sets.\n"
        )
        return 1
    return run(rank, options.script)


def find_rank(rank: str, environment: Mapping[str, str]) -> str | None:
    """The rank that a number, or the first variable present of a comma-separated list, stands for."""
    if rank.isdecimal():
        return rank
    return next((environment[name] for name in rank.split(",") if name in environment), None)


def run(rank: str, command: Sequence[str]) -> int:
    """Run a command as this rank and return its exit code."""
    environment = dict(os.environ)
    environment.setdefault("PYTHONUNBUFFERED", "1")  # or lines would come late, and get lost when a worker is killed
    seat = _roster.Seat.take(rank, environment)
    if seat is not None and seat.launcher_is_gone():
        seat.clean_up()
        return 1

    _processes.adopt_orphans()
    mail = Mail()
    with _signals.forwarding(mail.receive):
        try:
            worker = _processes.start(command, environment, pipes=True)
        except OSError as error:
            sys.stderr.write(f"wrap_rank: cannot run {command[0]!r}: {error.strerror}.\n")
            return CANNOT_START
        if seat is not None:
            seat.sign_in(worker.pid)
            seat.when_launcher_dies(lambda: _processes.end_group(worker.pid, ORPHAN_SECONDS, ask=not mail.had_term()))
        mail.address(worker)

        tail = _lines.Tail()
        assert worker.stdout is not None
        assert worker.stderr is not None
        pumps = [
            _lines.Pump(worker.stdout.fileno(), STDOUT, f"[rank={rank}] "),
            _lines.Pump(worker.stderr.fileno(), STDERR, f"[rank={rank}] ", also=tail.add),
        ]
        for pump in pumps:
            pump.start()
        code = worker.wait()
        ended_at = time.monotonic()

        _processes.end_group(worker.pid, LEFTOVER_SECONDS, reap=True)
        for pump in pumps:
            pump.finish(SILENCE_SECONDS)
        if seat is not None:
            seat.sign_out(ending(rank, code, ended_at, mail.told_at, tail))
    return _signals.exit_status(code)


def ending(rank: str, code: int, ended_at: float, told_at: float | None, tail: _lines.Tail) -> _roster.SignOut:
    """How a worker has ended, so that of several failures the cause can be told from its consequences.

    An exception that ends a Python process is written well before the process has ended. In between, the ranks that
    were waiting for it fail too, and it may be told to stop because of them. So the time of the traceback counts.
    """
    traceback_at = tail.traceback_time()
    if traceback_at is None or code == 0 or ended_at - traceback_at > TRACEBACK_SECONDS:
        return _roster.SignOut(rank, code, ended_at, told_at is not None, tail.blames_another(), tail.lines())
    was_told = told_at is not None and told_at < traceback_at
    if code < 0 and told_at is not None and not was_told:
        code = 1  # as it would have been without the signal
    return _roster.SignOut(rank, code, traceback_at, was_told, tail.blames_another(), tail.lines())


class Mail:
    """Signals on their way to a worker. Those that arrive before it has started wait for it."""

    def __init__(self) -> None:
        self._waiting: collections.deque[int] = collections.deque()
        self.told_at: float | None = None  # when it was first told to stop
        self._received: list[int] = []
        self._worker: subprocess.Popen[bytes] | None = None

    def receive(self, number: int) -> None:
        self._received.append(number)
        if self.told_at is None and number in _signals.STOPPING:
            self.told_at = time.monotonic()
        self._waiting.append(number)
        self._deliver()

    def address(self, worker: subprocess.Popen[bytes]) -> None:
        self._worker = worker
        self._deliver()

    def had_term(self) -> bool:
        return signal.SIGTERM in self._received

    def _deliver(self) -> None:
        # A signal may arrive between any two steps of this, and call it again; taking one out is a single step.
        while self._worker is not None and self._waiting:
            with contextlib.suppress(IndexError):
                self._worker.send_signal(self._waiting.popleft())


if __name__ == "__main__":
    sys.exit(main())
