"""Care of a whole store: checks, export and import, and removal of what is no longer kept."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:
    from determined.store.upkeep import checks, portable, removal, retention

__all__ = ["checks", "portable", "removal", "retention"]
__getattr__, __dir__, _ = _lazy.exports(__name__, rooms=__all__)
