"""Metric reports as rows: checked, written, summarised, and read as curves."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:
    from determined.store.metrics import curves, drawn, metric_reports, sampled, steps

__all__ = ["curves", "drawn", "metric_reports", "sampled", "steps"]
__getattr__, __dir__, _ = _lazy.exports(__name__, rooms=__all__)
