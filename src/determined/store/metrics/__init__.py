"""Metric reports as rows: checked, written, summarised, and read as curves."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:
    from determined.store.metrics import curves, metric_reports

__all__ = ["curves", "metric_reports"]
__getattr__, __dir__, _ = _lazy.exports(__name__, rooms=__all__)
