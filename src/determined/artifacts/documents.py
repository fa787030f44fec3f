"""Small JSON files of a checkpoint, read within bounds, whoever may have written them.

One of them is the manifest that a download carries along, so that its files can be verified wherever they are taken:
the manifest of the storage, of the files that were asked for, and the checksum of all that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from determined.artifacts import tree
from determined.artifacts.manifest import Manifest
from determined.errors import CheckpointDamaged, DeterminedError

LARGEST = 4 << 20
_MOST_DIGITS = 1000
_DEEPEST = 100  # what is written has 64 levels at most


def read(path: Path) -> dict[str, Any] | None:
    """Return what a JSON file holds; None if there is nothing of that name.

    Raises:
        CheckpointDamaged: It is no regular file, too large, nested too deep, no JSON, or no dict.
    """
    if not os.path.lexists(path):
        return None
    try:
        data = tree.read_plain(path, LARGEST)
    except (OSError, ValueError) as e:
        raise CheckpointDamaged(f"{e}. Use another checkpoint.") from e
    return parse(data, str(path))


def parse(data: bytes, name: str) -> dict[str, Any]:
    """The same for bytes that are here, of the file `name`."""
    if len(data) > LARGEST:
        raise CheckpointDamaged(f"{name} has {len(data)} bytes, and {LARGEST} is the limit. Use another checkpoint.")
    try:
        found = json.loads(data, parse_int=_whole)
    except RecursionError:
        raise CheckpointDamaged(f"{name} is nested more than {_DEEPEST} levels deep. Use another checkpoint.") from None
    except ValueError as broken:
        raise CheckpointDamaged(f"{name} is not JSON: {str(broken)[:300]}. Use another checkpoint.") from broken
    if not isinstance(found, dict):
        raise CheckpointDamaged(f"{name} holds a {type(found).__name__}, not a dict. Use another checkpoint.")
    _check_depth(found, name)
    return found


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"it has a number of {len(text)} digits, and {_MOST_DIGITS} is the limit")
    return int(text)


def _check_depth(value: Any, name: str) -> None:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return
    raise CheckpointDamaged(f"{name} is nested more than {_DEEPEST} levels deep. Use another checkpoint.")


# The manifest of a download.

CARRIED = ".artifacts-manifest"
"""Lies in the downloaded directory itself. Never stored: what is uploaded gets a manifest of its own."""
LARGEST_MANIFEST = 64 << 20  # some 400,000 files


def leave_manifest(directory: Path, manifest: Manifest, paths: Iterable[str]) -> None:
    """Write down, in the directory they come to, how these files of a checkpoint have to look."""
    place = directory / CARRIED
    if not manifest.verified:  # whatever lies there is about other files
        place.unlink(missing_ok=True)
        return
    known = {}
    try:
        before = carried_manifest(directory)
        if before is not None and before.storage_id == manifest.storage_id:
            known = before.files  # the rest came earlier
    except DeterminedError:
        pass  # this one replaces it
    files = {path: manifest.files[path] for path in paths}
    body = Manifest(manifest.storage_id, {**known, **files}).to_bytes()
    tree.write_durably(place, _sealed(body))


def carried_manifest(directory: Path) -> Manifest | None:
    """Return the manifest that a directory carries; None if it carries none.

    Raises:
        CheckpointDamaged: It is not as it was left.
    """
    place = directory / CARRIED
    if not os.path.lexists(place):
        return None
    try:
        data = tree.read_plain(place, LARGEST_MANIFEST)
        body = data[: -len(_sealed(b""))]
        if data != _sealed(body):
            raise ValueError("it has other content than was written (its SHA-256 differs)")
        storage_id = json.loads(body)["storage_id"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as e:
        raise CheckpointDamaged(
            f"{place} says how the files of this checkpoint have to look, and cannot be read: {e}. "
            "Download the checkpoint again, or use another one."
        ) from e
    return Manifest.from_bytes(storage_id, body)


def _sealed(body: bytes) -> bytes:
    return body + b"\nsha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n"
