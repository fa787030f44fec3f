"""One checkpoint from many ranks: which rank uploads which file, and what conflicts. Pure; `_checkpoint` uploads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

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
