"""Where a store is: a file or a server, from what the user wrote. `connection` opens it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import sqlalchemy as sa

from determined import errors
from determined._home import data_directory
from determined._redact import by_shape

FILE_NAME = "determined.db"
_NETWORK_FILE_SYSTEMS = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs",
    "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class StorePlace:
    """A file (`path`) or a server (`path` is None)."""

    url: sa.URL
    path: Path | None

    def __str__(self) -> str:
        return str(self.path) if self.path else self.masked_url

    @property
    def masked_url(self) -> str:
        """The URL without its secrets."""
        url = self.url.set(drivername=self.url.get_backend_name())
        return by_shape(url.render_as_string(hide_password=False))


def find_place(place: str | os.PathLike[str] | None = None) -> StorePlace:
    """Return where a store is: path or URL (`sqlite:///...`, `postgresql://...`); None is `$DET_STORE`, else a default.

    Example::

        assert find_place("runs.db").path == Path("runs.db").absolute()
    """
    chosen = place if place is not None else os.environ.get("DET_STORE") or data_directory() / FILE_NAME
    text = os.fspath(chosen)
    if "://" not in text:
        return _file(Path(text) / FILE_NAME if text.endswith(os.sep) else Path(text))
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError) as failed:
        hint = "Write it as postgresql://user:password@host:5432/name, or give the path of a file."
        raise errors.StoreError(f"The address of the store cannot be understood. {hint}") from failed
    backend = "postgresql" if url.get_backend_name() == "postgres" else url.get_backend_name()
    if backend == "sqlite":
        return _sqlite_url(url)
    if backend == "postgresql":
        return StorePlace(url.set(drivername="postgresql+psycopg"), None)
    raise errors.StoreError(f"A store is an SQLite file or a PostgreSQL database; {backend}:// is neither.")


def _sqlite_url(url: sa.URL) -> StorePlace:
    if not url.database or url.database == ":memory:":
        raise errors.StoreError("A store in memory would be gone with this process. Give a file: sqlite:///runs.db")
    return _file(Path(url.database))


def _file(path: Path) -> StorePlace:
    path = path.expanduser().absolute()
    if path.is_dir():
        path /= FILE_NAME
    return StorePlace(sa.URL.create("sqlite", database=str(path)), path)


def on_network(path: Path) -> str | None:
    """Return the kind of network file system that `path` is on, or None: then it is a local disk, or we cannot know."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        real = path.resolve()
    except OSError:
        return None
    best, kind = 0, ""
    for mount in mounts:
        point = Path(mount[1].replace("\\040", " "))
        if len(point.parts) >= best and real.is_relative_to(point):
            best, kind = len(point.parts), mount[2]
    return kind if kind in _NETWORK_FILE_SYSTEMS else None
