"""Who may import whom: the table of the house style, kept true by reading every import there is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "determined"

COMMON = {
    "errors",
    "_types",
    "_log",
    "_deprecate",
    "_lazy",
    "_left_out",
    "_version",
    "_home",
    "_wording",
    "_redact",
    "_notebook",
}
# What each room may import of `determined`, beside COMMON and itself.
ROOMS: dict[str, set[str]] = {
    **{name: set() for name in COMMON},
    "__init__": {"client", "core", "pytorch", "experimental", "_info", "_import_path"},
    "_info": set(),
    "_import_path": set(),
    "store": set(),
    "artifacts": set(),
    "core": {"artifacts", "store.messages", "_info"},
    "pytorch": {"core", "artifacts", "_info", "_import_path"},
    "launch": {"core", "artifacts", "_info"},
    "experiment": {"store", "artifacts", "_import_path"},
    "server": {"experiment", "store", "artifacts"},
    "client": {"store", "artifacts", "experiment"},
    "cli": {"client", "server", "experiment", "store.processes"},
    "experimental": {"core", "pytorch", "_info", "client"},
    "searcher": {"experiment"},
    "tensorboard": {"core", "pytorch", "artifacts", "_info"},
    "util": {"core", "pytorch", "_info"},
}
# Packages from outside: the rooms, or files, that may import them at the top. Inside functions is always allowed.
OUTSIDE: dict[str, set[str]] = {
    "torch": {"pytorch", "launch", "tensorboard"},
    "numpy": {"pytorch", "tensorboard", "core/recording/event_file.py"},
    "sqlalchemy": {"store"},
    "alembic": {"store"},
    "fsspec": set(),
    "psutil": set(),
    "pydantic": {"experiment"},
    "yaml": {"experiment"},
    "optuna": set(),
    "click": {"cli"},
    "rich": {"cli"},
}
MODULES = sorted(SOURCE.rglob("*.py"))


def imports(tree: ast.AST) -> list[str]:
    """Everything a piece of code imports, by full name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def outside_functions(tree: ast.Module) -> ast.Module:
    """The code that runs when the module is imported; what only type checkers see is left out."""

    class Strip(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.dump(node.test) else self.generic_visit(node)

    return Strip().visit(ast.parse(ast.unparse(tree)))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_stay_within_the_table(path: Path) -> None:
    """style.md 1: a room imports only what the table allows."""
    tree = ast.parse(path.read_text())
    room = room_of(path)
    allowed = ROOMS[room] | COMMON | {room}
    if path.parent == SOURCE / "core" / "recording":
        allowed |= {"store"}  # the one door
    for name in imports(tree):
        if name == "determined" or not name.startswith("determined."):
            continue
        inner = name.removeprefix("determined.")
        assert any(inner == a or inner.startswith(f"{a}.") for a in allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_packages_load_late(path: Path) -> None:
    """style.md 1 and decision 8: outside their rooms, heavy packages are imported inside functions."""
    for name in imports(outside_functions(ast.parse(path.read_text()))):
        package = name.split(".")[0]
        places = {room_of(path), path.relative_to(SOURCE).as_posix()}
        assert package not in OUTSIDE or places & OUTSIDE[package], f"{path.name} imports {package} at the top"


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").rglob("*.py")), ids=lambda path: path.name)
def test_commands_load_experiments_late(path: Path) -> None:
    """style.md 1 and decision 8: `det --help` does not wait for what reads and checks experiment files."""
    top = imports(outside_functions(ast.parse(path.read_text())))
    assert [name for name in top if name.startswith("determined.experiment")] == []


def test_every_module_says_what_lives_there() -> None:
    """style.md 5: a file opens with a sentence."""
    assert [str(p) for p in MODULES if not ast.get_docstring(ast.parse(p.read_text()))] == []


def test_the_table_has_no_dead_rows() -> None:
    """Rooms that exist are in the table; a new one has to be written down first."""
    assert {room_of(path) for path in MODULES} <= ROOMS.keys()
