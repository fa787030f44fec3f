"""Which files of a tree are not to be copied: patterns in the language of .gitignore, and what looks like a secret."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from determined._redact import holds_key

logger = logging.getLogger("determined")

IGNORE_FILES = (".gitignore", ".detignore")

# Of checkpoints' copies of the code; a .gitignore or .detignore may take any of these back with "!".
ALWAYS_IGNORED = [
    *(".git/", ".hg/", ".svn/", ".bzr/"),
    *("__pycache__/", "*.py[co]", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".nox/"),
    *(".cache/", ".ipynb_checkpoints/", ".venv/", "venv/", "*.egg-info/", ".eggs/", "node_modules/"),
    *(".DS_Store", "Thumbs.db", ".idea/", ".vscode/", "*.sw[a-p]", "*~", "\\#*\\#"),
    *(".terraform/", "*.tfstate", "*.tfstate.*", ".terraform.lock.hcl"),
    *("events.out.tfevents.*", "core.[0-9]*"),
]
# Nothing takes these back.
SECRET_NAMES = [
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx", "*.gpg"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/", ".gnupg/", ".aws/", ".azure/", ".kube/", ".docker/"),
    *(".env*", "*.env", "credentials*", "*.credentials", ".git-credentials", "kubeconfig*", "*.kubeconfig"),
    *(".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd", ".dockercfg", "service[-_]account*.json"),
    *("secret.*", "secrets.*", "*.secret", "*.secrets", "*[-_.]secret.*", "*[-_.]secrets.*"),
]


class Ignored:
    """Says which paths under a directory are left out by our patterns and by the ignore files in and above it.

    Args:
        root: The directory.
        always: Our patterns; an ignore file may take any of them back with "!".
        files: What ignore files are called.
        above: Whether ignore files of the directories above count, up to the top of its git repository.
    """

    def __init__(
        self,
        root: Path,
        *,
        always: Sequence[str] = ALWAYS_IGNORED,
        files: Sequence[str] = IGNORE_FILES,
        above: bool = True,
    ) -> None:
        self._root, self._files = root, files
        top = next((place for place in (root, *root.parents) if (place / ".git").exists()), root) if above else root
        places = [place for place in reversed(root.parents) if place.is_relative_to(top)]
        self._always = _ours(*always)
        self._above = [(root.relative_to(place).as_posix() + "/", _rules_in(place, files)) for place in places]
        self._own: dict[str, IgnoreRules] = {}

    def match(self, path: str) -> bool:
        """Return whether to leave out the file at `path`, which is relative to the root and uses slashes."""
        return any(map(self.match_alone, _levels(path)))

    def match_alone(self, path: str) -> bool:
        """Return whether a pattern names `path` itself, whatever is said of the directories above it.

        A directory ends in a slash. For whoever walks the tree and does not enter what is left out.
        """
        is_directory, path = path.endswith("/"), path.removesuffix("/")
        found = self._always.match(path, is_directory)
        for prefix, rules in self._above:
            found = rules.match(prefix + path, is_directory, otherwise=found)
        for place in ("", *_levels(path)[:-1]):
            if place not in self._own:
                self._own[place] = _rules_in(self._root / place, self._files)
            found = self._own[place].match(path.removeprefix(place), is_directory, otherwise=found)
        return found


class IgnoreRules:
    """Patterns in the language of .gitignore: the last one that matches decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for rule in map(_rule, lines) if rule is not None]

    def match(self, path: str, is_directory: bool, *, otherwise: bool = False) -> bool:
        """Return whether the patterns match `path`, relative and with slashes; `otherwise` if none applies."""
        return self._decide([(path, is_directory)], otherwise)

    def match_with_parents(self, path: str) -> bool:
        """Return whether the last pattern that matches a file, or a directory above it, is not negated."""
        return self._decide([(level.removesuffix("/"), level.endswith("/")) for level in _levels(path)], False)

    def _decide(self, places: list[tuple[str, bool]], otherwise: bool) -> bool:
        for pattern, is_negated, only_directories in reversed(self._rules):
            for place, is_directory in places:
                if (is_directory or not only_directories) and pattern.fullmatch(place):
                    return not is_negated
        return otherwise


def _levels(path: str) -> list[str]:
    """Return a path after the directories above it: `a/b/c` has `a/` and `a/b/`."""
    components = path.removesuffix("/").split("/")
    return [*("/".join(components[:depth]) + "/" for depth in range(1, len(components))), path]


@functools.cache
def _ours(*lines: str) -> IgnoreRules:
    return IgnoreRules(lines)


def is_clutter(directory: str) -> bool:
    """Return whether a directory is of a kind that never holds code, such as a cache."""
    return _ours(*ALWAYS_IGNORED).match(directory, is_directory=True)


def has_secret_name(path: str) -> bool:
    """Return whether a file has the name of a key or a password store, or is in a directory for such files."""
    return _ours(*SECRET_NAMES).match_with_parents(path.lower())


def has_secret(content: bytes) -> bool:
    """Return whether a file holds a private key, a token of a known form, or a pattern of `DET_REDACT`."""
    return holds_key(content.decode("utf-8", "replace"))


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _rules_in(directory: Path, files: Sequence[str]) -> IgnoreRules:
    return IgnoreRules(line for name in files for line in lines_of(directory / name))


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
        logger.warning("The pattern %r of an ignore file cannot be understood and is not used.", line)
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
