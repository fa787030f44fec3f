"""Read and verify the files of a checkpoint's directory, with or without a trial that is being trained."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from determined import artifacts, errors
from determined.artifacts.manifest import check_path
from determined.pytorch.checkpoint import older_layouts
from determined.pytorch.checkpoint.torch_archive import check_archive

BESIDE = "files_beside"
"""The key of the state file under which the checksums of the files beside it are found."""


def read_state(directory: Path, **load_kwargs: Any) -> dict[str, Any]:
    """Return what the state file of a checkpoint's directory holds, on the CPU: tensors and plain values only.

    Args:
        directory: The directory.
        **load_kwargs: More for `torch.load`.

    Raises:
        InvalidCheckpointException: There is no state file, or it holds other values.
        CheckpointDamaged: It is incomplete, or would unpack to more bytes than it has.
    """
    path = older_layouts.find_state_file(directory)
    check_archive(path, contents=False)
    options = {"map_location": "cpu", "weights_only": True, **load_kwargs}
    try:
        state = torch.load(path, **options)
    except pickle.UnpicklingError:
        state = older_layouts.read_old(path, options)
    except Exception as broken:
        raise errors.CheckpointDamaged(
            f"{path} cannot be read: {type(broken).__name__}: {str(broken)[:300]}. Use another checkpoint."
        ) from broken
    if not isinstance(state, dict):
        raise errors.InvalidCheckpointException(
            f"{path} holds a {type(state).__name__}, and the state of a trial is a dict: this is some other file."
        )
    return state


def verify(directory: Path) -> None:
    """Refuse a checkpoint's directory whose files are not the ones that were saved, wherever it is.

    Without a manifest, the checksums in the state file are compared.

    Raises:
        CheckpointDamaged: With the reason.
    """
    if not artifacts.verify_in_place(directory):
        verify_without_manifest(directory)


def verify_without_manifest(directory: Path) -> None:
    """Refuse a checkpoint's directory by the checksums in its state file; see `verify`."""
    for name in ("metadata.json", "load_data.json", *older_layouts.COUNTER_FILES):
        if os.path.lexists(directory / name):
            try:
                artifacts.open_plain(directory / name).close()
            except ValueError as e:
                raise errors.CheckpointDamaged(f"{e}. Use another checkpoint.") from e
    check_archive(older_layouts.find_state_file(directory), contents=True)
    _check_beside(directory)


def _check_beside(directory: Path) -> None:
    """Refuse files that differ from the checksums in the state file.

    Older layouts, and trials whose hooks write files, have no such checksums.
    """
    try:
        path = older_layouts.find_state_file(directory)
        check_archive(path, contents=False)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        beside = dict(state.get(BESIDE) or {})
    except errors.CheckpointDamaged:
        raise
    except Exception:  # noqa: BLE001 - none, or of another layout, or damaged: whoever reads it will say so
        return
    for name, digest in beside.items():
        try:
            said = artifacts.documents.read(directory / name) if name.endswith(".json") and "/" not in name else None
            found = metadata_digest(said or {}) if name == "metadata.json" else _digest(directory / check_path(name))
        except (OSError, ValueError, errors.UnsafePath) as e:
            raise errors.CheckpointDamaged(f"{directory / name} cannot be read: {e}. Use another checkpoint.") from e
        if found != digest:
            raise errors.CheckpointDamaged(
                f"{directory / name} is not the file that was saved: its SHA-256 differs. Use another checkpoint. If "
                "it was changed on purpose, store the directory anew with core_context.checkpoint.upload()."
            )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with artifacts.open_plain(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def metadata_digest(metadata: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the metadata, whatever the layout of `metadata.json`."""
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def script_checksum(script: str | None) -> str | None:
    """Return the SHA-256 of a script; None if it cannot be read, or is a notebook, whose file changes as it runs."""
    try:
        return (
            None
            if script is None or script.endswith(".ipynb")
            else hashlib.sha256(Path(script).read_bytes()).hexdigest()
        )
    except OSError:
        return None
