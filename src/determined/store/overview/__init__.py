"""What runs now, read with few and small questions: what is new, attempts that hold slots, the queue."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.store.overview import changes, run_rows, running

__all__ = ["changes", "run_rows", "running"]
__getattr__, __dir__, _ = _lazy.exports(__name__, rooms=__all__)
