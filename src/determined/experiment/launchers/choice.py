"""Choose the launcher of a controller by its name."""

from __future__ import annotations

import importlib
import os

from determined._home import data_directory
from determined.errors import ConfigError
from determined.experiment.launchers.base import Launcher
from determined.store.database.connection import Store

KINDS = {"local": "LocalLauncher"}
"""Names of launchers, each with the class in the module of that name."""


def open_launcher(store: Store, name: str | None = None) -> Launcher:
    """Return the launcher of this name; by default the one that `DET_LAUNCHER` names, else `local`.

    Example::

        open_launcher(open_store(), "local").slots()
    """
    name = name or os.environ.get("DET_LAUNCHER", "").strip() or "local"
    if name not in KINDS:
        raise ConfigError(f"DET_LAUNCHER is {name!r}, and has to be one of: {', '.join(KINDS)}.")
    module = importlib.import_module(f"determined.experiment.launchers.{name}")
    launcher: Launcher = getattr(module, KINDS[name])(store, data_directory())
    return launcher
