"""Check which names are safe, and which of them a pattern matches. Pure text: nothing here touches a disk or a bucket.

Names reach us from users' directories, manifests, bucket listings and patterns. All are taken literally (nothing is
ever percent-decoded), and whatever could leave its checkpoint on any platform is refused.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from determined.errors import UnsafePath

Selector: TypeAlias = Callable[[str], bool]
"""Chooses files by path relative to the checkpoint; directories end in `/`."""

LONGEST_COMPONENT = 255  # bytes, on every file system we know
LONGEST_PATH = 4096
DRIVE_LETTER = re.compile(r"[A-Za-z]:")


def check_path(path: str) -> str:
    """Return `path` if it names something inside a checkpoint: `name`, `dir/name`, or `dir/` for a directory."""
    if not isinstance(path, str):
        raise TypeError(f"A path inside a checkpoint is a str, not {type(path).__name__}: {path!r}.")
    if problem := _problem(path.removesuffix("/")):
        raise UnsafePath(f"{shown(path)} cannot be a path inside a checkpoint: {problem}.")
    return path


def check_storage_id(storage_id: str) -> str:
    """Return `storage_id` if it can be the name of a checkpoint: one visible path component."""
    if not isinstance(storage_id, str):
        raise TypeError(f"A storage id is a str, not {type(storage_id).__name__}: {storage_id!r}.")
    problem = _problem(storage_id)
    if not problem and "/" in storage_id:
        problem = "it contains a slash"
    if not problem and storage_id.startswith("."):
        problem = "names that start with a dot are kept for our own records"
    if problem:
        raise UnsafePath(f"{shown(storage_id)} cannot be the storage id of a checkpoint: {problem}.")
    return storage_id


@functools.lru_cache(1024)  # a run stores files of the same names again and again
def _problem(path: str) -> str | None:
    """Return why `path` is unsafe, or None."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode, which buckets and manifests need"
    if not path:
        return "it is empty"
    if size > LONGEST_PATH:
        return f"it is {size} bytes long, and {LONGEST_PATH} is the limit"
    if "\0" in path or "\\" in path:
        return "it contains a NUL or a backslash"
    for component in path.split("/"):
        if component in ("", ".", ".."):
            return "it is absolute, or has an empty, '.' or '..' component"
        if DRIVE_LETTER.match(component):
            return f"{component[:2]!r} is a drive letter on Windows"
        if len(component.encode()) > LONGEST_COMPONENT:
            return f"a component is {len(component.encode())} bytes long, and {LONGEST_COMPONENT} is the limit"
    return None


def shown(path: str) -> str:
    """Return `path` for an error message, shortened and free of control characters."""
    return ascii(path if len(path) <= 120 else path[:100] + "...")


def parents(path: str) -> Iterator[str]:
    """Yield the directories above `path`, from the top: `a/b/c` has `a/` and `a/b/`."""
    components = path.removesuffix("/").split("/")[:-1]
    for depth in range(1, len(components) + 1):
        yield "/".join(components[:depth]) + "/"


def with_parents(paths: Iterable[str]) -> list[str]:
    """Return `paths` and all directories above them, sorted: a directory comes before what it holds."""
    every = set(paths)
    for path in tuple(every):
        end = path.rfind("/", 0, len(path) - 1)
        while end > 0 and path[: end + 1] not in every:
            every.add(path[: end + 1])
            end = path.rfind("/", 0, end)
    return sorted(every)


def is_generated_id(storage_id: str) -> bool:
    """Return whether `storage_id` is a UUID, as the ids given to checkpoints are and were."""
    try:
        return str(uuid.UUID(storage_id)) == storage_id.lower()
    except ValueError:
        return False


def is_old_checkpoint(storage_id: str, names: Iterable[str]) -> bool:
    """Return whether a directory that has no manifest and holds `names` at its top was written by the original product.

    A storage root may hold other things: the user's own folders, and the original's TensorBoard files under
    `<cluster id>/tensorboard`. Taking those for checkpoints would list, and one day delete, what is not ours.
    """
    found = {name.removesuffix("/") for name in names}
    return "metadata.json" in found or (is_generated_id(storage_id) and bool(found - {"tensorboard"}))


def surviving(paths: Iterable[str], globs: Sequence[str]) -> list[str]:
    """Return those of `paths` that none of the `globs` matches. A directory goes with all it holds.

    In a pattern `**` stands for any number of components, and `*`, `?` and `[...]` for parts of one. Names that start
    with a dot match like all others: a delete that leaves hidden files behind would be a surprise.
    """
    patterns = [check_path(glob) for glob in globs]
    paths = sorted(paths)
    matched = {path for path in paths if any(_matches(path, pattern) for pattern in patterns)}
    return [path for path in paths if path not in matched and matched.isdisjoint(parents(path))]


def _matches(path: str, glob: str) -> bool:
    if glob.endswith("/") and not path.endswith("/"):
        return False
    names = path.removesuffix("/").split("/")
    # reached[i]: the pattern so far can match the first i names. No backtracking, so no pattern is slow.
    reached = [True] + [False] * len(names)
    for part in glob.removesuffix("/").split("/"):
        if part == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [i >= first for i in range(len(reached))]
        else:
            reached = [False] + [
                before and fnmatch.fnmatchcase(name, part) for before, name in zip(reached, names, strict=False)
            ]
    return reached[-1]
