"""Check that what an experiment runs is in its code, before anything is created. Only what is certain is refused."""

from __future__ import annotations

import importlib.util
import posixpath
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from determined import errors
from determined._wording import instead

TRIAL_CLASS = re.compile(r"[A-Za-z0-9_.]+:[A-Za-z0-9_.]+")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
PYTHON = re.compile(r"python([0-9.]*)$")
SHELL_SIGNS = frozenset(";&|<>()$`\n*?[]{}~!")  # a line with any of these is left to the shell
LAUNCHERS = "determined.launch."
TAKE_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def check(
    entrypoint: str | Sequence[str],
    paths: Collection[str],
    *,
    where: str,
    withheld: Collection[str] = (),
    mounted: Collection[str] = (),
) -> None:
    """Refuse an entrypoint whose script or module is neither in the code nor installed.

    Args:
        entrypoint: As the configuration has it.
        paths: The files of the code.
        where: What messages call the code, such as its directory.
        withheld: Files that are not in the code because they look like secrets.
        mounted: Directories that `bind_mounts` puts beside the code; what is in them is not looked at.

    Raises:
        ConfigError: It names a file or a module that is not there.

    Example::

        check("python3 train.py", ["train.py"], where="model")
    """
    if isinstance(entrypoint, str):
        if TRIAL_CLASS.fullmatch(entrypoint.strip()):
            check_class("entrypoint", entrypoint.strip(), paths, where=where, withheld=withheld)
            return
        if SHELL_SIGNS.intersection(entrypoint):
            return
    try:
        words = shlex.split(entrypoint) if isinstance(entrypoint, str) else list(entrypoint)
    except ValueError:  # an open quote: the shell will say so
        return
    if isinstance(entrypoint, str):
        while words and ASSIGNMENT.fullmatch(words[0]):
            words.pop(0)
    _Check(paths, where, withheld, mounted).command(words)


def check_class(key: str, name: str, paths: Collection[str], *, where: str, withheld: Collection[str] = ()) -> None:
    """Refuse `module:Class`, the value of `key`, if the module is neither in the code nor installed."""
    _Check(paths, where, withheld).module(name.partition(":")[0], f"{key} is {name}")


class _Check:
    def __init__(
        self, paths: Collection[str], where: str, withheld: Collection[str], mounted: Collection[str] = ()
    ) -> None:
        self._paths, self._where, self._withheld = frozenset(paths), where, frozenset(withheld)
        self._mounted = tuple(f"{posixpath.normpath(place)}/" for place in mounted)

    def command(self, words: Sequence[str]) -> None:
        """Check a command that runs without a shell."""
        if not words:
            return
        program, *rest = words
        name = posixpath.basename(program)
        if "/" in program:
            self.file(program)
        elif name == "torchrun":
            self._script(rest)
        if PYTHON.fullmatch(name):
            self._python(rest)
        elif name in ("sh", "bash") and rest and not rest[0].startswith("-"):
            self.file(rest[0])

    def _python(self, words: Sequence[str]) -> None:
        waiting = list(words)
        while waiting:
            word = waiting.pop(0)
            if word == "-m":
                if waiting:
                    self._run_module(waiting[0], waiting[1:])
                return
            if word == "-c" or word == "-":
                return
            if word in TAKE_A_VALUE:
                del waiting[:1]
            elif not word.startswith("-"):
                self.file(word)
                return

    def _run_module(self, module: str, words: Sequence[str]) -> None:
        self.module(module, f"entrypoint runs python -m {module}")
        if not module.startswith(LAUNCHERS):
            return
        if "--trial" in words[:-1]:
            name = words[list(words).index("--trial") + 1]
            self.module(name.partition(":")[0], f"entrypoint runs --trial {name}")
        elif "--" in words:
            self.command(words[list(words).index("--") + 1 :])
        elif started := next((i for i, word in enumerate(words) if PYTHON.fullmatch(posixpath.basename(word))), None):
            self.command(words[started:])
        elif words and not words[0].startswith("-"):
            self.command(words)

    def _script(self, words: Sequence[str]) -> None:
        for before, word in zip(["", *words], words, strict=False):
            if word.endswith(".py") and not word.startswith("-") and not before.startswith("-"):
                self.file(word)
                return

    def file(self, name: str) -> None:
        """Refuse a file that is not there: absolute paths on this machine, others in the code."""
        if posixpath.isabs(name):
            if not Path(name).exists():
                raise errors.ConfigError(f"entrypoint runs {name}, which is not on this machine. Check the path.")
            return
        path = posixpath.normpath(name)
        if path not in self._paths and not path.startswith(self._mounted):
            self._refuse(f"entrypoint runs {name}", path)

    def module(self, name: str, said: str) -> None:
        """Refuse a module that is neither in the code nor installed."""
        base = name.replace(".", "/")
        top = name.split(".")[0]
        if any(path.startswith((f"{base}.", f"{base}/")) for path in self._paths):
            return
        is_ours = f"{top}.py" in self._paths or any(path.startswith(f"{top}/") for path in self._paths)
        if is_ours or not _is_installed(top):
            self._refuse(f"{said}, of the module {name}", f"{base}.py")

    def _refuse(self, said: str, path: str) -> None:
        if path in self._withheld:
            raise errors.ConfigError(
                f"{said}, and {path} is left out of the code because it looks like it holds a key. Take the key out, "
                "and pass it as environment.environment_variables or data.secrets."
            )
        if not self._paths:
            raise errors.ConfigError(f"{said}, which is not there: {self._where}. Name the directory of the code.")
        near = instead(path, sorted(found for found in self._paths if found.endswith((".py", ".sh"))), most=5)
        raise errors.ConfigError(f"{said}, which is not in {self._where}.{near}")


def _is_installed(top: str) -> bool:
    """Return whether a trial's Python could import this; nothing is imported."""
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False
