"""Search methods in the words of releases before 0.38. New ones: `determined.experiment.search.base.SearchMethod`."""

from determined.experiment.search.base import ExitedReason
from determined.experiment.search.older import (
    Close,
    Create,
    Operation,
    Progress,
    SearcherState,
    SearchMethod,
    Shutdown,
    ValidateAfter,
)
from determined.experiment.search.runner import LocalSearchRunner

__all__ = [
    "Close",
    "Create",
    "ExitedReason",
    "LocalSearchRunner",
    "Operation",
    "Progress",
    "SearchMethod",
    "SearcherState",
    "Shutdown",
    "ValidateAfter",
]
