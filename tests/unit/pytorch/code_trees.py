"""Trees of code on a disk, and modules as if they had been imported from there."""

from __future__ import annotations

import types
from pathlib import Path


def fill(root: Path, *names: str) -> Path:
    """Make files whose content is their name."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def imported(root: Path, **files: str) -> dict[str, types.ModuleType]:
    """Modules by name, each with a file in `root`."""
    modules = {}
    for name, file in files.items():
        modules[name] = types.ModuleType(name)
        modules[name].__file__ = str(root / file)
    return modules
