"""Start, signal and end processes that must not outlive their parent; forward signals; describe exit codes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def start(
    command: Sequence[str], environment: Mapping[str, str], pipes: bool = False, death_signal: int = signal.SIGKILL
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own.

    Ctrl-C in a terminal goes to the whole foreground group. A session of its own keeps it from arriving twice: once
    from the terminal and once forwarded. On Linux the child receives `death_signal` when we die; elsewhere it learns of
    that from the roster only. Call this from the main thread, and before starting others.
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
    """Send a signal to a process, unless it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether there was a process in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of processes that have just ended
        return False
    return True


def adopt_orphans() -> None:
    """Become the parent of processes that our children leave behind. Does nothing outside Linux.

    An ended process stays in its group until its parent has waited for it, and in containers the first process, which
    inherits orphans, often waits late or never.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_group(group: int, patience: float, ask: bool = True, reap: bool = False) -> None:
    """End all processes of a group: SIGTERM if `ask`, and SIGKILL for those that still run `patience` seconds later.

    With `reap`, also wait for those that have ended and are our children; nobody else may be waiting for them.
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


@contextlib.contextmanager
def forwarding(send: Callable[[int], object]) -> Iterator[None]:
    """Pass the signals in `FORWARDED` to `send` while the block runs.

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
    """Return our exit code for a child's return code: death by signal n is 128 + n, as in a shell."""
    return 128 - code if code < 0 else code


def describe(code: int) -> str:
    """Return a child's return code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (", which the kernel sends when memory runs out" if name == "SIGKILL" else "")


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

    def set_death_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died in between, so no signal will come
            os._exit(1)

    return set_death_signal
