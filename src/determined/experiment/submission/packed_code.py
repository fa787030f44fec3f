"""Look into a code snapshot without unpacking it: its files, and the text of one of them.

A file is looked up by the names that the archive holds, and nothing is written to disk or opened there, so no path
leads out of it; links are not followed, and names that would lead out are not shown. `code_archive` packs.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from determined import errors

LARGEST_SHOWN = 1 << 20  # bytes of a file
LOOKED_AT = 8192  # bytes of a file that tell text from other things


@dataclass(frozen=True)
class PackedFile:
    """The beginning of a file in an archive; `text` is empty if it is none."""

    path: str
    size: int
    text: str
    is_whole: bool
    is_text: bool


def sizes(content: bytes) -> dict[str, int]:
    """Return the files of an archive with their sizes, by path.

    Example::

        sizes(archive.content)  # {"model_def.py": 812, "train.py": 97}
    """
    with _opened(content) as archive:
        return dict(sorted((member.name, member.size) for member in archive if _is_shown(member)))


def read(content: bytes, path: str) -> PackedFile:
    """Return a file of an archive, as far as it is shown.

    Raises:
        NotFound: There is no such file in it.
    """
    with _opened(content) as archive:
        for member in archive:
            if member.name == path and _is_shown(member):
                file = archive.extractfile(member)
                head = b"" if file is None else file.read(LARGEST_SHOWN)
                text = as_text(head)
                return PackedFile(path, member.size, text or "", len(head) == member.size, text is not None)
    raise errors.NotFound(f"There is no file {path[:200]!r} in this code. Choose one that the list shows.")


def as_text(head: bytes) -> str | None:
    """Return the beginning of a file as text; None if it is no UTF-8 text. Half a character at its end is left out."""
    if b"\0" in head[:LOOKED_AT]:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None


@contextlib.contextmanager
def _opened(content: bytes) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, OSError) as damage:
        raise errors.StoreError(f"The code snapshot cannot be read: {damage}.") from damage


def _is_shown(member: tarfile.TarInfo) -> bool:
    path = PurePosixPath(member.name)
    return member.isreg() and not path.is_absolute() and ".." not in path.parts
