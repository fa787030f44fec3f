"""One worker, with its rank before each line: `python -m determined.launch.wrap_rank RANK SCRIPT...`.

Starts the script, forwards its output, its signals and its exit code, and ends all processes that it leaves running.
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

from determined.launch import _lines, _processes, _roster

# How long processes that a worker left running, and a worker whose launcher was killed, have to end.
LEFTOVER_SECONDS = 2.0
ORPHAN_SECONDS = 10.0
SILENCE_SECONDS = 0.5
WAIT_SECONDS = 1.0
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
    """Return the rank: a number as given, or the value of the first variable of a comma-separated list that is set."""
    if rank.isdecimal():
        return rank
    return next((environment[name] for name in rank.split(",") if name in environment), None)


def run(rank: str, command: Sequence[str]) -> int:
    """Run a command as this rank and return its exit code."""
    environment = dict(os.environ)
    environment.setdefault("PYTHONUNBUFFERED", "1")  # or lines would come late, and get lost when a worker is killed
    entry = _roster.Entry.find(rank, environment)
    if entry is not None and entry.launcher_has_died():
        entry.clean_up()
        return 1

    _processes.adopt_orphans()
    signals = SignalQueue()
    with _processes.forwarding(signals.receive):
        try:
            worker = _processes.start(command, environment, pipes=True)
        except OSError as error:
            sys.stderr.write(f"wrap_rank: cannot run {command[0]!r}: {error.strerror}.\n")
            return CANNOT_START
        if entry is not None:
            entry.write_start(worker.pid)
            entry.when_launcher_dies(lambda: _processes.end_group(worker.pid, ORPHAN_SECONDS, ask=not signals.got_term))
        signals.attach(worker)

        tail = _lines.Tail()
        assert worker.stdout is not None
        assert worker.stderr is not None
        pumps = [
            _lines.Pump(worker.stdout.fileno(), STDOUT, f"[rank={rank}] "),
            _lines.Pump(worker.stderr.fileno(), STDERR, f"[rank={rank}] ", also=tail.add),
        ]
        for pump in pumps:
            pump.start()
        code = _end_of(worker)
        ended_at = time.monotonic()

        _processes.end_group(worker.pid, LEFTOVER_SECONDS, reap=True)
        for pump in pumps:
            pump.finish(SILENCE_SECONDS)
        if entry is not None:
            entry.write_end(ending(rank, code, ended_at, signals.told_at, tail))
    return _processes.exit_status(code)


def _end_of(worker: subprocess.Popen[bytes]) -> int:
    """Wait for the worker to end, and return its code.

    Not in one call: a signal that arrives just before the call blocks would be handled only after the next one.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return worker.wait(timeout=WAIT_SECONDS)


def ending(rank: str, code: int, ended_at: float, told_at: float | None, tail: _lines.Tail) -> _roster.WorkerEnd:
    """Describe how a worker ended, so that the first of several failures is found.

    A Python process writes its traceback well before it has ended. In between, the ranks that were waiting for it fail
    too, and it may be sent a signal to stop because of them. So the time of the traceback counts.
    """
    traceback_at = tail.traceback_time()
    if traceback_at is None or code == 0 or ended_at - traceback_at > TRACEBACK_SECONDS:
        return _roster.WorkerEnd(rank, code, ended_at, told_at is not None, tail.blames_another(), tail.lines())
    was_told = told_at is not None and told_at < traceback_at
    if code < 0 and told_at is not None and not was_told:
        code = 1  # as it would have been without the signal
    return _roster.WorkerEnd(rank, code, traceback_at, was_told, tail.blames_another(), tail.lines())


class SignalQueue:
    """Passes signals on to a worker. Those that arrive before it has started wait until then."""

    def __init__(self) -> None:
        self.told_at: float | None = None  # when the first signal to stop came
        self.got_term = False
        self._waiting: collections.deque[int] = collections.deque()
        self._worker: subprocess.Popen[bytes] | None = None

    def receive(self, number: int) -> None:
        self.got_term |= number == signal.SIGTERM
        if self.told_at is None and number in _processes.STOPPING:
            self.told_at = time.monotonic()
        self._waiting.append(number)
        self._deliver()

    def attach(self, worker: subprocess.Popen[bytes]) -> None:
        self._worker = worker
        self._deliver()

    def _deliver(self) -> None:
        # A signal may arrive, and call this again, between any two steps; popleft() is a single step.
        while self._worker is not None and self._waiting:
            with contextlib.suppress(IndexError):
                self._worker.send_signal(self._waiting.popleft())


if __name__ == "__main__":
    sys.exit(main())
