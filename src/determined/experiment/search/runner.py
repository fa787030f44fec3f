"""A search that is driven from outside and survives crashes: save first, then apply, and never apply twice.

What starts the experiment and its trials is not here: it comes in as an `Exchange`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from determined import errors
from determined.experiment.hparams import Space
from determined.experiment.search import methods, older
from determined.experiment.search.base import Answer, Event, SearchMethod
from determined.experiment.search.searcher import Searcher

logger = logging.getLogger("determined.searcher")
FILE = "search.json"


class Exchange(Protocol):
    """Where events come from, and where answers go. Events are numbered from 1."""

    def apply(self, answer: Answer) -> None:
        """Apply the actions of one event: all of them, or none. An answer that was applied before changes nothing."""

    def next_event(self, after: int) -> Event | None:
        """Wait for event number `after + 1`; None when there will be no more."""


def drive(make: Callable[[Mapping[str, Any] | None], Searcher], exchange: Exchange, directory: Path | None) -> Searcher:
    """Run a search to its end, or on from where a crash left it.

    Before the actions of an event are applied, they are saved together with the search that decided them. After a crash
    the saved search goes on: actions that were saved but not applied are applied, no others are.

    Args:
        make: Makes the searcher, from a snapshot or, given None, a new one.
        exchange: Events in, answers out.
        directory: Where to save; None saves nothing.

    Returns:
        The searcher, when it is over or there are no more events.
    """
    saved = read_saved(directory, FILE)
    searcher = make(saved and saved["searcher"])
    number = 0
    if saved is not None:
        answer = Answer.from_json(saved["answer"])
        number = answer.event
        exchange.apply(answer)
    while not searcher.is_over and (event := exchange.next_event(number)) is not None:
        number += 1
        actions = searcher.handle(event)
        answer = Answer(number, tuple(actions), _progress(searcher), tuple(searcher.warnings))
        save(directory, FILE, {"searcher": searcher.snapshot(), "answer": answer.to_json()})
        exchange.apply(answer)
    return searcher


def _progress(searcher: Searcher) -> float | None:
    try:
        return searcher.progress()
    except Exception as e:  # noqa: BLE001 - only shown, and no reason to end a search
        logger.debug("The search method does not know its progress: %s", e)
        return None


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
            exchange: Events in, answers out.
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


def read_saved(directory: Path | None, name: str) -> dict[str, Any] | None:
    """Return what `save` wrote; None if there is nothing."""
    if directory is None or not (directory / name).exists():
        return None
    saved: dict[str, Any] = json.loads((directory / name).read_text())
    return saved


def save(directory: Path | None, name: str, state: Mapping[str, Any]) -> None:
    """Replace a saved file whole: a crash leaves the old one or the new one."""
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{name}.new"
    with fresh.open("w") as file:
        json.dump(state, file)  # with NaN and infinity, if a method keeps them
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / name)
