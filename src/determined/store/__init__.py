"""Rows: the meeting point of training and platform. One module per noun, over transactions of `database.open_store`.

The words that training says are in `messages`, which needs no SQL: the others load when one of them is first used.
"""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.store import attempts, checkpoints, events, experiments, log_pages, logs  # isort: skip
    from determined.store import metrics, models, overview, trials, upkeep, workspaces  # isort: skip

__all__ = [
    "attempts", "checkpoints", "events", "experiments", "log_pages", "logs", "metrics", "models", "overview",
    "trials", "upkeep", "workspaces",
]  # fmt: skip
__getattr__, __dir__, _ = _lazy.exports(__name__, rooms=__all__)
