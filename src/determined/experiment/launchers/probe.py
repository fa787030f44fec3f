"""Find out, before a trial's code runs, whether its checkpoints can be stored.

Also a program: `python -m determined.experiment.launchers.probe` probes the storage of the trial it is started in, with
that trial's environment.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined.artifacts import open_storage
from determined.artifacts.config import KEYS
from determined.artifacts.directory import DirectoryStorage

CONTENT = b"written to see whether checkpoints can be stored here"
DIRECTORIES = ("directory", "shared_fs")


def is_directory(config: Mapping[str, Any]) -> bool:
    """Return whether a `checkpoint_storage` is a directory: those need no credentials and are probed in no time."""
    return config.get("type", "directory") in DIRECTORIES


def problem(config: Mapping[str, Any], home: Path) -> str | None:
    """Return a sentence if checkpoints cannot be stored where `checkpoint_storage` says, else None."""
    kind = config.get("type", "directory")
    place: Any = {key: value for key, value in config.items() if key not in ("access_key", "secret_key", "credential")}
    try:
        storage = open_storage(config or None, default_root=home / "checkpoints")
        place = storage.url
        if isinstance(storage, DirectoryStorage):
            _write_and_read(storage.root)
        else:
            storage.probe()
    except Exception as failed:  # noqa: BLE001  whatever a driver raises: no trial may lose its checkpoints
        cause = failed.strerror if isinstance(failed, OSError) and failed.strerror else str(failed) or repr(failed)
        return (
            f"The checkpoint storage ({kind}) at {_shown(kind, place)} cannot be used: {cause.rstrip('.')}. "
            "The trial was not started. Check checkpoint_storage, and who may write there."
        )
    return None


def _write_and_read(directory: Path) -> None:
    """Write a file, read it back and delete it; without waiting for the disk, as `Storage.probe` does."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f".probe-{secrets.token_hex(8)}"
    try:
        file.write_bytes(CONTENT)
        if file.read_bytes() != CONTENT:
            raise OSError(f"what was written to {directory} is not what is read back")
    finally:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def main() -> int:
    """Probe the storage of this process's trial; print the problem and return 1 if there is one."""
    from determined import _home, _info

    info = _info.get_cluster_info()
    config = {} if info is None else info.trial._config.get("checkpoint_storage") or {}
    if found := problem(config, _home.data_directory()):
        sys.stderr.write(f"ERROR: {found}\n")
        return 1
    return 0


def _shown(kind: str, place: Any) -> str:
    if isinstance(place, str):
        return place
    required = KEYS.get(kind, (set(), set()))[0]
    return ", ".join(f"{key}={place.get(key)}" for key in sorted(required)) or "an unknown place"


if __name__ == "__main__":
    sys.exit(main())
