"""Import a checkpoint's own code, without mixing it up with the code of the same name that is already loaded."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_in_use = threading.Lock()
_NEVER_HIDDEN = {"__main__", "determined", *sys.builtin_module_names}


@contextlib.contextmanager
def import_from_path(path: os.PathLike[str] | str) -> Iterator[None]:
    """Let imports inside the block find modules in `path` first.

    Modules of the same name that are loaded already are hidden inside the block and restored afterwards; no bytecode is
    written into `path`. Modules imported from `path` leave `sys.modules` with the block; references to them still work.

    Raises:
        RuntimeError: The block is nested, or entered from a second thread while another one is inside.

    Example::

        with determined.import_from_path(checkpoint_dir / "code"):
            import model_def
        model = model_def.Net()
    """
    root = Path(path).resolve()
    if not root.is_dir():
        raise NotADirectoryError(
            f"import_from_path: {root} is not a directory. Pass the directory that holds the code."
        )
    if not _in_use.acquire(blocking=False):
        raise RuntimeError(
            "import_from_path() is already in use in this process. It changes what every import finds, so blocks "
            "cannot be nested or run in two threads at once: finish one before the next."
        )
    try:
        hidden = _hide(_top_level_names(root))
        wrote_bytecode = not sys.dont_write_bytecode
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.dont_write_bytecode = not wrote_bytecode
            with contextlib.suppress(ValueError):  # the block may have changed sys.path itself
                sys.path.remove(str(root))
            for name in [n for n, module in sys.modules.items() if _lies_in(module, root)]:
                del sys.modules[name]
            sys.modules.update(hidden)
            importlib.invalidate_caches()
    finally:
        _in_use.release()


def _top_level_names(root: Path) -> set[str]:
    """Return the names that `import NAME` could find in `root`."""
    names = set()
    for entry in root.iterdir():
        if entry.is_dir():
            if next(entry.glob("*.py"), None):
                names.add(entry.name)
        elif entry.name.endswith(tuple(importlib.machinery.all_suffixes())):
            names.add(entry.name.split(".")[0])
    return names - _NEVER_HIDDEN


def _hide(names: set[str]) -> dict[str, ModuleType]:
    hidden = {name: module for name, module in sys.modules.items() if name.split(".")[0] in names}
    for name in hidden:
        del sys.modules[name]
    return hidden


def _lies_in(module: ModuleType, root: Path) -> bool:
    spec = getattr(module, "__spec__", None)
    places = list(getattr(spec, "submodule_search_locations", None) or [])
    if origin := getattr(module, "__file__", None):
        places.append(origin)
    return any(root in Path(place).resolve().parents or Path(place).resolve() == root for place in places)
