"""The controller of a store: whether one is alive, what it drives, and how to start and end it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import signal
import time
from pathlib import Path
from typing import Any

from determined import _process, store
from determined.client._session import Session
from determined.errors import NoController, Refused

POLL_SECONDS = 0.1
DRIVEN = ("ACTIVE", "STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_KILLED", "STOPPING_ERROR")


@dataclasses.dataclass(frozen=True)
class ControllerStatus:
    """What is known about the controller of a store.

    Args:
        is_alive: Whether a controller drives the experiments of this store.
        node: Its machine; of one that is gone, too.
        pid: Its process.
        since: When it started.
        last_beat: When it was last heard of.
        launcher: What it starts trials with.
        slots: How many slots it has to give.
        slots_used: How many of them trials hold.
        experiments: How many experiments there are to drive.
        trials: How many trials run.
        pending: How many events wait to be handled.
        log: The file it writes its log to.
    """

    is_alive: bool
    node: str | None
    pid: int | None
    since: datetime.datetime | None
    last_beat: datetime.datetime | None
    launcher: str | None
    slots: int | None
    slots_used: int
    experiments: int
    trials: int
    pending: int
    log: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


class ControllerCommands:
    """What can be done with the controller of a store. Reached as `Determined.controller`.

    Example::

        print(client.connect().controller.status())
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def log(self) -> Path:
        """The file that controllers of this data directory write their log to."""
        from determined.experiment.controller import start

        return start.log_path()

    def status(self) -> ControllerStatus:
        """Return whether a controller is alive, and what there is to drive.

        Example::

            client.connect().controller.status().pending
        """
        from determined.store.control import controllers, pending

        with self._session.read() as conn:
            holder = controllers.current(conn)
            holding = store.overview.running.holding_slots(conn)
            which = store.experiments.ExperimentFilter(states=DRIVEN, unmanaged=False)
            driven = store.experiments.count(conn, which)
            waiting = len(pending.read(conn))
        return ControllerStatus(
            is_alive=holder is not None and holder.is_alive,
            node=holder.node if holder else None,
            pid=holder.pid if holder else None,
            since=holder.started_at if holder else None,
            last_beat=holder.last_beat if holder else None,
            launcher=holder.launcher if holder else None,
            slots=holder.info.get("slots") if holder else None,
            slots_used=sum(launch.slots for launch in holding),
            experiments=driven,
            trials=len(holding),
            pending=waiting,
            log=str(self.log),
        )

    def waiting(self) -> dict[int, str]:
        """Return why trials wait for nodes of the cluster, by trial, as the living controller says.

        Example::

            client.connect().controller.waiting().get(12)
        """
        from determined.store.control import controllers

        with self._session.read() as conn:
            holder = controllers.current(conn)
        return holder.waiting if holder else {}

    def start(self, *, seconds: float = 30.0) -> bool:
        """Start a controller unless one is alive, and wait until it is up; return whether one was started.

        Raises:
            Refused: One is alive with another launcher than `DET_LAUNCHER` names.
            NoController: It did not come up in time. The message says where its log is.

        Example::

            client.connect().controller.start()
        """
        from determined.experiment.controller import start as starting
        from determined.experiment.launchers import choice

        choice.refuse_another(self._session.store)
        if self.status().is_alive:
            return False
        pid = starting.spawn(self._session.store, self._before())
        deadline = time.monotonic() + seconds
        while True:
            has_ended = not _process.is_alive(pid)  # asked first: it may have been up in between
            if self.status().is_alive:
                return True
            if has_ended:
                raise NoController(f"The controller ended as soon as it had started{self._last_line()}")
            if time.monotonic() > deadline:
                raise NoController(f"No controller came up within {seconds:.0f} s. See why: det controller logs")
            time.sleep(POLL_SECONDS)

    def _before(self) -> dict[str, str]:
        """Return the variables that chose the launcher of a controller that was killed: its trials may go on."""
        from determined.store.control import controllers

        with self._session.read() as conn:
            holder = controllers.current(conn)
        return holder.environment if holder else {}

    def _last_line(self) -> str:
        with contextlib.suppress(OSError, IndexError):
            _, found, cause = self.log.read_text(errors="replace").splitlines()[-1].partition("cannot start: ")
            if found:
                return f": {cause}"
        return ". See why: det controller logs"

    def stop(self, *, seconds: float = 60.0) -> bool:
        """Ask the controller to leave, and wait until it has; return whether there was one.

        Trials go on: their agents record what they do, and one that ends starts a controller again.

        Raises:
            Refused: It runs on another machine.
            NoController: It did not leave in time.

        Example::

            client.connect().controller.stop()
        """
        found = self.status()
        if not found.is_alive or found.pid is None:
            return False
        if found.node != _process.this_node():
            raise Refused(f"The controller runs on {found.node} (pid {found.pid}). Type there: det controller stop")
        began = _process.started(found.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while _process.is_alive(found.pid, began):
            if time.monotonic() > deadline:
                raise NoController(
                    f"The controller (pid {found.pid}) was asked to leave {seconds:.0f} s ago and is still there. "
                    "See what it does: det controller logs"
                )
            time.sleep(POLL_SECONDS)
        return True
