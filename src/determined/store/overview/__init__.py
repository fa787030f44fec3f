"""What runs now, read with few and small questions: trials that changed, attempts that hold slots, the queue."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.store.overview import running

__all__ = ["running"]
__getattr__, __dir__, _ = _lazy.exports(__name__, rooms=__all__)
