"""The manifest that a download carries along, so that its files can be verified wherever they are taken.

It is the manifest of the storage, of the files that were asked for, and a line with the checksum of all that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from determined.artifacts import tree
from determined.artifacts.manifest import Manifest
from determined.errors import CheckpointDamaged, DeterminedError

CARRIED = ".artifacts-manifest"
"""Lies in the downloaded directory itself. Never stored: what is uploaded gets a manifest of its own."""
LARGEST = 64 << 20  # some 400,000 files


def leave(directory: Path, manifest: Manifest, paths: Iterable[str]) -> None:
    """Write down, in the directory they come to, how these files of a checkpoint have to look."""
    place = directory / CARRIED
    if not manifest.verified:  # whatever lies there is about other files
        place.unlink(missing_ok=True)
        return
    known = {}
    try:
        before = read(directory)
        if before is not None and before.storage_id == manifest.storage_id:
            known = before.files  # the rest came earlier
    except DeterminedError:
        pass  # this one replaces it
    files = {path: manifest.files[path] for path in paths}
    body = Manifest(manifest.storage_id, {**known, **files}).to_bytes()
    tree.write_durably(place, _sealed(body))


def read(directory: Path) -> Manifest | None:
    """Return the manifest that a directory carries; None if it carries none.

    Raises:
        CheckpointDamaged: It is not as it was left.
    """
    place = directory / CARRIED
    if not os.path.lexists(place):
        return None
    try:
        data = tree.read_plain(place, LARGEST)
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
