"""Jupyter kernels: detect one, find the path of its notebook, and show a text that can be replaced.

IPython is not required: a process that has not imported it is no kernel.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _shell() -> Any:
    ipython: Any = sys.modules.get("IPython")
    try:
        shell = ipython.get_ipython()
    except AttributeError:  # not imported, or just now being imported
        return None
    return shell if getattr(shell, "kernel", None) is not None else None


def is_kernel() -> bool:
    """Return whether this process runs the cells of a notebook. IPython in a terminal does not."""
    return _shell() is not None


def notebook_path() -> str | None:
    """Return the absolute path of the notebook that this kernel runs; None if it is not known.

    VS Code sets a variable of the notebook, Jupyter sets `JPY_SESSION_NAME`, which holds a title in a console.
    """
    shell = _shell()
    if shell is None:
        return None
    for told in (shell.user_ns.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        if isinstance(told, str) and (told.endswith(".ipynb") or Path(told).is_file()):
            return os.path.abspath(told)  # noqa: PTH100 - links stay: two names of one file are two notebooks
    return None


def on_each_cell(begin: Callable[[], None]) -> Callable[[], None]:
    """Call `begin` before each cell from now on; return a function that ends that. No effect outside kernels."""
    shell = _shell()
    if shell is None:
        return lambda: None

    def call(*_: object) -> None:
        begin()

    shell.events.register("pre_run_cell", call)

    def end() -> None:
        with contextlib.suppress(ValueError):  # already unregistered
            shell.events.unregister("pre_run_cell", call)

    return end


def show_text(text: str) -> Callable[[str], None]:
    """Show a text in the output of the cell; return a function that replaces it, whatever was printed since."""
    display: Any = sys.modules["IPython"].display
    handle = display.display({"text/plain": text}, raw=True, display_id=True)

    def replace(text: str) -> None:
        handle.update({"text/plain": text}, raw=True)

    return replace
