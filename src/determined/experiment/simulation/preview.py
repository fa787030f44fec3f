"""What a search will do, before it does it: how many trials, trained for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from determined.experiment.hparams import Space
from determined.experiment.search.rungs import brackets, divisor_of, keep_count, rung_units

TO_COMPLETION = "train to completion"


def preview(searcher: Mapping[str, Any], space: Space) -> list[tuple[int, str]]:
    """Return how many trials train how long, as rows of (count, text); ASHA rows ascend by training time.

    For halving searches this is what trials of random quality would give; equal or improving metrics stop fewer.
    A custom search decides as it goes: it has no rows.

    Args:
        searcher: The `searcher` section, checked, with defaults filled in.
        space: The hyperparameters; a grid needs their counts.

    Example::

        preview({"name": "random", "metric": "loss", "max_trials": 8}, Space())  # [(8, "train to completion")]
    """
    name = searcher["name"]
    if name == "single":
        return [(1, TO_COMPLETION)]
    if name == "grid":
        return [(space.grid().size, TO_COMPLETION)]
    if name == "custom":
        return []
    if name == "random" or (name == "optuna" and searcher.get("num_rungs") is None):
        return [(int(searcher["max_trials"]), TO_COMPLETION)]
    rows = sorted(halving_counts(searcher).items())
    return [(count, f"train for {units} {searcher['time_metric']}") for units, count in rows]


def halving_counts(searcher: Mapping[str, Any]) -> dict[int, int]:
    """At each rung's units, how many trials end there; equal units of different brackets are summed.

    Example::

        halving_counts({"name": "asha", "max_trials": 9, "max_time": 9, "num_rungs": 2, "divisor": 3})  # {3: 6, 9: 3}
    """
    divisor, ends = divisor_of(searcher), Counter[int]()
    for bracket in brackets(searcher):
        arriving = bracket.trials
        units = rung_units(bracket.rungs, divisor, int(searcher["max_time"]))
        for unit in units[:-1]:
            going_on = max(keep_count(arriving, divisor), 1)
            ends[unit] += arriving - going_on
            arriving = going_on
        ends[units[-1]] += arriving
    return {unit: count for unit, count in ends.items() if count}
