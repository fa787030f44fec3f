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
    package: str, *, rooms: Sequence[str] = (), names: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose contents load on first use.

    Args:
        package: The package's `__name__`.
        rooms: Submodules that are themselves public: `package.room` imports it.
        names: Public name -> submodule that defines it, or `submodule:name` if it has another name there.

    Example::

        __getattr__, __dir__, __all__ = _lazy.exports(__name__, rooms=("core",), names={"init": "_context"})
    """
    origin = dict(names or {})
    public = sorted({*rooms, *origin})

    def load(name: str) -> Any:
        if name in origin:
            module, _, known_as = origin[name].partition(":")
            value = getattr(_import(f"{package}.{module}"), known_as or name)
        elif name in rooms:
            value = _import(f"{package}.{name}")
        elif (known := f"{package}.{name}") in _left_out.NAMES:
            _left_out.refuse(known, _left_out.NAMES[known])
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)  # the next use costs nothing
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public})

    return load, listing, public


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
