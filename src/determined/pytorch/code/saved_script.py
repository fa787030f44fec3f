"""The script in a checkpoint as a module: its classes, without what it does when it is run."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_STARTS_TRAINING = ("Trainer", "pytorch.init", "core.init")  # fit() alone may be anybody's
_is_importing = False


class ScriptTrains(Exception):
    """A script would train if it were imported."""


def find_script(code: Path, recorded: str | None, class_name: str) -> Path | None:
    """Return the script that was run: the recorded one, else the only file that defines the class."""
    if recorded is not None:
        path = code / recorded
        return path if path.is_file() and path.resolve().is_relative_to(code.resolve()) else None
    top = class_name.partition(".")[0]
    found = [path for path in sorted(code.glob("*.py")) if top in _definitions(path, ast.ClassDef)]
    return found[0] if len(found) == 1 else None


def is_running(script: Path) -> bool:
    """Return whether the program that runs now is this script, with the same content."""
    own = getattr(sys.modules["__main__"], "__file__", None)
    try:
        return own is not None and Path(own).read_bytes() == script.read_bytes()
    except OSError:
        return False


def import_script(code: Path, script: Path) -> ModuleType:
    """Import a script under its own name instead of `__main__`. Needs `import_from_path(code)` around it.

    Raises:
        ScriptTrains: It would train, because that is not under `if __name__ == "__main__":`. None of it was run, or
            nothing beyond the call that would have begun.
    """
    check_does_not_train(script)
    name = script.relative_to(code).with_suffix("").as_posix().replace("/", ".")
    with _importing(script):
        if script.suffix == ".py" and all(map(str.isidentifier, name.split("."))):
            return importlib.import_module(name)
        loader = importlib.machinery.SourceFileLoader("script_of_checkpoint", str(script))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None, "the loader is given"
        module = importlib.util.module_from_spec(spec)
        sys.modules[loader.name] = module  # import_from_path() removes it
        loader.exec_module(module)
        return module


@contextlib.contextmanager
def _importing(script: Path) -> Iterator[None]:
    """Import without arguments, and with an `init()` that raises."""
    global _is_importing
    arguments, sys.argv, _is_importing = sys.argv, [str(script)], True
    try:
        yield
    finally:
        sys.argv, _is_importing = arguments, False


def refuse_to_train() -> None:
    """Raise if a checkpoint's script is being imported: loading a trial must not train one."""
    if _is_importing:
        raise ScriptTrains('It calls pytorch.init() when it is imported, and not under `if __name__ == "__main__":`.')


def check_does_not_train(script: Path) -> None:
    """Raise if a script begins to train outside of functions, classes and `if __name__ == "__main__":`."""
    functions = _definitions(script, ast.FunctionDef)
    for statement in _run_on_import(ast.parse(script.read_bytes(), str(script)).body):
        if called := _training_call(statement, functions, set()):
            raise ScriptTrains(
                f"{script.name} trains when it is imported: line {statement.lineno} calls {called}() and is not under "
                '`if __name__ == "__main__":`.'
            )


def _definitions(path: Path, kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> dict[str, ast.AST]:
    try:
        body = ast.parse(path.read_bytes(), str(path)).body
    except (OSError, SyntaxError, ValueError):
        return {}
    return {node.name: node for node in body if isinstance(node, kind)}


def _run_on_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        tested = list(ast.walk(statement.test)) if isinstance(statement, ast.If) else []
        names = {node.id for node in tested if isinstance(node, ast.Name)}
        values = {node.value for node in tested if isinstance(node, ast.Constant)}
        if isinstance(statement, ast.If) and "__name__" in names and "__main__" in values:
            yield from _run_on_import(statement.orelse)
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement


def _training_call(node: ast.AST, functions: dict[str, ast.AST], seen: set[str]) -> str | None:
    """Return the name of the call in `node` that trains, directly or through functions of the script."""
    for call in (found for found in ast.walk(node) if isinstance(found, ast.Call)):
        name = ast.unparse(call.func)
        if f".{name}".endswith(tuple(f".{start}" for start in _STARTS_TRAINING)):
            return name
        if name in functions and name not in seen:
            seen.add(name)
            if _training_call(functions[name], functions, seen):
                return name
    return None
