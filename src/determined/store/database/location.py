"""Where a store is: a file or a server, from what the user wrote or keeps in a file. `connection` opens it."""

from __future__ import annotations

import dataclasses
import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from determined import errors
from determined._home import data_directory
from determined._redact import by_shape

FILE_NAME = "determined.db"
ADDRESS_FILE = "file:"
"""What a place begins with that names a file with the address, so that no password is typed or seen."""
_LONGEST_ADDRESS = 4000  # bytes; a database is larger, and must not be opened by other means than SQLite
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")  # what libpq reads files from
_EXAMPLE = "postgresql://user:password@host:5432/name"
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

    def __repr__(self) -> str:
        return f"StorePlace({str(self)!r})"

    @property
    def address(self) -> str:
        """What another process opens it with, password included: for its environment, never for its arguments."""
        return str(self.path) if self.path else self.url.render_as_string(hide_password=False)

    @property
    def masked_url(self) -> str:
        """The URL without its secrets."""
        url = self.url.set(drivername=self.url.get_backend_name())
        return by_shape(url.render_as_string(hide_password=False))


def find_place(place: str | os.PathLike[str] | None = None) -> StorePlace:
    """Return where a store is; None is `$DET_STORE`, else the data directory's own.

    Args:
        place: A path, a URL (`sqlite:///...`, `postgresql://...`), or `file:` and the path of a file that holds one.

    Example::

        assert find_place("runs.db").path == Path("runs.db").absolute()
    """
    chosen = place if place is not None else os.environ.get("DET_STORE") or data_directory() / FILE_NAME
    text = os.fspath(chosen)
    if text.startswith(ADDRESS_FILE):
        file = Path(text.removeprefix(ADDRESS_FILE).removeprefix("//")).expanduser().absolute()
        return _server_or_file(_read_address(file), f" in {file}")
    if "://" not in text:
        return _file(Path(text) / FILE_NAME if text.endswith(os.sep) else Path(text))
    return _server_or_file(text)


def _read_address(file: Path) -> str:
    """Return the one line of a file that only its owner may read. No error shows what is in it."""
    try:
        found = file.stat()
        if os.name == "posix" and found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise errors.StoreError(
                f"{file} holds the address of the store, and not only you may use it (mode {mode:04o}). "
                f"Type: chmod 600 {shlex.quote(str(file))}"
            )
        text = file.read_text("utf-8").strip() if found.st_size <= _LONGEST_ADDRESS else ""
    except (OSError, UnicodeDecodeError) as failed:
        why = failed.strerror if isinstance(failed, OSError) else "it is no text"
        raise errors.StoreError(f"The address of the store cannot be read from {file}: {why}.") from None
    if "://" not in text or len(text.split()) != 1:
        raise errors.StoreError(f"{file} does not hold the address of a store. Write one line into it: {_EXAMPLE}")
    return text


def _server_or_file(text: str, where: str = "") -> StorePlace:
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        hint = f"Write it as {_EXAMPLE}, with %40 for an @ in the password, or give the path of a file."
        # The cause would show parts of what was written.
        raise errors.StoreError(f"The address of the store{where} cannot be understood. {hint}") from None
    backend = "postgresql" if url.get_backend_name() == "postgres" else url.get_backend_name()
    if backend == "sqlite":
        return _sqlite_url(url)
    if backend == "postgresql":
        url = url.set(drivername="postgresql+psycopg").update_query_dict(_absolute_files(url.query))
        return StorePlace(url, None)
    raise errors.StoreError(f"A store is an SQLite file or a PostgreSQL database; {backend}:// is neither.")


def _absolute_files(query: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    """Return the files of a query that are beside us: what is started for this store works in another directory."""
    files = {name: Path(value) for name, value in query.items() if name in _FILES and isinstance(value, str)}
    return {name: str(path.absolute()) for name, path in files.items() if path.is_file()}


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
