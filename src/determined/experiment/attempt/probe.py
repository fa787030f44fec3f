"""Find out, before a trial's code runs, whether its checkpoints can be stored, and on a cluster whether a node fits.

Also a program: `python -m determined.experiment.attempt.probe` probes the storage of the trial it is started in, with
that trial's environment.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined.artifacts import open_storage
from determined.artifacts.config import KEYS
from determined.artifacts.directory import DirectoryStorage
from determined.experiment.launchers.base import Place

CONTENT = b"written to see whether checkpoints can be stored here"
DIRECTORIES = ("directory", "shared_fs")


def is_directory(config: Mapping[str, Any]) -> bool:
    """Return whether a `checkpoint_storage` is a directory: those need no credentials and are probed in no time."""
    return config.get("type", "directory") in DIRECTORIES


def versions() -> dict[str, str]:
    """Return the versions that have to be the same on every node of a cluster."""
    found = {"Python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("torch", "resolute"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def mark(config: Mapping[str, Any], home: Path, store_id: str) -> dict[str, str]:
    """Put a file into a directory for checkpoints, and return its name and content; none for a bucket.

    Nodes that find the file there share the directory with whoever put it there.
    """
    if not is_directory(config):
        return {}
    storage = open_storage(config or None, default_root=home / "checkpoints")
    assert isinstance(storage, DirectoryStorage)
    file, content = storage.root / f".shared-{store_id[:8]}", secrets.token_hex(8)
    with contextlib.suppress(OSError):  # a node that can write where we cannot does not share it with us
        storage.root.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), file.open("x") as made:
            made.write(content)
        content = file.read_text()
    return {str(file): content}


def node_problem(place: Place, there: Mapping[str, str], config: Mapping[str, Any], home: Path) -> str | None:
    """Return a sentence if a node of a cluster is not fit to run a trial, else None.

    Args:
        place: The node.
        there: The versions of whoever submitted the experiment.
        config: Its `checkpoint_storage`.
        home: The data directory of the node.
    """
    here = versions()
    differ = [name for name in there if here.get(name) != there[name]]
    if differ:
        has = ", ".join(f"{name} {here.get(name, 'missing')}" for name in differ)
        wanted = ", ".join(f"{name} {there[name]}" for name in differ)
        return (
            f"Node {place.node} has {has}, and the experiment was submitted with {wanted}. "
            "Install the same versions on every node, and start Ray there again."
        )
    if is_directory(config) and (found := problem(config, home)):
        return found
    for path, content in place.marks.items():
        try:
            is_shared = Path(path).read_text() == content
        except OSError:
            is_shared = False
        if not is_shared:
            return (
                f"The checkpoint storage (directory) at {Path(path).parent} is not the same on node {place.node} and "
                f"on {place.controller}, where the controller runs. Mount one directory on all nodes, or use a "
                "bucket, as in checkpoint_storage: {type: s3, bucket: ...}."
            )
    return None


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
