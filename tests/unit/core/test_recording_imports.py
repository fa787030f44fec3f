"""The files of `core/recording` import each other in one direction."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import determined.core.recording as room
from tests.unit.test_rooms import imports


def test_no_import_cycle() -> None:
    """No file of the recording room imports, directly or through others, a file that imports it. Imports inside
    functions and those only for type checkers count too."""
    files = {f"{room.__name__}.{path.stem}": path for path in Path(room.__path__[0]).glob("*.py")}
    graph = {
        module: {other for name in imports(ast.parse(path.read_text())) for other in files if _is_in(name, other)}
        for module, path in files.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the files


def _is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")
