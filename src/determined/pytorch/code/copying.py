"""The copy of the user's code that every checkpoint holds: the modules that the run imported from the script's tree.

Code is what a person wrote and this run uses. Other files come along only if a `.detinclude` file names them; what
ignore files name, what looks like a key or a secret, and what lies outside of the tree never does.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import determined
from determined import errors
from determined._ignore import Ignored, IgnoreRules, has_secret, has_secret_name, is_clutter, lines_of
from determined.artifacts import SharedFile
from determined.artifacts.manifest import check_path

logger = logging.getLogger("determined.pytorch")

INCLUDE_FILE = ".detinclude"
LARGEST_FILE = 4 << 20
LARGEST_COPY = 64 << 20
MOST_FILES = 5_000
MOST_LOOKED_AT = 50_000  # a data set beside the script must not make a checkpoint wait

# Directories that hold one of these are Python environments, or checkpoints with copies of the code themselves.
NOT_CODE = ("pyvenv.cfg", ".artifacts")
_MAIN = ("__main__", "__mp_main__")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")

# Why a file that was imported, or that .detinclude names, is not in the copy.
_REASONS = {
    "ignored": f"because .gitignore or .detignore names them. To keep them, name them in {INCLUDE_FILE}",
    "secret": "because they look like keys or secrets, which no checkpoint may hold",
    "outside": "because they are links that lead out of the directory",
    "large": f"because they have more than {LARGEST_FILE >> 20} MB",
    "unnamable": "because no storage could keep their names",
    "many": f"because the copy would pass {MOST_FILES} files or {LARGEST_COPY >> 20} MB",
}


class _LeftOut(Exception):
    """A file does not come into the copy, for one of `_REASONS`."""


class CodeCopy:
    """The run's own code, each file as it was when it was first seen, so that every checkpoint holds the same.

    Args:
        root: The tree of the code; by default the script's directory and the current one.
        modules: What was imported; by default `sys.modules`, where later imports are noticed.
        without: Places in the tree that are ours, such as the directory of checkpoints.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        modules: Mapping[str, ModuleType] | None = None,
        without: Iterable[Path] = (),
    ) -> None:
        self._modules = sys.modules if modules is None else modules
        self._trees = [_Tree(place, without) for place in (_roots(self._modules) if root is None else [root])]
        self._files: dict[str, SharedFile] = {}
        self._bytes = 0
        self._looked_at: set[str] = set()
        self._count = -1
        self._left_out: dict[str, dict[str, None]] = {}
        self._has_spoken = False
        self.script: str | None = None
        """The script that was run, by its path in the copy; None if there is none, or it is left out."""

    def read(self) -> dict[str, SharedFile]:
        """Return content and mode of every file, by its path. Files are read once; later calls add new modules."""
        is_first = self._count < 0
        if len(self._modules) != self._count:
            self._count = len(self._modules)
            installed = _installed()
            for name, module in list(self._modules.items()):  # thousands, of which a few are the user's
                if name not in self._looked_at and isinstance(module, ModuleType):
                    self._looked_at.add(name)
                    file = module.__dict__.get("__file__")  # never ask the module itself: it may import on demand
                    if isinstance(file, str) and not file.startswith(installed) and not _INSTALLED.search(file):
                        self._take_module(name, module)
        if is_first:
            for tree in self._trees:
                for path, place in tree.included():
                    self._take(tree, path, place)
        return self._files

    def say(self) -> None:
        """Log what checkpoints hold and what is left out: all of it once, and later what is new."""
        if not self._has_spoken:
            self._has_spoken = True
            if not self._trees:
                logger.warning("The current directory has been deleted, so checkpoints hold no copy of the code.")
            places = " and ".join(str(tree.root) for tree in self._trees)
            logger.info(
                "Checkpoints hold a copy of %d files (%d kB) of %s.", len(self._files), self._bytes / 1e3, places
            )
        for reason, paths in self._left_out.items():
            shown = ", ".join(map(ascii, list(paths)[:5])) + (", ..." if len(paths) > 5 else "")
            logger.warning("Checkpoints hold no copy of %s, %s.", shown, _REASONS[reason])
        self._left_out.clear()

    def _take_module(self, name: str, module: ModuleType) -> None:
        file = _file_of(module)
        tree = None if file is None else next((tree for tree in self._trees if tree.holds(file)), None)
        if file is None or tree is None or name.partition(".")[0] == determined.__name__:
            return
        if name in _MAIN:
            spec = module.__dict__.get("__spec__")
            name = spec.name if spec is not None else file.stem
            if self._take(tree, path := self._path_of(name, file, tree), file):
                self.script = path
        else:
            self._take(tree, self._path_of(name, file, tree), file)

    def _path_of(self, name: str, file: Path, tree: _Tree) -> str:
        """Return a module's path in the copy: where an import by its name finds it, if it was imported so."""
        named = name.split(".") if file.stem == "__init__" else name.split(".")[:-1]
        is_by_name = file.stem == "__init__" or file.name.partition(".")[0] == name.rpartition(".")[2]
        tail = (*named, file.name)
        if is_by_name and file.parts[-len(tail) :] == tail:
            base = Path(*file.parts[: -len(tail)])
            if any(other.holds(base) for other in self._trees):
                return "/".join(tail)
        return tree.path_of(file)

    def _take(self, tree: _Tree, path: str, place: Path) -> bool:
        """Read one file into the copy; return whether it was added."""
        if path in self._files:
            return False
        try:
            tree.check(path, place)
            info = place.stat()
            if info.st_size > LARGEST_FILE:
                raise _LeftOut("large")
            if len(self._files) >= MOST_FILES or self._bytes + info.st_size > LARGEST_COPY:
                raise _LeftOut("many")
            content = place.read_bytes()
            if has_secret(content):
                raise _LeftOut("secret")
        except _LeftOut as left_out:
            self._left_out.setdefault(str(left_out), {})[path] = None
            return False
        except OSError:  # gone meanwhile, or not ours to read
            return False
        # Read-only: one file on the disk belongs to all checkpoints of the run, and an editor must not change it.
        self._files[path] = SharedFile(content, (info.st_mode & 0o555) | 0o400)
        self._bytes += len(content)
        return True


class _Tree:
    """A directory that code may come from."""

    def __init__(self, root: Path, without: Iterable[Path]) -> None:
        self._given = root.absolute()
        self.root = root.resolve()
        self._starts = tuple({str(place).rstrip(os.sep) + os.sep for place in (self._given, self.root)})
        self._without = {path.resolve() for path in without}
        self._include = IgnoreRules(lines_of(self.root / INCLUDE_FILE))
        self._ignored = Ignored(self.root)
        self._environments: dict[Path, bool] = {}

    def holds(self, place: Path) -> bool:
        """Return whether a path is the directory or in it, and not in a Python environment in it."""
        if not f"{place}{os.sep}".startswith(self._starts):
            return False
        inner = [self.root / parent for parent in Path(self.path_of(place)).parents]
        return not any(map(self._is_environment, inner))

    def _is_environment(self, directory: Path) -> bool:
        if directory not in self._environments:
            self._environments[directory] = directory != self.root and (directory / NOT_CODE[0]).exists()
        return self._environments[directory]

    def path_of(self, place: Path) -> str:
        root = self._given if place.is_relative_to(self._given) else self.root
        return place.relative_to(root).as_posix()

    def check(self, path: str, place: Path) -> None:
        """Raise if a file is not to be copied, whatever is in it."""
        real = place.resolve()
        if not real.is_relative_to(self.root):
            raise _LeftOut("outside")
        own, target = self.path_of(place), real.relative_to(self.root).as_posix()
        if any(map(has_secret_name, {path, own, target})):
            raise _LeftOut("secret")
        if not self._include.match_with_parents(own) and any(map(self._ignored.match, {own, target})):
            raise _LeftOut("ignored")
        try:
            check_path(f"code/{path}")
        except errors.UnsafePath:
            raise _LeftOut("unnamable") from None

    def included(self) -> Iterator[tuple[str, Path]]:
        """The files that the include file names."""
        if not (self.root / INCLUDE_FILE).is_file():
            return
        for looked_at, (path, place) in enumerate(self._walk()):
            if looked_at >= MOST_LOOKED_AT:
                logger.warning(
                    "%s: only the %d files nearest to it were looked at.", self.root / INCLUDE_FILE, MOST_LOOKED_AT
                )
                return
            if self._include.match_with_parents(path):
                yield path, place

    def _walk(self) -> Iterator[tuple[str, Path]]:
        """Yield all files, those near the top first: if there are too many, code is preferred to data."""
        waiting = deque([(self.root, "")])
        while waiting:
            directory, prefix = waiting.popleft()
            try:
                with os.scandir(directory) as listed:
                    entries = sorted(listed, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False) and self._is_code(Path(entry.path), prefix + entry.name):
                        waiting.append((Path(entry.path), prefix + entry.name + "/"))
                    elif entry.is_file():
                        yield prefix + entry.name, Path(entry.path)
                except OSError:  # a link that leads back to itself
                    continue

    def _is_code(self, directory: Path, path: str) -> bool:
        is_ours = directory in self._without or any((directory / mark).exists() for mark in NOT_CODE)
        return not (is_ours or is_clutter(path) or has_secret_name(path + "/"))


def _roots(modules: Mapping[str, ModuleType]) -> list[Path]:
    """Return the script's directory and the current one; neither if the latter was deleted."""
    places = []
    script = _file_of(modules.get("__main__"))
    if script is not None and script.is_file():
        spec = modules["__main__"].__dict__.get("__spec__")
        depth = spec.name.count(".") if spec is not None else 0  # python -m pkg.train: pkg lies in the tree
        places.append(script.parents[depth])
    try:
        places.append(Path.cwd())
    except FileNotFoundError:
        return []
    return places if places[0].resolve() != places[-1].resolve() else places[-1:]


def _file_of(module: ModuleType | None) -> Path | None:
    """Return the file of a module that is not installed, without asking the module, which may import on demand."""
    found = getattr(module, "__dict__", {}).get("__file__") if isinstance(module, ModuleType) else None
    if not isinstance(found, str) or found.startswith(_installed()):
        return None
    path = Path(os.path.abspath(found))  # noqa: PTH100 - .absolute() keeps ".."
    return None if _INSTALLED.search(str(path)) else path


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    places = {paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    return tuple(place.rstrip(os.sep) + os.sep for place in (*places, str(Path(determined.__file__).parent)))
