"""The guard: a process between the agent and the trial's processes, so that none of them outlives either of the two.

    agent               captures output, records the end
      guard             starts the entry point, waits for it, ends what it left behind
        entry point     in a session of its own
          ...

On Linux agent and guard adopt orphans, so a process that left its group and session is still below them. If the agent
dies, the pipe to the guard closes, and the guard ends everything below it. If the guard dies, the entry point receives
SIGKILL, the rest moves to the agent, and the agent ends it. `leftovers` is for when both die at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from determined.launch import _processes

LEFTOVER_SECONDS = 2.0
UNKILLABLE_SECONDS = 30.0  # a process in the middle of a broken disk's work cannot be killed
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PR_SET_NAME = 15


@dataclass(frozen=True)
class Order:
    """What the guard starts: a command, in a directory, with its output going to these files."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    stdout: int
    stderr: int


@dataclass(frozen=True)
class Report:
    """What the guard said of the entry point.

    Attributes:
        pid: The process; None if it could not be started.
        code: How it ended, negative for a signal; None as long as it runs.
        problem: Why it could not be started.
    """

    pid: int | None = None
    code: int | None = None
    problem: str = ""


class Guard:
    """The agent's side of a guard. `reports` becomes readable when there is something to `read`."""

    def __init__(self, pid: int, control: int, reports: int) -> None:
        self.pid = pid
        self.reports = reports
        self.report = Report()
        self._control = control
        self._unread = b""

    def read(self) -> bool:
        """Read what the guard says into `report`; return False when it has ended."""
        data = os.read(self.reports, 4096)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self.report = Report(**json.loads(line))
        return bool(data)

    def forward(self, number: int) -> None:
        """Send a signal to the group of the entry point."""
        with contextlib.suppress(OSError):  # the guard has just ended
            os.write(self._control, bytes([number]))

    def kill(self) -> None:
        """End the guard, and so everything below it: see `close`."""
        _processes.send(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for the guard, which has ended or was killed, and end what is left of the tree."""
        os.close(self._control)
        os.close(self.reports)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        end_descendants()


def start(order: Order) -> Guard:
    """Fork a guard that runs an order. Call it before starting threads."""
    control_read, control = os.pipe()
    reports, reports_write = os.pipe()
    _processes.adopt_orphans()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(control)  # or the guard would not see that the agent is gone
            os.close(reports)
            _be_guard(order, control_read, reports_write)
        except BaseException:  # noqa: BLE001  whatever it is, it must not go on in the agent's code
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    os.close(control_read)
    os.close(reports_write)
    return Guard(pid, control, reports)


def end_descendants() -> None:
    """Kill all processes below this one, whatever group or session they moved to, and wait until they are gone."""
    deadline = time.monotonic() + UNKILLABLE_SECONDS
    while _reap() and time.monotonic() < deadline:
        _signal_descendants(signal.SIGKILL)
        if _reap():
            time.sleep(0.005)


def leftovers(store_id: str, allocation_id: str) -> list[int]:
    """Return the processes of this user that an attempt has started, by their environment. Linux only.

    Searches with the same seed have the same allocations in every store.
    """
    marks = {f"DET_CLUSTER_ID={store_id}".encode(), f"DET_ALLOCATION_ID={allocation_id}".encode()}
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if marks.issubset((entry / "environ").read_bytes().split(b"\0")):
                        found.append(int(entry.name))
    return found


def set_name(name: str) -> None:
    """Name this process, as `ps` and `top` show it. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def _be_guard(order: Order, control: int, reports: int) -> NoReturn:
    set_name("det-guard")
    _processes.adopt_orphans()
    woken = _wake_on_children()
    for number in (*STOPPING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
        signal.signal(number, _do_nothing)  # not ignored: what is ignored stays so in the processes we start
    os.dup2(order.stdout, 1)
    os.dup2(order.stderr, 2)
    try:
        os.chdir(order.directory)
        entry = _processes.start(order.command, order.environment)
    except (OSError, ValueError) as failed:
        code = NOT_FOUND if isinstance(failed, FileNotFoundError) else NOT_EXECUTABLE
        _report(reports, Report(code=code, problem=getattr(failed, "strerror", None) or str(failed)))
        os._exit(0)
    _report(reports, Report(pid=entry.pid))
    code = _wait(entry.pid, control, woken)
    _report(reports, Report(pid=entry.pid, code=code))
    os._exit(0)


def _wait(entry: int, control: int, woken: int) -> int:
    """Wait for the entry point and for what it leaves behind; return its code, negative for a signal."""
    poller = select.poll()
    for file in (control, woken):
        poller.register(file, select.POLLIN)
    ended: dict[int, int] = {}
    was_told, asked_at = False, 0.0
    while _reap(entry, ended):
        now = time.monotonic()
        if entry in ended and not (was_told and ended[entry] < 0 and _processes.send_group(entry, 0)):
            # A shell that a signal ended may have left a script behind that saves a checkpoint: that one is waited for.
            if not asked_at:
                asked_at = now
                _signal_descendants(signal.SIGTERM)
            elif now > asked_at + LEFTOVER_SECONDS:
                end_descendants()
        for file, _ in poller.poll(100 if entry in ended else None):
            data = os.read(file, 4096)
            if file == control:
                if not data:  # the agent is gone
                    end_descendants()
                    os._exit(1)
                was_told = was_told or any(number in STOPPING for number in data)
                for number in data:
                    _processes.send_group(entry, number)
    return ended[entry]


def _reap(entry: int = 0, ended: dict[int, int] | None = None) -> bool:
    """Wait for children that have ended, note how `entry` did, and return whether there are others."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if ended is not None and pid == entry:
            ended[pid] = os.waitstatus_to_exitcode(status)


def _signal_descendants(number: int) -> None:
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _wake_on_children() -> int:
    """Return a file that becomes readable when a child has ended."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _do_nothing)
    return woken


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def _report(reports: int, report: Report) -> None:
    with contextlib.suppress(OSError):  # the agent is gone, which `_wait` finds out
        os.write(reports, json.dumps(vars(report)).encode() + b"\n")
