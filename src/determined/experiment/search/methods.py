"""From the `searcher` section to the search method it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined import errors
from determined.experiment.hparams import Space
from determined.experiment.search.adaptive_asha import AdaptiveAsha
from determined.experiment.search.asha import halving
from determined.experiment.search.base import SearchMethod
from determined.experiment.search.grid import GridSearch
from determined.experiment.search.optuna import OptunaSearch
from determined.experiment.search.random import RandomSearch
from determined.experiment.search.single import SingleSearch

NAMES = ("single", "random", "grid", "async_halving", "asha", "adaptive_asha", "optuna", "custom")
"""What `searcher.name` may be; `asha` is another name of `async_halving`."""


def build(searcher: Mapping[str, Any], space: Space, custom: SearchMethod | None = None) -> SearchMethod:
    """The method that a checked `searcher` section names.

    Raises:
        SearchError: The name is unknown, or the search is custom and `custom` was not given.

    Example::

        build({"name": "random", "metric": "loss", "max_trials": 8}, Space())  # RandomSearch
    """
    name = searcher.get("name")
    if name == "custom":
        if custom is None:
            raise errors.SearchError("searcher.name is custom, but no method was given. Load it with custom.load().")
        return custom
    if name == "single":
        return SingleSearch()
    if name == "random":
        return RandomSearch(searcher)
    if name == "grid":
        return GridSearch(searcher, space)
    if name in ("async_halving", "asha"):
        return halving(searcher)
    if name == "adaptive_asha":
        return AdaptiveAsha(searcher)
    if name == "optuna":
        return OptunaSearch(searcher, space)
    raise errors.SearchError(f"searcher.name is {name!r}; expected one of {', '.join(NAMES)}.")
