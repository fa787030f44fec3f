"""Choose the launcher of a controller by its name, and find out which slots it has."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from determined._home import data_directory
from determined.errors import ConfigError, Refused
from determined.experiment import slots
from determined.experiment.controller import start
from determined.experiment.launchers.base import Launcher
from determined.experiment.slots import Slots
from determined.store.control import controllers
from determined.store.control.controllers import ControllerRow
from determined.store.database.connection import Store

LOCAL = "local"
KINDS = {LOCAL: "LocalLauncher", "ray": "RayLauncher"}
"""Names of launchers, each with the class in the module of that name."""


def chosen(environment: Mapping[str, str] = os.environ) -> str:
    """Return the launcher that `DET_LAUNCHER` names; `local` if it names none."""
    name = environment.get("DET_LAUNCHER", "").strip() or LOCAL
    if name not in KINDS:
        raise ConfigError(f"DET_LAUNCHER is {name!r}, and has to be one of: {', '.join(KINDS)}.")
    return name


def open_launcher(store: Store) -> Launcher:
    """Return the launcher that `DET_LAUNCHER` names.

    Example::

        open_launcher(open_store()).slots()
    """
    name = chosen()
    if name == "ray":
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray reads it when it is imported
    try:
        module = importlib.import_module(f"determined.experiment.launchers.{name}")
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"The launcher {name} needs the package {missing.name}. Install it with: pip install 'resolute[{name}]'"
        ) from None
    launcher: Launcher = getattr(module, KINDS[name])(store, data_directory())
    return launcher


def find_slots(store: Store) -> Slots:
    """Return the slots of the launcher that a new experiment would run on: what its controller says, or is there.

    Raises:
        ConfigError: The launcher cannot be used here.
        Refused: A controller with another launcher drives this store.
    """
    refuse_another(store)
    return shown_slots(store)


def refuse_another(store: Store) -> None:
    """Refuse the launcher that `DET_LAUNCHER` asks for if a living controller has another.

    Raises:
        Refused: It has.
    """
    holder = _holder(store)
    if holder is None or not holder.is_alive or not holder.launcher or not os.environ.get("DET_LAUNCHER"):
        return
    if holder.launcher != chosen():
        raise Refused(
            f"A controller with the launcher {holder.launcher} drives this store (process {holder.pid} on "
            f"{holder.node}), and --launcher or DET_LAUNCHER says {chosen()}. Let it finish, or stop it with: "
            "det controller stop"
        )


def shown_slots(store: Store, *, here: Callable[[], Slots] | None = None, may_ask: bool = True) -> Slots:
    """Return the slots of the living controller, else of the launcher that the next one has. Nobody is refused.

    Args:
        store: Whose controller.
        here: Finds the slots of this machine.
        may_ask: Whether a process may be started that asks a cluster. Without, what its last controller said of it
            is all that is known.
    """
    holder = _holder(store)
    name = expected(holder)
    cluster = holder.info.get("cluster") if holder is not None and holder.launcher == name else None
    if cluster and holder is not None and (holder.is_alive or not may_ask):
        return Slots.from_json(cluster)
    if name == LOCAL:
        return (here or slots.detect)()
    return _asked(store, holder) if may_ask else Slots("cpu", ())


def expected(holder: ControllerRow | None) -> str:
    """Return the launcher of a living controller; of a dead one, the launcher that its successor gets."""
    if holder is not None and holder.is_alive and holder.launcher:
        return holder.launcher
    return chosen({**holder.environment, **os.environ} if holder else os.environ)


def _holder(store: Store) -> ControllerRow | None:
    with store.read() as conn:
        return controllers.current(conn)


def _asked(store: Store, holder: ControllerRow | None) -> Slots:
    """Ask a process of its own: a launcher may load much, connect somewhere and leave threads behind."""
    command = [sys.executable, "-m", __name__]
    environment = {**(holder.environment if holder else {}), **os.environ, "DET_STORE": start.address(store)}
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise ConfigError(asked.stderr.strip().splitlines()[-1])
    return Slots.from_json(json.loads(asked.stdout))


def main() -> int:
    """Print the slots of the launcher that `DET_LAUNCHER` names."""
    from determined.errors import DeterminedError
    from determined.store.database.connection import open_store

    try:
        found = open_launcher(open_store()).slots()
    except DeterminedError as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    sys.stdout.write(json.dumps(found.to_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
