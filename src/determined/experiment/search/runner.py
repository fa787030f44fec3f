"""A search that is driven from outside and survives crashes: save first, then apply, and never apply twice.

What starts the experiment and its trials is not here: it comes in as an `Exchange`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from determined import errors
from determined.experiment.hparams import Space
from determined.experiment.search import base, methods, older
from determined.experiment.search.base import Action, Event, SearchMethod
from determined.experiment.search.searcher import Searcher

FILE = "search.json"


class Exchange(Protocol):
    """Where events come from, and where actions go. Events are numbered from 1."""

    def applied_until(self) -> int:
        """Return the number of the last event whose actions were applied; 0 before the first."""

    def apply(self, event_number: int, actions: Sequence[Action]) -> None:
        """Apply the actions of one event: all of them, and remember that, or none."""

    def next_event(self, after: int) -> Event | None:
        """Wait for event number `after + 1`; None when there will be no more."""


def drive(make: Callable[[Mapping[str, Any] | None], Searcher], exchange: Exchange, directory: Path | None) -> Searcher:
    """Run a search to its end, or on from where a crash left it.

    Before the actions of an event are applied, they are saved together with the search that decided them. After a crash
    the saved search goes on: actions that were saved but not applied are applied, no others are.

    Args:
        make: Makes the searcher, from a snapshot or, given None, a new one.
        exchange: Events in, actions out.
        directory: Where to save; None saves nothing.

    Returns:
        The searcher, when it is over or there are no more events.
    """
    saved = _load(directory)
    searcher = make(saved and saved["searcher"])
    number = 0
    if saved is not None:
        number = saved["event"]
        if exchange.applied_until() < number:
            exchange.apply(number, [base.action_from_json(row) for row in saved["actions"]])
    while not searcher.is_over and (event := exchange.next_event(number)) is not None:
        number += 1
        actions = searcher.handle(event)
        _save(
            directory, {"event": number, "searcher": searcher.snapshot(), "actions": list(map(base.to_json, actions))}
        )
        exchange.apply(number, actions)
    return searcher


class LocalSearchRunner:
    """Runs a search method of releases before 0.38 in this process.

    Args:
        search_method: The method.
        searcher_dir: Where the search is saved, to go on after a crash; None saves nothing.
    """

    def __init__(
        self, search_method: older.SearchMethod | SearchMethod, searcher_dir: os.PathLike[str] | str | None = None
    ) -> None:
        self.search_method = search_method
        self.searcher_dir = None if searcher_dir is None else Path(searcher_dir)

    def run(
        self,
        exp_config: Mapping[str, Any] | str,  # noqa: ARG002
        model_dir: str | None = None,  # noqa: ARG002
        includes: Sequence[str] | None = None,  # noqa: ARG002
    ) -> int:
        """Submit an experiment and search. Not possible yet: this release has nothing to submit to.

        Raises:
            SearchError: Always, in this release.
        """
        raise errors.SearchError(
            "LocalSearchRunner.run() cannot submit experiments yet. Name the class in the configuration instead: "
            f'searcher: {{name: custom, method: "module:{type(self.search_method).__name__}", metric: ...}}.'
        )

    def run_with(self, exchange: Exchange, searcher: Mapping[str, Any], space: Space, seed: int = 0) -> Searcher:
        """Search over an exchange; saved under `searcher_dir`, so that the same call goes on after a crash.

        Args:
            exchange: Events in, actions out.
            searcher: The `searcher` section, of `name: custom`.
            space: The hyperparameters.
            seed: The experiment's seed.
        """
        method = methods.adopt(self.search_method, searcher.get("unit"))

        def make(snapshot: Mapping[str, Any] | None) -> Searcher:
            if snapshot is None:
                return Searcher(searcher, space, seed, method)
            return Searcher.restore(snapshot, searcher, space, method)

        return drive(make, exchange, self.searcher_dir)


def _load(directory: Path | None) -> dict[str, Any] | None:
    if directory is None or not (directory / FILE).exists():
        return None
    saved: dict[str, Any] = json.loads((directory / FILE).read_text())
    return saved


def _save(directory: Path | None, state: Mapping[str, Any]) -> None:
    """Replace the saved state whole: a crash leaves the old one or the new one."""
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{FILE}.new"
    with fresh.open("w") as file:
        json.dump(state, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / FILE)
