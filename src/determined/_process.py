"""Find out whether a process of this machine still runs, and whether its pid still means the same process."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from pathlib import Path

_CLOCK_SECONDS = 5.0  # start times in seconds move a little when the clock is set


def this_node() -> str:
    """Return the name of this machine, as attempts record it."""
    return platform.node()


def started(pid: int | None = None) -> float | None:
    """Return when a process began (this one by default), in seconds since the epoch; None if there is no such one."""
    import psutil

    try:
        return float(psutil.Process(os.getpid() if pid is None else pid).create_time())
    except psutil.Error:
        return None


def is_alive(pid: int, process_started: float | None = None) -> bool:
    """Return whether `pid` runs and, if a start time is given, is the process that began then.

    A process that has ended counts as ended, also before its parent has waited for it.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        began = process.create_time()
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # it runs, but we may not inspect it
        return True
    return process_started is None or abs(began - process_started) < _CLOCK_SECONDS


def start_mark(pid: int) -> float | None:
    """Return a number that tells a process from a later one with the same pid; None if it has ended.

    Unlike `started()` it does not move with the clock, but it means something on this machine only.
    """
    if sys.platform != "linux":
        return started(pid) if is_alive(pid) else None
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The name, in brackets, may itself hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZXx" else float(fields[19])
    return None
