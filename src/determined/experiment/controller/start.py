"""Start a controller process, unless one is alive. Everybody who adds a pending event calls `ensure` afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from determined import _home, errors
from determined.store import experiments
from determined.store.control import controllers, pending
from determined.store.database.connection import Store, open_store

DRIVEN = ("ACTIVE", "STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_KILLED", "STOPPING_ERROR")
"""The states of experiments that a controller has something to do for."""
AGAIN_SECONDS = 2.0
OFF = ("off", "0", "false", "no")


def log_path() -> Path:
    """Return the file that controllers of this data directory write their log to."""
    return _home.data_directory() / "logs" / "controller.log"


def is_off() -> bool:
    """Return whether `DET_CONTROLLER=off` says that no controller is to be started."""
    return os.environ.get("DET_CONTROLLER", "").strip().lower() in OFF


def ensure(store: Store) -> bool:
    """Start a controller for this store unless one is alive. Return whether one was started; it comes up by itself.

    `DET_CONTROLLER=off` starts none: whatever was asked for waits in the store until one runs.
    One that is stopped (Ctrl-Z, a debugger) is alive and is not replaced: it would go on beside its successor.
    """
    if is_off():
        return False
    with store.read() as conn:
        holder = controllers.current(conn)
    if holder is not None and holder.is_alive and not store.is_sqlite:
        # It may be about to leave: then it has left, or seen our event, when we have asked. SQLite has one writer at a
        # time, so one that left before our event was stored is gone by now.
        with store.write() as conn:
            holder = controllers.current(conn, lock=True)
    if holder is not None and holder.is_alive:
        return False
    with store.write() as conn:
        holder = controllers.current(conn, lock=True)
        if holder is not None and holder.is_alive:  # somebody else has started one
            return False
        before = {} if holder is None else holder.info.get("environment", {})
        controllers.give(conn, spawn(store, before), info={"environment": before})
    return True


def spawn(store: Store, before: Mapping[str, str] | None = None) -> int:
    """Start a controller process that goes on when this one ends, and return its process id.

    A shell starts it and ends, so that it is no child of this process, which would have to wait for it.

    Args:
        store: Whose.
        before: The variables that chose the launcher of the controller that died, for trials that are still with it.
    """
    path = log_path()
    environment = {**(before or {}), **os.environ, "DET_STORE": address(store)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("ab") as log:
            shell = subprocess.run(
                ["sh", "-c", '"$0" -m determined.experiment.controller </dev/null >&2 & echo $!', sys.executable],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
                check=True,
            )
    except (OSError, subprocess.SubprocessError) as failed:
        raise errors.NoController(
            f"No controller could be started ({failed}; its log is {path}). What was asked for is stored; start one "
            "with: det controller start"
        ) from failed
    return int(shell.stdout)


def watch_over() -> None:
    """Fork a process that starts another controller if this one dies before its work is done.

    Ray ends a process that it cannot connect to its cluster any more. Call it before anything else is opened.
    """
    dead, alive = os.pipe()
    if os.fork() != 0:
        os.close(dead)  # `alive` closes when this process ends, however that is
        return
    os.close(alive)
    os.setsid()
    controller = os.getppid()
    try:
        os.read(dead, 1)
        _take_care(controller)
    finally:
        os._exit(0)


def _take_care(controller: int) -> None:
    store = open_store(create=False)
    while True:
        time.sleep(AGAIN_SECONDS)
        with contextlib.suppress(errors.DeterminedError):
            with store.read() as conn:
                holder = controllers.current(conn)
                driven = experiments.ExperimentFilter(states=DRIVEN, unmanaged=False)
                has_work = pending.waits(conn) or bool(experiments.find(conn, driven))
            if holder is None or holder.pid != controller or not has_work:
                return  # it has left, or somebody else takes care
            if ensure(store):
                return


def address(store: Store) -> str:
    """Return the store's address as another process opens it, password included."""
    return str(store.path) if store.path is not None else store.place.url.render_as_string(hide_password=False)
