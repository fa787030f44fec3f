"""The files and the metadata of a checkpoint, checked before they are stored."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

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
    found = artifacts.list_tree(root).keys() - {METADATA, artifacts.CARRIED}
    return found if selector is None else {path for path in found if selector(path)}


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


Conflicts: TypeAlias = "dict[str, list[int]]"
"""Path (of a file, or of a metadata key) -> the ranks that disagree about it."""


@dataclasses.dataclass(frozen=True)
class Offer:
    """The files and the metadata that one rank adds to a sharded checkpoint."""

    paths: list[str] | None  # None: this rank adds no directory
    directory: tuple[int, int, int] | None = None  # (machine, device, inode), if all of a directory is meant
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Shares:
    """Which rank uploads which paths, before contested files were compared."""

    paths: list[set[str]]
    contested: Conflicts  # files offered more than once: fine if the copies are equal
    impossible: Conflicts  # a file here, a directory there

    def settle(self, digests: Sequence[Mapping[str, str]]) -> tuple[list[set[str]], Conflicts]:
        """Equal copies are uploaded once, by the lowest rank; the rest are conflicts.

        Args:
            digests: Per rank, the checksums of the contested files it offered.
        """
        conflicts = dict(self.impossible)
        paths = [set(share) for share in self.paths]
        for path, ranks in self.contested.items():
            if len({digests[rank][path] for rank in ranks}) > 1:
                conflicts[path] = ranks
            for rank in ranks[1:]:
                paths[rank].discard(path)
        return paths, conflicts


def share(offers: Sequence[Offer]) -> Shares:
    """Assign paths to ranks: a directory that several ranks of one machine offer whole is uploaded by the lowest."""
    seen: set[tuple[int, int, int]] = set()
    paths: list[set[str]] = []
    for offer in offers:
        repeated = offer.directory is not None and offer.directory in seen
        paths.append(set() if repeated or offer.paths is None else set(offer.paths))
        if offer.directory is not None:
            seen.add(offer.directory)
    _, clashes = merge_resources(paths)
    kinds = {path: {p for share in paths for p in share if p.rstrip("/") == path} for path in clashes}
    impossible = {path: ranks for path, ranks in clashes.items() if len(kinds[path]) > 1}
    contested = {path: ranks for path, ranks in clashes.items() if path not in impossible}
    return Shares(paths, contested, impossible)


def merge_resources(offered: Sequence[Iterable[str]]) -> tuple[dict[str, list[int]], Conflicts]:
    """Return all paths with the ranks that offered them, and those that conflict.

    A directory (a path that ends in "/") offered twice is no conflict; a file offered twice is, and so is a file that
    is a directory elsewhere.
    """
    merged: dict[str, list[int]] = {}
    for rank, paths in enumerate(offered):
        for path in paths:
            merged.setdefault(path, []).append(rank)
    conflicts: Conflicts = {}
    for path, ranks in merged.items():
        name = path.rstrip("/")
        as_directory = merged.get(f"{name}/", []) if path == name else []
        if path == name and (len(ranks) > 1 or as_directory):
            conflicts[name] = sorted({*ranks, *as_directory})
    return merged, conflicts


def merge_metadata(offered: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], Conflicts]:
    """Return the union of all ranks' metadata, dicts merged into each other; of conflicts the lowest rank's value."""
    merged: dict[str, Any] = {}
    owners: dict[str, list[int]] = {}
    conflicts: Conflicts = {}
    for rank, metadata in enumerate(offered):
        _merge_into(merged, metadata, "", rank, owners, conflicts)
    return merged, conflicts


def _merge_into(
    merged: dict[str, Any],
    metadata: Mapping[str, Any],
    prefix: str,
    rank: int,
    owners: dict[str, list[int]],
    conflicts: Conflicts,
) -> None:
    for key, value in metadata.items():
        path = f"{prefix}/{key}"
        if key not in merged:
            merged[key] = {} if isinstance(value, Mapping) else value
            owners[path] = [rank]
            if isinstance(value, Mapping):
                _merge_into(merged[key], value, path, rank, owners, conflicts)
        elif isinstance(value, Mapping) and isinstance(merged[key], Mapping):
            owners[path].append(rank)
            _merge_into(merged[key], value, path, rank, owners, conflicts)
        elif not isinstance(value, Mapping) and not isinstance(merged[key], Mapping) and merged[key] == value:
            if path not in conflicts:
                owners[path].append(rank)
        else:
            conflicts.setdefault(path, list(owners[path])).append(rank)


def describe(conflicts: Conflicts, is_chief: bool) -> str:
    """Return one path per line, with its ranks; on other ranks than the chief one line, so that logs stay readable."""
    if not is_chief:
        return f" {conflicts}"
    return "".join(f"\n    {path}: ranks {', '.join(map(str, ranks))}" for path, ranks in sorted(conflicts.items()))
