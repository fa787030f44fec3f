"""Deferred exports: a package says its names up front and imports a module when one of them is first used."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from determined import _left_out


def exports(
    package: str,
    *,
    rooms: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    older: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose contents load on first use.

    Args:
        package: The package's `__name__`.
        rooms: Submodules that are themselves public: `package.room` imports it.
        names: Submodule -> its public names, with blanks between them; `other=name` exports a name as `other`.
        older: The same for names that older code uses and nobody is promised: they are not in `__all__`.

    Example::

        __getattr__, __dir__, __all__ = _lazy.exports(__name__, rooms=("core",), names={"_context": "Context init"})
    """
    public = _origins(names or {})
    origin = public | _origins(older or {})

    def load(name: str) -> Any:
        if name in origin:
            module, known_as = origin[name]
            value = getattr(_import(f"{package}.{module}"), known_as)
        elif name in rooms:
            value = _import(f"{package}.{name}")
        elif (known := f"{package}.{name}") in _left_out.NAMES:
            _left_out.refuse(known, _left_out.NAMES[known])
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)  # the next use costs nothing
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *rooms, *origin})

    return load, listing, sorted({*rooms, *public})


def _origins(menu: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the submodule of each exported name, and its name there."""
    words = [(module, word.partition("=")) for module, listed in menu.items() for word in listed.split()]
    return {name: (module, known_as or name) for module, (name, _, known_as) in words}


def _import(module: str) -> ModuleType:
    """Import a module without a garbage collection on the way: what an import makes is there to stay.

    After `import torch` one full collection looks at half a million objects, which takes longer than all our imports.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if is_collecting:
            gc.enable()
