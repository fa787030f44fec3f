"""Where this user's runs, checkpoints and event files live: `DET_HOME`, else the per-user data directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_directory() -> Path:
    """The data directory, which may not exist yet."""
    if chosen := os.environ.get("DET_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "determined"


def make_data_directory() -> Path:
    """The data directory, made for this user alone if it was not there."""
    path = data_directory()
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    return path
