"""The stacks of a training process while it goes on: as text, or printed to stderr at a signal."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import traceback
import types
from typing import Any

FRAMES = 8


def stack_of(thread: int) -> list[str]:
    """Return where the thread with this ident is in Python, innermost first, a line per frame.

    Safe while it runs, unlike a walk over its frames: the interpreter writes it down without letting go of its lock.
    """
    try:
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    _, _, found = text.partition(f"hread 0x{thread:016x}")  # "Thread", or "Current thread"
    return [line.strip() for line in found.partition("\n\n")[0].splitlines()[1 : 1 + FRAMES]]


class StackSignal:
    """SIGUSR1 prints stacks to stderr, and training goes on.

    The main thread's is printed at once, even if the process is stuck. Those of the others follow when the main thread
    is back in Python: to look at threads while they run would crash the process now and then.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._is_installed = False

    def install(self) -> None:
        """Begin to answer; a handler that was there before is called too."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGUSR1"):
            return
        faulthandler.unregister(signal.SIGUSR1)  # else one whose handler was replaced since would make ours do nothing
        self._before = signal.signal(signal.SIGUSR1, self._show_others)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=False, chain=True)
        self._is_installed = True

    def restore(self) -> None:
        """Put back the handler that was there before."""
        if not self._is_installed or threading.current_thread() is not threading.main_thread():
            return
        self._is_installed = False
        if signal.getsignal(signal.SIGUSR1) == self._show_others:  # else somebody came after us: leave theirs alone
            faulthandler.unregister(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL if self._before is None else self._before)

    def _show_others(self, number: int, frame: types.FrameType | None) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and thread.ident in frames:
                stack = "".join(traceback.format_stack(frames[thread.ident]))
                with contextlib.suppress(OSError):  # stderr may be closed, or a pipe that nobody reads
                    os.write(2, f"\nThread {thread.name} (most recent call last):\n{stack}".encode(errors="replace"))
        if callable(self._before):
            self._before(number, frame)
