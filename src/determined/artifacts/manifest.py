"""The manifest of a checkpoint: every path with its size and checksum, and its JSON form."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from determined.artifacts.paths import Selector, check_path, check_storage_id, shown, with_parents
from determined.errors import CheckpointDamaged, DeterminedError, UnsafePath

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
        measure: Callable[[str], FileEntry],
        lacks_directory: Callable[[str], bool],
        selector: Selector | None = None,
    ) -> list[str]:
        """Compare the files with what was saved: one sentence per problem. Without checksums there is none.

        Args:
            measure: Size and checksum of a file as it is now; FileNotFoundError if it is not there.
            lacks_directory: Whether a directory is gone.
            selector: Says what to look at; everything by default.
        """
        found = []
        for path in self.files if self.verified else ():
            if selector is not None and not selector(path):
                continue
            try:
                if path.endswith("/"):
                    problem = "is missing" if lacks_directory(path) else None
                else:
                    problem = self.difference(path, measure(path))
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
    for path, entry in files.items():
        check_path(path)
        if path.endswith("/"):
            if entry != DIRECTORY:
                raise ValueError(f"the directory {shown(path)} has a size or a checksum")
            continue
        if type(entry.size) is not int or entry.size < 0:
            raise ValueError(f"the size of {shown(path)} is {entry.size!r}")
        if has_checksums and not (isinstance(entry.sha256, str) and SHA256.fullmatch(entry.sha256)):
            raise ValueError(f"the checksum of {shown(path)} is not a SHA-256")
    complete = {path: files.get(path, DIRECTORY) for path in with_parents(files)}
    for path in complete:
        if path.endswith("/") and path[:-1] in complete:
            raise UnsafePath(f"{shown(path[:-1])} is both a file and a directory.")
    return complete
