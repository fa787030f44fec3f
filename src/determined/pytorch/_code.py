"""The copy of the user's code that every checkpoint holds: what is copied, read once, and written out again.

Code is what a person wrote. Data, results, caches and large files are left out, and what is left out is said once.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from determined import errors
from determined.artifacts.paths import check_path

logger = logging.getLogger("determined.pytorch")

IGNORE_FILE = ".detignore"
LARGEST_FILE = 4 << 20
LARGEST_COPY = 64 << 20
MOST_FILES = 5_000
MOST_LOOKED_AT = 50_000  # a data set in the working directory must not make a checkpoint wait

# In the language of .gitignore. A .detignore may take any of these back with "!".
ALWAYS_IGNORED = [
    *(".git/", ".hg/", ".svn/", ".bzr/"),
    *("__pycache__/", "*.py[co]", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".nox/"),
    *(".cache/", ".ipynb_checkpoints/", ".venv/", "venv/", "*.egg-info/", ".eggs/", "node_modules/"),
    *(".DS_Store", "Thumbs.db", ".idea/", ".vscode/", "*.sw[a-p]", "*~", "\\#*\\#"),
    *(".terraform/", "*.tfstate", "*.tfstate.*", ".terraform.lock.hcl"),
    *(".env", "events.out.tfevents.*", "core.[0-9]*"),
]
# Directories that hold one of these are Python environments, or checkpoints with copies of the code themselves.
NOT_CODE = ("pyvenv.cfg", ".artifacts")


@dataclass
class _Taken:
    """What a walk found."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    bytes: int = 0
    too_large: list[str] = field(default_factory=list)
    unnamable: list[str] = field(default_factory=list)
    stopped: str | None = None


class CodeCopy:
    """The code in a directory as it was when it was first asked for, so that every checkpoint of a run holds the same.

    Args:
        root: The directory; by default the current one.
        without: Places in it that are ours, such as the directory of checkpoints.
    """

    def __init__(self, root: Path | None = None, without: Iterable[Path] = ()) -> None:
        self._root = _current() if root is None else root.resolve()
        self._without = {path.resolve() for path in without}
        self._taken: _Taken | None = None

    def read(self) -> dict[str, tuple[bytes, int]]:
        """Content and mode of every file, by its path; read on the first call only."""
        if self._taken is None:
            self._taken = self._take()
        return self._taken.files

    def _take(self) -> _Taken:
        if self._root is None:
            logger.warning("The current directory has been deleted, so checkpoints hold no copy of the code.")
            return _Taken()
        taken = _take(self._root, self._without)
        _say(self._root, taken)
        return taken

    def write(self, target: Path) -> None:
        """Write the copy to `target`, which must not exist."""
        files = self.read()
        target.mkdir(parents=True)
        target.chmod(0o755)
        for name, (content, mode) in files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(mode)


def _current() -> Path | None:
    """The current directory; None if somebody has deleted it."""
    try:
        return Path.cwd().resolve()
    except FileNotFoundError:
        return None


def _take(root: Path, without: set[Path]) -> _Taken:
    taken = _Taken()
    ignored = IgnoreRules([*ALWAYS_IGNORED, *_lines(root / IGNORE_FILE)])
    for looked_at, (name, entry) in enumerate(_walk(root, ignored, without)):
        if looked_at >= MOST_LOOKED_AT:
            taken.stopped = f"it holds more than {MOST_LOOKED_AT} files"
            break
        try:
            check_path(f"code/{name}")
            info = entry.stat()
            if info.st_size > LARGEST_FILE:
                taken.too_large.append(name)
                continue
            if len(taken.files) >= MOST_FILES or taken.bytes + info.st_size > LARGEST_COPY:
                taken.stopped = f"the copy would pass {MOST_FILES} files or {LARGEST_COPY >> 20} MB"
                break
            content = Path(entry.path).read_bytes()
        except OSError:  # gone meanwhile, or not ours to read
            continue
        except errors.UnsafePath:
            taken.unnamable.append(name)
            continue
        taken.files[name] = (content, (info.st_mode & 0o777) | 0o600)
        taken.bytes += len(content)
    return taken


def _walk(root: Path, ignored: IgnoreRules, without: set[Path]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Files under `root`, those near the top first: if there are too many, the code is there and the data is not."""
    waiting = deque([(str(root), "")])
    while waiting:
        directory, prefix = waiting.popleft()
        try:
            with os.scandir(directory) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            name = prefix + entry.name
            try:
                is_directory = entry.is_dir()
                if ignored.match(name, is_directory) or Path(entry.path).resolve() in without:
                    continue
                is_wanted = _is_code(entry, root) if is_directory else entry.is_file()
            except (OSError, RuntimeError):  # a link that leads back to itself; older Pythons call it RuntimeError
                continue
            if is_wanted and is_directory:
                waiting.append((entry.path, name + "/"))
            elif is_wanted:
                yield name, entry


def _is_code(entry: os.DirEntry[str], root: Path) -> bool:
    return _is_inside(entry, root) and not any(Path(entry.path, mark).exists() for mark in NOT_CODE)


def _is_inside(entry: os.DirEntry[str], root: Path) -> bool:
    """Whether a directory is to be read: a link that leads out of the root leads to data, one back up to a loop."""
    return not entry.is_symlink() or (
        (place := Path(entry.path).resolve()).is_relative_to(root)
        and not Path(entry.path).parent.resolve().is_relative_to(place)
    )


def _say(root: Path, taken: _Taken) -> None:
    logger.info("Checkpoints hold a copy of %d files (%.1f MB) of %s.", len(taken.files), taken.bytes / 1e6, root)
    hint = f"Name what is not code in {root / IGNORE_FILE}."
    if taken.too_large:
        shown = ", ".join(taken.too_large[:5]) + (", ..." if len(taken.too_large) > 5 else "")
        logger.info("Files of more than %d MB are left out: %s. %s", LARGEST_FILE >> 20, shown, hint)
    if taken.unnamable:
        shown = ", ".join(map(ascii, taken.unnamable[:5])) + (", ..." if len(taken.unnamable) > 5 else "")
        logger.warning("Files whose names no storage could keep are left out: %s.", shown)
    if taken.stopped:
        logger.warning("Checkpoints hold only a part of the code in %s, because %s. %s", root, taken.stopped, hint)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


class IgnoreRules:
    """Patterns in the language of .gitignore: the last one that matches decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for rule in map(_rule, lines) if rule is not None]

    def match(self, path: str, is_directory: bool) -> bool:
        """Whether to leave out `path`, which is relative and uses slashes."""
        decided = False
        for pattern, is_negated, only_directories in self._rules:
            if (is_directory or not only_directories) and pattern.fullmatch(path):
                decided = not is_negated
        return decided


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    line = re.sub(r"(?<!\\)\s+$", "", line)
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    line = line[1:] if is_negated else line
    only_directories = line.endswith("/")
    line = line.rstrip("/")
    is_anchored = "/" in line
    expression = _expression(line.lstrip("/"))
    try:
        return (
            re.compile(expression if is_anchored else f"(?:.*/)?{expression}", re.DOTALL),
            is_negated,
            only_directories,
        )
    except re.error:
        logger.warning("%s: the pattern %r cannot be understood and is not used.", IGNORE_FILE, line)
        return None


_TOKENS = re.compile(
    r"(?P<any>^\*\*/|/\*\*/)|(?P<below>/\*\*$)|\*+|\?|(?P<set>\[[!^]?\]?[^\]]*\])|\\(?P<same>.)|.", re.DOTALL
)


def _expression(glob: str) -> str:
    parts = []
    for token in _TOKENS.finditer(glob):
        text = token.group()
        if token["any"]:
            parts.append("(?:.*/)?" if text.startswith("**") else "/(?:.*/)?")
        elif token["below"]:
            parts.append("/.*")
        elif text[0] == "*":
            parts.append("[^/]*")
        elif text == "?":
            parts.append("[^/]")
        elif token["set"]:
            parts.append("[" + ("^" + text[2:] if text[1] in "!^" else text[1:]))
        else:
            parts.append(re.escape(token["same"] or text))
    return "".join(parts)
