"""The manifest of a checkpoint: every path with its size and checksum, and its JSON form."""

from __future__ import annotations

import fnmatch
import functools
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from determined.errors import CheckpointDamaged, DeterminedError, UnsafePath

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


def parents(path: str) -> list[str]:
    """Return the directories above `path`, from the top: `a/b/c` has `a/` and `a/b/`."""
    return [path[: end + 1] for end, letter in enumerate(path[:-1]) if letter == "/"]


def with_parents(paths: Iterable[str]) -> list[str]:
    """Return `paths`, checked, and all directories above them, sorted: a directory comes before what it holds."""
    every = set(map(check_path, paths))
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


VERSION = 1
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileEntry:
    """One stored file. A directory is an entry too: its path ends in `/`, and its entry is `FileEntry(0, "")`."""

    size: int
    sha256: str


DIRECTORY = FileEntry(0, "")


@dataclass(frozen=True)
class Manifest:
    """The contents of one checkpoint.

    Args:
        storage_id: The checkpoint.
        files: Path to entry, directories included. Checked and sorted here, and missing parents are added.
        verified: False for a checkpoint of the original product: sizes come from a listing, checksums are not known.
    """

    storage_id: str
    files: dict[str, FileEntry]
    verified: bool = True

    def __post_init__(self) -> None:
        check_storage_id(self.storage_id)
        object.__setattr__(self, "files", _checked(self.files, has_checksums=self.verified))

    @property
    def resources(self) -> dict[str, int]:
        """Path to bytes; directories have 0."""
        return {path: entry.size for path, entry in self.files.items()}

    def problems(
        self,
        measure: Callable[[str, FileEntry], FileEntry],
        selector: Selector | None = None,
    ) -> list[str]:
        """Compare the files with what was saved: one sentence per problem. Without checksums there is none.

        Args:
            measure: Returns the entry of a path as it is now, given the saved one; FileNotFoundError if it is gone.
            selector: Says what to look at; everything by default.
        """
        found = []
        for path, saved in self.files.items() if self.verified else ():
            if selector is not None and not selector(path):
                continue
            try:
                now = measure(path, saved)
                problem = None if now == saved else self.difference(path, now)
            except FileNotFoundError:
                problem = "is missing"
            except (OSError, ValueError, DeterminedError) as e:
                problem = f"cannot be read: {e}"
            if problem:
                found.append(f"{path} {problem}.")
        return found

    def difference(self, path: str, found: FileEntry) -> str | None:
        """Return how a file differs from what was saved, as the end of a sentence; None if it does not."""
        saved = self.files[path]
        if not self.verified or found == saved:
            return None
        if found.size != saved.size:
            return f"has {found.size} bytes, but {saved.size} were saved"
        return "has other content than was saved (its SHA-256 differs)"

    def to_bytes(self) -> bytes:
        files = {path: [entry.size, entry.sha256] for path, entry in self.files.items() if not path.endswith("/")}
        directories = [path for path in self.files if path.endswith("/")]
        content = {"version": VERSION, "storage_id": self.storage_id, "files": files, "directories": directories}
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, storage_id: str, data: bytes) -> Manifest:
        """Read what `to_bytes` wrote. Anything else is refused: a manifest decides which files are touched."""
        return _parsed(storage_id, data)


@functools.lru_cache(2)  # a resume reads one manifest several times; the bytes come from the disk each time
def _parsed(storage_id: str, data: bytes) -> Manifest:
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise CheckpointDamaged(
                f"Checkpoint {storage_id} has a manifest of version {content['version']!r}, and this release of "
                f"resolute reads version {VERSION}. Upgrade resolute to read it."
            )
        if content["storage_id"] != storage_id:
            raise ValueError(f"it is about {content['storage_id']!r}")
        files = {path: FileEntry(size, digest) for path, (size, digest) in content["files"].items()}
        if any(path.endswith("/") for path in files):
            raise ValueError("a file's name ends in a slash")
        for path in content["directories"]:
            if not path.endswith("/"):
                raise ValueError(f"the directory {shown(path)} does not end in a slash")
            files[path] = DIRECTORY
        return Manifest(storage_id, files)
    except UnsafePath as e:
        raise UnsafePath(f"The manifest of checkpoint {storage_id} is refused. {e}") from e
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise CheckpointDamaged(f"The manifest of checkpoint {storage_id} cannot be read: {e}.") from e


def _checked(files: Mapping[str, FileEntry], *, has_checksums: bool) -> dict[str, FileEntry]:
    complete = {path: files.get(path, DIRECTORY) for path in with_parents(files)}
    for path, entry in files.items():
        if path.endswith("/"):
            if entry != DIRECTORY:
                raise ValueError(f"the directory {shown(path)} has a size or a checksum")
            continue
        if type(entry.size) is not int or entry.size < 0:
            raise ValueError(f"the size of {shown(path)} is {entry.size!r}")
        if has_checksums and not (isinstance(entry.sha256, str) and SHA256.fullmatch(entry.sha256)):
            raise ValueError(f"the checksum of {shown(path)} is not a SHA-256")
    for path in complete:
        if path.endswith("/") and path[:-1] in complete:
            raise UnsafePath(f"{shown(path[:-1])} is both a file and a directory.")
    return complete
