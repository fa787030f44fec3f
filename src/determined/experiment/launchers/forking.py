"""Start an agent by forking this process, which has everything loaded, or in a new interpreter where that is unsafe."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from determined.experiment.attempt import guard
from determined.experiment.launchers.base import AGENT
from determined.store.database import forks
from determined.store.database.connection import Store


def is_safe() -> bool:
    """Return whether this process may fork and go on in Python: on Linux, if it has one thread."""
    return sys.platform == "linux" and threading.active_count() == 1


def fork(run: Callable[[], None], store: Store, log: Path, keep: int) -> int:
    """Fork a process that calls `run` and ends; return its process id.

    Args:
        run: What the child does.
        store: The store, which the child opens anew; no transaction may be open.
        log: The file for what the child prints.
        keep: A file that stays open in the child.
    """
    everything = signal.pthread_sigmask(
        signal.SIG_BLOCK, signal.valid_signals()
    )  # no handler of ours runs in the child
    try:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _detach(store, log, keep)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                run()
                code = 0
            except BaseException:  # noqa: BLE001  whatever it is, it must not go on in the parent's code
                with contextlib.suppress(BaseException):
                    sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, everything)


def spawn(task: str, log: Path) -> int:
    """Start an agent in a new interpreter. The task, which may hold secrets, goes through its standard input.

    Returns:
        The process id. The caller waits for the process.
    """
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", AGENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
            cwd="/",
        )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(task.encode() + b"\n")
    process.returncode = 0  # it is the caller who waits for it
    return process.pid


def _detach(store: Store, log: Path, keep: int) -> None:
    """Give up what a forked child has of its parent: session, signals, files, log."""
    gc.freeze()  # what came with the fork is not looked through: that would copy all of its memory
    os.setsid()
    guard.set_name("det-agent")
    signal.set_wakeup_fd(-1)
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    if store.path is not None:
        forks.let_go_of_inherited(store.path)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    with contextlib.suppress(OSError):  # no reason not to run a trial
        os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
    # Numbers of files are not given back: an object of the parent that writes to one must not reach a file of ours.
    for file in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names are all we need
        if file > 2 and file not in (nothing, keep):
            with contextlib.suppress(OSError):  # that of the listing itself
                os.fstat(file)
                os.dup2(nothing, file, inheritable=False)
    os.chdir("/")
    _log_to_stderr()


def _log_to_stderr() -> None:
    for name in [None, *logging.root.manager.loggerDict]:
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as this process
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s: %(message)s", level=logging.INFO)
