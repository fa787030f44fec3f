"""Whether the process that a row speaks of still runs on this machine."""

from __future__ import annotations

import os
import platform

_CLOCK_SECONDS = 5.0  # the kernel's word on when a process began moves a little when the clock is set


def this_node() -> str:
    """The name of this machine, as attempts record it."""
    return platform.node()


def started(pid: int | None = None) -> float | None:
    """When a process began, as attempts record it; this one by default. None if there is no such process."""
    import psutil

    try:
        return float(psutil.Process(os.getpid() if pid is None else pid).create_time())
    except psutil.Error:
        return None


def is_alive(pid: int, process_started: float | None) -> bool:
    """Whether `pid` is still the process that began then, and not one that has inherited its number."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        began = process.create_time()
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # there, but not ours to look at
        return True
    return process_started is None or abs(began - process_started) < _CLOCK_SECONDS
