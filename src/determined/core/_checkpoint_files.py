"""The files and the metadata of a checkpoint, checked before they are stored."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined import artifacts
from determined._redact import redacted
from determined._types import Json
from determined.artifacts import Selector, SharedFile
from determined.artifacts.tree import naming
from determined.core.recording.values import plain
from determined.store.messages import LARGEST_STEP

METADATA = "metadata.json"


def write_shared(root: Path, files: Mapping[str, SharedFile]) -> None:
    """Write copies of shared files that the user may change."""
    for name, file in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming(path):
            path.write_bytes(file.content)
        path.chmod(file.mode | stat.S_IWUSR)


def is_unchanged(path: Path, file: SharedFile) -> bool:
    """Whether a written copy still has its content."""
    try:
        return not path.is_symlink() and path.read_bytes() == file.content
    except OSError:  # removed, or something else by now
        return False


def existing_directory(path: os.PathLike[str] | str) -> Path:
    """Return the path of a directory; FileNotFoundError if there is none."""
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is not a directory, so there is nothing to upload. Pass a checkpoint directory."
        )
    return root


def selected_paths(root: Path, selector: Selector | None) -> set[str]:
    """Return the paths of a directory to store, without two at its root: `metadata.json` is written anew from the
    metadata, and the manifest that a download left belongs to the checkpoint that was downloaded."""
    ours = (METADATA, artifacts.CARRIED)
    return {path for path in artifacts.list_tree(root) if path not in ours and (selector is None or selector(path))}


def plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Json]:
    """Return metadata as plain JSON values without secrets; refuse what is no dict or too large."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"A checkpoint's metadata is a dict, not {type(metadata).__name__}: {metadata!r}.")
    checked = plain(metadata or {}, "checkpoint metadata")
    assert isinstance(checked, dict)
    if (size := len(json.dumps(checked, indent=2))) > artifacts.documents.LARGEST:
        raise ValueError(
            f"The checkpoint's metadata takes {size} bytes, and {artifacts.documents.LARGEST} is the limit. "
            "Keep what is large in a file of the checkpoint."
        )
    return redacted(checked)


def whole_steps(steps: Json) -> int:
    """Return the number of steps, by which checkpoints are ordered, as an int."""
    if isinstance(steps, float) and steps.is_integer():
        steps = int(steps)
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise ValueError(
            f"steps_completed in the checkpoint's metadata is {steps!r}; expected the number of steps as an int."
        )
    if steps > LARGEST_STEP:
        raise ValueError(f"steps_completed in the checkpoint's metadata is {steps}; expected at most 2**63 - 1.")
    return steps
