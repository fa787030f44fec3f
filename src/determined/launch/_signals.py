"""Signals that go from a launcher to what it started, and exit codes that come back."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def forwarding(send: Callable[[int], object]) -> Iterator[None]:
    """Hand the signals in `FORWARDED` to `send` for as long as the block runs.

    A signal that was ignored when we started stays ignored: that is what `nohup` and `&` in scripts are for.
    """
    before = {}
    try:
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, lambda number, _frame: send(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def exit_status(code: int) -> int:
    """A child's return code as our own exit code. Death by signal n is 128 + n, as in a shell."""
    return 128 - code if code < 0 else code


def describe(code: int) -> str:
    """A child's return code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (", which the kernel sends when memory runs out" if name == "SIGKILL" else "")
