"""The local launcher: attempts on this machine, each run by an agent forked from the controller's process."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import select
import signal
import sys
import time
from pathlib import Path

from determined import _process
from determined._redact import redacted_text
from determined.experiment import slots as machine
from determined.experiment.attempt import agent, exit_record, guard
from determined.experiment.attempt.output import KILL
from determined.experiment.controller import start
from determined.experiment.launchers import forking
from determined.experiment.launchers.base import TaskSpec
from determined.launch import _processes
from determined.store.attempts import AttemptRow
from determined.store.database.connection import Store
from determined.store.messages import now

logger = logging.getLogger("determined.experiment")

SILENCE_SECONDS = 120.0
STEP_SECONDS = 0.05 if sys.platform != "linux" else 3600.0  # elsewhere nothing wakes us


class LocalLauncher:
    """Starts attempts on this machine.

    Use it from one thread, and outside of transactions: agents are forked.

    Args:
        store: Where attempts are recorded.
        home: The data directory.
    """

    name = "local"

    def __init__(self, store: Store, home: str | os.PathLike[str]) -> None:
        _process.started()  # loads psutil, so that no agent has to
        redacted_text("https://name:word@host/?a=b --c d")  # and compiles its patterns
        self._store = store
        self._home = os.fspath(home)
        self._log = Path(home) / "logs" / "agents.log"
        self._woken, self._wakes = os.pipe()  # agents write to it when an end is recorded
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakes, False)
        self._children: dict[str, int] = {}  # agents that this process has started, by attempt
        self._adopted: dict[str, int] = {}  # agents of an earlier controller
        self._killed: set[str] = set()

    @functools.cached_property
    def _slots(self) -> machine.Slots:
        return machine.detect()

    def slots(self) -> machine.Slots:
        """Return the slots of this machine."""
        return self._slots

    def settings(self) -> dict[str, str]:
        """Return the environment variables that another controller needs to choose this launcher."""
        return {"DET_LAUNCHER": self.name}

    def waiting(self) -> dict[str, str]:
        """Return no reasons: what is started here runs at once."""
        return {}

    def start(self, task: TaskSpec) -> None:
        """Start the agent of an attempt. Returns at once."""
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not forking.is_safe():
            self._children[task.allocation_id] = forking.spawn(task.to_json(), self._log)
            return

        def run() -> None:
            agent.run(task, self._store, ended=self._wake)

        self._children[task.allocation_id] = forking.fork(run, self._store, self._log, keep=self._wakes)

    def is_alive(self, attempt: AttemptRow) -> bool:
        """Return whether the agent of an attempt runs, whoever started it."""
        self._reap()
        if attempt.allocation_id in self._children:
            return True
        if attempt.pid is None:
            return False
        if attempt.node != _process.this_node():  # of a store that several machines share
            seen = attempt.last_activity or attempt.start_time
            return (now() - seen).total_seconds() < SILENCE_SECONDS
        if not _process.is_alive(attempt.pid, attempt.process_started):
            return False
        self._adopted[attempt.allocation_id] = attempt.pid
        return True

    def kill(self, attempt: AttemptRow) -> None:
        """End all processes of an attempt now. The agent, if it lives, records the end; otherwise nobody does."""
        pid = self._children.get(attempt.allocation_id, attempt.pid)
        is_alive = self.is_alive(attempt) and attempt.node in ("", _process.this_node())
        if is_alive and pid is not None:
            for number in (KILL, signal.SIGCONT):  # it may have been stopped
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        if not is_alive or attempt.allocation_id in self._killed:
            self._remove_leftovers(attempt.allocation_id)
        if not is_alive:
            self._killed.discard(attempt.allocation_id)
            exit_record.settle(self._store, self._home, start.address(self._store), attempt.allocation_id)
        else:
            self._killed.add(attempt.allocation_id)

    def wait(self, seconds: float) -> None:
        """Wait until an agent that this launcher started, or found alive, has ended, or for so long."""
        with contextlib.ExitStack() as stack:
            poller = select.poll()
            poller.register(self._woken, select.POLLIN)
            for pid in (*self._children.values(), *self._adopted.values()):
                with contextlib.suppress(OSError, AttributeError):  # it has just ended; or there is no such call
                    file = os.pidfd_open(pid)
                    stack.callback(os.close, file)
                    poller.register(file, select.POLLIN)
            deadline = time.monotonic() + seconds
            while not poller.poll(max(0.0, min(seconds, STEP_SECONDS)) * 1000):
                if self._reap() or time.monotonic() >= deadline:
                    break
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 4096):
                pass
        self._reap()

    def close(self) -> None:
        """Give back what the launcher itself uses. Agents go on."""
        os.close(self._woken)
        os.close(self._wakes)

    def _wake(self) -> None:
        """In an agent: wake the controller, if it is still there."""
        with contextlib.suppress(OSError):
            os.write(self._wakes, b".")

    def _reap(self) -> bool:
        """Wait for agents that have ended; return whether there were any."""
        ended = [allocation_id for allocation_id, pid in self._children.items() if _has_ended(pid)]
        ended += [allocation_id for allocation_id, pid in self._adopted.items() if not _process.is_alive(pid)]
        for allocation_id in ended:
            self._children.pop(allocation_id, None)
            self._adopted.pop(allocation_id, None)
            self._killed.discard(allocation_id)
        return bool(ended)

    def _remove_leftovers(self, allocation_id: str) -> None:
        """Kill what an agent and its guard, both dead, have left running; a process may start others meanwhile."""
        for _ in range(10):
            found = guard.leftovers(self._store.id, allocation_id)
            if not found:
                return
            for pid in found:
                _processes.send(pid, signal.SIGKILL)
            time.sleep(0.02)
        logger.warning("%s: processes that cannot be killed are left: %s", allocation_id, found)


def _has_ended(child: int) -> bool:
    """Return whether a child has ended, and wait for it if so."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:  # somebody else has waited for it
        return True
