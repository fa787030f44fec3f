"""Where this user's runs, checkpoints and event files live: `DET_HOME`, else the per-user data directory."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
from pathlib import Path

logger = logging.getLogger("determined")

_OURS = (  # how the names in it begin
    *("determined.db", "checkpoints", "runs", "tensorboard", "collective.key"),
    *("secrets", "templates", "defaults.yaml", "logs", "code", "work", "pages"),
)
_SHARED = stat.S_ISGID | stat.S_ISVTX | stat.S_IWGRP | stat.S_IWOTH  # set only on purpose
_looked_at: set[Path] = set()


def data_directory() -> Path:
    """Return the path of the data directory, which may not exist yet."""
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
    """Return the path of the data directory; create it, readable by this user only, if it does not exist."""
    path = data_directory()
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def keep_private(path: Path) -> None:
    """Make a data directory that everybody may read private, or warn that it is not; once per process.

    The mode is changed only if nobody seems to share the directory: it belongs to this user, nobody else may write to
    it, and it holds nothing but our files. A directory that is open to its group only is left as it is.
    """
    if os.name != "posix" or path in _looked_at:
        return
    _looked_at.add(path)
    with contextlib.suppress(OSError):
        found = path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if not mode & stat.S_IRWXO:
            return
        if _is_only_ours(path, found):
            path.chmod(0o700)
            for file in path.glob("determined.db*"):
                with contextlib.suppress(OSError):
                    file.chmod(0o600)
            logger.warning("Others could look into the data directory %s (mode %03o); now only you can.", path, mode)
        else:
            logger.warning(
                "Others can look into the data directory %s (mode %03o), with what your runs print and report. "
                "Shut them out with: chmod o-rwx %s", path, mode, path,
            )  # fmt: skip


def _is_only_ours(path: Path, found: os.stat_result) -> bool:
    if found.st_uid != os.geteuid() or found.st_mode & _SHARED:
        return False
    return all(entry.name.startswith(_OURS) for entry in path.iterdir())
