"""From a storage to a directory of the user's: verified, resumable, and not twice."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from determined.artifacts import Storage, verify_in_place

METADATA = "metadata.json"
Progress = Callable[[int, int], None]
"""Told how many bytes are here, and how many there are."""


def fetch(
    storage: Storage, uuid: str, target: Path, metadata: Mapping[str, Any], progress: Progress | None = None
) -> None:
    """Copy a checkpoint into `target`, unless a whole copy is there.

    `metadata.json` comes last, so a directory that has it has everything: a copy that was cut short is completed.
    A whole copy is verified by the manifest it carries; one of an earlier release carries none.
    """
    if (target / METADATA).is_file():
        verify_in_place(target)
        return
    sizes = storage.manifest(uuid).resources
    done, total = 0, sum(sizes.values())

    def count(path: str, size: int) -> None:  # noqa: ARG001  the name does not matter here
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    was_there = target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        storage.fetch(uuid, target, lambda path: path != METADATA, fetched=count, carries_manifest=True)
        if METADATA in sizes:
            storage.fetch(uuid, target, lambda path: path == METADATA, fetched=count, carries_manifest=True)
        else:
            write_metadata(target / METADATA, metadata)
    except BaseException:
        if not was_there:
            _remove_empty(target)
        raise


def _remove_empty(target: Path) -> None:
    """Take away directories that nothing came into; whole files stay, for the next attempt."""
    made = [Path(directory) for directory, _, _ in os.walk(target, topdown=False)]
    for directory in made:
        with contextlib.suppress(OSError):
            directory.rmdir()


def write_metadata(path: Path, metadata: Mapping[str, Any]) -> None:
    """Write metadata to a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(dict(metadata), indent=2, sort_keys=True), encoding="utf-8")
    temporary.replace(path)
