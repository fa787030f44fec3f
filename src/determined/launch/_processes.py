"""Processes that do not outlive who started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def start(
    command: Sequence[str], environment: Mapping[str, str], pipes: bool = False, death_signal: int = signal.SIGKILL
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own.

    Ctrl-C in a terminal goes to the whole foreground group. A session of its own keeps it from arriving twice: once
    from the terminal and once forwarded. On Linux the child receives `death_signal` when we die; elsewhere
    only the roster tells it. Call this from the main thread, and before starting others.
    """
    stream = subprocess.PIPE if pipes else None
    return subprocess.Popen(
        command,
        env=environment,
        stdout=stream,
        stderr=stream,
        start_new_session=True,
        preexec_fn=_die_with_parent(death_signal),
    )


def send(pid: int, number: int) -> None:
    """Signal a process; it may have ended already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(group: int, number: int) -> bool:
    """Signal a process group, and say whether there was anyone in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of processes that have just ended
        return False
    return True


def adopt_orphans() -> None:
    """From now on, what our children leave behind becomes our child. On Linux; a no-op elsewhere.

    Who has ended still counts as there until its parent has asked for it, and in containers the first process, which
    inherits orphans, often asks late or never.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_group(group: int, patience: float, ask: bool = True, reap: bool = False) -> None:
    """End all processes of a group. They are asked first, and killed when they are still there `patience` s later.

    With `reap`, also take note of those that have ended and are our children, once nobody else waits for them.
    """
    if not send_group(group, signal.SIGTERM if ask else 0):
        return
    deadline = time.monotonic() + patience
    while send_group(group, 0):
        if time.monotonic() >= deadline:
            send_group(group, signal.SIGKILL)
            break
        if not (reap and _reap(group)):
            time.sleep(0.02)


def _reap(group: int) -> bool:
    try:
        return os.waitpid(-group, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _die_with_parent(number: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded before the fork: between fork and exec as little as possible should happen
    parent = os.getpid()

    def ask_the_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died in between, so the kernel will not tell
            os._exit(1)

    return ask_the_kernel
