"""End a process together with those it has started."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

PATIENCE_SECONDS = 5.0  # for one that was asked to end


def end_family(pid: int) -> None:
    """Ask a process and those it has started to end; after a while, make them."""
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                stop(each)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(map(_runs, family)) and time.monotonic() < deadline:
            time.sleep(0.05)


def reap(pid: int) -> None:
    """Let the system forget a process that has ended, if this process has started it."""
    if hasattr(os, "WNOHANG"):
        with contextlib.suppress(ChildProcessError):  # another process has started it, or it is forgotten already
            os.waitpid(pid, os.WNOHANG)


def _runs(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie does not."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
