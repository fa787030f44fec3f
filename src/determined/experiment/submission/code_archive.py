"""Pack a directory of code into a tar.gz: the same content always gives the same bytes. The store keeps it.

Left out are caches and repositories, Python environments, what `.detignore` names, checkpoints and our own data, and
files that look like keys or secrets. Nothing but the files' names, contents and execute bits gets in.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from determined import errors
from determined._home import data_directory
from determined._ignore import Ignored, has_secret, has_secret_name

IGNORE_FILE = ".detignore"
LIMIT_MIB = 95.0
ALWAYS_IGNORED = (
    *("__pycache__/", "*.pyc", "*.pyo", ".git/", ".hg/", ".svn/", ".vscode/", ".idea/"),
    *(".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".ipynb_checkpoints/", ".DS_Store"),
)
# A directory that holds one of these is a Python environment, a checkpoint, or a data directory of ours.
NOT_CODE = ("pyvenv.cfg", "conda-meta", ".artifacts", "determined.db")
# Of a data directory that is the directory of the code itself; where it lies inside, all of it is left out.
OF_HOME = (
    *("secrets", "logs", "work", "templates", "tensorboard", "checkpoints", "runs", "code"),
    *("determined.db", "determined.db-wal", "determined.db-shm", "defaults.yaml", "collective.key"),
)
LARGEST_TEXT = 1 << 20  # bytes; larger files are data, and are not searched for keys
LEVEL = 4  # of compression: half a second for the largest archive there may be, instead of three
SHOWN = 5


@dataclass(frozen=True)
class CodeArchive:
    """A packed directory.

    Attributes:
        content: The tar.gz.
        paths: Every file in it, sorted.
        warnings: What was left out although its user may want it, one sentence each.
        withheld: The files left out because they look like secrets.
    """

    content: bytes
    paths: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass
class _Found:
    """Files on their way into an archive: what to read for each path; directories have None."""

    entries: dict[str, Path | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    links: list[tuple[str, Path]] = field(default_factory=list)


def pack(
    directory: str | os.PathLike[str] | None,
    includes: Sequence[str | os.PathLike[str]] = (),
    *,
    without: Iterable[Path] = (),
    limit_mib: float | None = None,
) -> CodeArchive:
    """Pack the files below `directory`, and those that `includes` names under their own base names.

    Args:
        directory: The context directory; None for an experiment without code.
        includes: More files and directories.
        without: Files and directories to leave out, such as that of checkpoints. The data directory always is.
        limit_mib: The most MiB of content; by default `DET_CODE_LIMIT_MB`, else 95.

    Raises:
        ConfigError: The directory or an include is not there, two have the same name, or it is all too large.

    Example::

        pack("model").paths  # ("model_def.py", "train.py")
    """
    found = _Found()
    home = data_directory()
    ours = {path.resolve() for path in (home, *(home / name for name in OF_HOME), *without)}
    if directory is not None:
        _walk(_checked_directory(Path(directory)), "", ours, found)
    for included in includes:
        _include(Path(included), ours, found)
    _check_size(found, _limit(limit_mib))
    content = _packed(found)
    paths = tuple(sorted(path for path, place in found.entries.items() if place is not None))
    return CodeArchive(content, paths, tuple(_warnings(found)), tuple(found.secrets))


def paths_in(content: bytes) -> tuple[str, ...]:
    """Return the files of an archive, sorted."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        return tuple(sorted(info.name for info in archive if info.isfile()))


def _checked_directory(directory: Path) -> Path:
    if directory.is_dir():
        return directory.resolve()
    if not directory.exists():
        raise errors.ConfigError(f"There is no directory {directory} to take the code from. Name the one it is in.")
    raise errors.ConfigError(
        f"{directory} is a file, and the code comes from a directory. "
        f"Name the directory, such as {directory.parent}, or add the file with --include."
    )


def _include(place: Path, ours: set[Path], found: _Found) -> None:
    """Add a file or a directory under its own base name."""
    if not place.exists():
        raise errors.ConfigError(f"--include {place} is not there. Check the path.")
    name = place.resolve().name if place.name in ("", "..") else place.name
    if any(path.split("/", 1)[0] == name for path in found.entries):
        raise errors.ConfigError(
            f"--include {place} would be called {name}, and there is a {name} in the code already. Rename one of them."
        )
    if place.is_dir():
        found.entries[name] = None
        _walk(place.resolve(), f"{name}/", ours, found)
    else:
        _add(place, name, found)


def _walk(root: Path, prefix: str, ours: set[Path], found: _Found) -> None:
    ignored = Ignored(root, always=ALWAYS_IGNORED, files=(IGNORE_FILE,), above=False)
    waiting: list[tuple[Path, str, tuple[Path, ...]]] = [(root, "", (root,))]
    while waiting:
        directory, below, chain = waiting.pop()
        for entry in _entries(directory):
            path, place, kind = below + entry.name, Path(entry.path), _kind(entry)
            if entry.name == IGNORE_FILE or ignored.match_alone(f"{path}/" if kind == "directory" else path):
                continue
            if kind != "directory":
                if kind == "file" and place not in ours:
                    _add(place, prefix + path, found)
            elif not _is_code(place, ours):
                continue
            elif has_secret_name(f"{path}/"):
                found.secrets.append(f"{prefix}{path}/")
            else:
                real = place.resolve()
                if not real.is_relative_to(root):
                    found.links.append((prefix + path, real))
                elif real not in chain:  # a link to a directory above would never end
                    found.entries[prefix + path] = None
                    waiting.append((place, f"{path}/", (*chain, real)))


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as listed:
            return sorted(listed, key=lambda entry: entry.name)
    except OSError as e:
        raise _unreadable(directory, e) from e


def _kind(entry: os.DirEntry[str]) -> str:
    """Return `directory`, `file`, or `none`: a socket, a pipe, or a link to nothing or to itself."""
    try:
        return "directory" if entry.is_dir() else "file" if entry.is_file() else "none"
    except OSError:
        return "none"


def _is_code(directory: Path, ours: set[Path]) -> bool:
    return directory.resolve() not in ours and not any((directory / mark).exists() for mark in NOT_CODE)


def _add(place: Path, path: str, found: _Found) -> None:
    if has_secret_name(path):
        found.secrets.append(path)
        return
    found.entries[path] = place
    found.sizes[path] = place.stat().st_size


def _packed(found: _Found) -> bytes:
    """Return the archive; files that hold keys are left out, and noted."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", compresslevel=LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, place in sorted(found.entries.items()):
            info = tarfile.TarInfo(path)  # owner, group and time stay those of nobody and 1970
            if place is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
                continue
            try:
                content = place.read_bytes()
                info.mode = 0o755 if place.stat().st_mode & 0o111 else 0o644
            except OSError as e:
                raise _unreadable(place, e) from e
            if len(content) <= LARGEST_TEXT and has_secret(content):
                found.secrets.append(path)
                del found.entries[path]
                continue
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _unreadable(place: Path, error: OSError) -> errors.ConfigError:
    return errors.ConfigError(f"{place} cannot be read ({error.strerror}). Name it in {IGNORE_FILE} to leave it out.")


def _limit(given: float | None) -> float:
    if given is not None:
        return given
    text = os.environ.get("DET_CODE_LIMIT_MB", "").strip()
    try:
        limit = float(text) if text else LIMIT_MIB
    except ValueError:
        limit = -1.0
    if not 0 < limit < float("inf"):
        raise errors.ConfigError(f"DET_CODE_LIMIT_MB is {text!r}, and has to be a number of MiB, such as 95.")
    return limit


def _check_size(found: _Found, limit_mib: float) -> None:
    total = sum(found.sizes.values())
    if total <= limit_mib * 2**20:
        return
    by_top: dict[str, int] = {}
    for path, size in found.sizes.items():
        top, slash, _ = path.partition("/")
        by_top[top + slash] = by_top.get(top + slash, 0) + size
    largest = sorted(by_top.items(), key=lambda pair: (-pair[1], pair[0]))[:SHOWN]
    shown = ", ".join(f"{name} ({size / 2**20:.1f} MiB)" for name, size in largest)
    raise errors.ConfigError(
        f"The code has {total / 2**20:.1f} MiB, and at most {limit_mib:g} MiB are taken. Largest: {shown}. "
        f"Name what is not code in {IGNORE_FILE}, or raise DET_CODE_LIMIT_MB."
    )


def _warnings(found: _Found) -> Iterator[str]:
    if found.secrets:
        yield (
            f"These look like keys or secrets, so the code is taken without: {_some(sorted(found.secrets))}. "
            "Pass such values as environment.environment_variables or data.secrets."
        )
    for path, target in found.links:
        yield (
            f"Left out of the code: {path}, a link out of the directory. To have it in trials, add "
            f"bind_mounts: [{{host_path: {target}, container_path: {path}}}]."
        )


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:SHOWN]) + (", ..." if len(paths) > SHOWN else "")
