"""Start a controller process, unless one is alive. Everybody who adds a pending event calls `ensure` afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from determined import _home, errors
from determined.store.control import controllers
from determined.store.database.connection import Store

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
    """
    if is_off():
        return False
    with store.write() as conn:
        holder = controllers.current(conn, lock=True)
    if holder is not None and holder.is_alive:
        return False
    spawn(store)
    return True


def spawn(store: Store) -> None:
    """Start a controller process that goes on when this one ends. If another is alive by then, it leaves at once."""
    path = log_path()
    environment = dict(os.environ)
    if store.path is not None:
        environment["DET_STORE"] = str(store.path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", "determined.experiment.controller"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
                close_fds=True,
            )
    except OSError as failed:
        raise errors.NoController(
            f"No controller could be started ({failed.strerror or failed}; its log is {path}). What was asked for is "
            "stored; start one with: det controller start"
        ) from failed
