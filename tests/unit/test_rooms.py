"""Compare the source with the tables of docs/architecture.md: rooms, who may import whom, which packages load late."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "determined"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = sorted(SOURCE.rglob("*.py"))
MOST_FILES = 16
ENDINGS = ("s", "es", "ing")


def table(title: str) -> dict[str, list[str]]:
    """Return the table below a title of the page: its first column to the names in backticks in the second."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|", 1) for line in section.splitlines() if line.startswith("| ")][2:]
    assert rows, title
    return {first.strip(" `"): re.findall(r"`([\w.]+)`", second) for first, second in rows}


ROOMS = table("The rooms")
IMPORTS = table("Who may import whom")
PACKAGES = table("Where packages may be imported")
COMMON = IMPORTS.pop("any room")


def name_of(path: Path) -> str:
    """Return the dotted name of a module below `determined`; a room's `__init__` is the room."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def is_within(name: str, places: list[str]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_stay_within_the_table(path: Path) -> None:
    """A room imports only what the page allows to it, or to the room around it."""
    name = name_of(path)
    room = name.split(".")[0]
    allowed = [*COMMON, room, *(other for row, others in IMPORTS.items() if is_within(name, [row]) for other in others)]
    for imported in imports(ast.parse(path.read_text())):
        inner = imported.removeprefix("determined.")
        assert inner == imported or is_within(inner, allowed), f"{path.name} imports {imported}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_packages_load_late(path: Path) -> None:
    """Outside the rooms that the page names, heavy packages are imported inside functions."""
    for imported in imports(outside_functions(ast.parse(path.read_text()))):
        package = imported.split(".")[0]
        allowed = package not in PACKAGES or is_within(name_of(path), PACKAGES[package])
        assert allowed, f"{path.name} imports {package} at the top"


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").rglob("*.py")), ids=lambda path: path.name)
def test_commands_load_experiments_late(path: Path) -> None:
    """`det --help` does not wait for what reads and checks experiment files."""
    top = imports(outside_functions(ast.parse(path.read_text())))
    assert [name for name in top if name.startswith("determined.experiment")] == []


def test_every_module_says_what_it_holds() -> None:
    """A file opens with a sentence."""
    assert [str(p) for p in MODULES if not ast.get_docstring(ast.parse(p.read_text()))] == []


def test_every_room_is_on_the_page() -> None:
    """The page lists the rooms that exist, and no others; a new one is written down first."""
    found = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")}
    assert ROOMS.keys() == found - {".", "store/migrations/versions"}


def test_the_tables_name_only_what_exists() -> None:
    """A row for a room or a module that is gone is removed."""
    names = {name_of(path) for path in MODULES}
    rows = [
        *IMPORTS,
        *COMMON,
        *(other for table in (IMPORTS, PACKAGES) for others in table.values() for other in others),
    ]
    assert {row for row in rows if row not in names} == set()


def test_every_file_on_the_page_exists() -> None:
    """The walks and the text name real files, by their path below `src/determined` or in a room named before."""
    named = set(re.findall(r"\b((?:[\w]+/)*\w+\.py)\b", PAGE)) - {"tests/unit/test_rooms.py", "train.py"}
    paths = {path.relative_to(SOURCE).as_posix() for path in MODULES}
    assert {name for name in named if name not in paths and not any(p.endswith(f"/{name}") for p in paths)} == set()


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_a_room_has_few_files(room: str) -> None:
    """Nobody has to search a room for a file."""
    files = [path.stem for path in (SOURCE / room).glob("*.py") if not path.stem.startswith("__")]
    assert len(files) <= MOST_FILES, sorted(files)


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_no_two_names_in_a_room_are_alike(room: str) -> None:
    """No two files of a room have names that differ by a letter, a plural or an ending (`record`, `recording`)."""
    files = [path for path in (SOURCE / room).iterdir() if path.suffix == ".py" or path.is_dir()]
    names = [path.stem.strip("_") for path in files if not path.stem.startswith("__")]
    alike = [
        (a, b) for a, b in itertools.combinations(sorted(names), 2) if differ_by_a_letter(a, b) or share_stem(a, b)
    ]
    assert alike == []


def differ_by_a_letter(one: str, other: str) -> bool:
    """Whether replacing, adding or removing one letter makes two names equal."""
    short, long = sorted((one, other), key=len)
    if len(short) == len(long):
        return sum(a != b for a, b in zip(short, long, strict=True)) <= 1
    return short in [long[:i] + long[i + 1 :] for i in range(len(long))]


def share_stem(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long in [short + ending for ending in ENDINGS] or long == f"{short.removesuffix('y')}ies"


def test_alike_names_are_found() -> None:
    """`place` and `places`, `plan` and `plain`, `record` and `recording`, `entry` and `entries` are alike."""
    for pair in (("place", "places"), ("plan", "plain"), ("log", "lag")):
        assert differ_by_a_letter(*pair)
    for pair in (("record", "recording"), ("entry", "entries"), ("box", "boxes")):
        assert share_stem(*pair)
    assert not differ_by_a_letter("svg", "png")
