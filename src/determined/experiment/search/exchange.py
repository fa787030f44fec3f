"""The way between a search in this process and its experiment: the controller writes events, the search answers.

Both lie in the store, so neither process has to be up for the other to go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from determined import errors, store
from determined.experiment import hparams
from determined.experiment.hparams import Space
from determined.experiment.search import base, outside
from determined.experiment.search.base import Answer, Event

if TYPE_CHECKING:
    from determined.store.database.connection import Store

TOLD = "SEARCH"
"""The kind of the events that tell a search what happened: `{"number": n, "event": ...}`."""

ANSWER = "OPERATIONS"
"""The kind of the pending events that answer them: a `base.Answer`."""

POLL_SECONDS = 0.2
WATCH_SECONDS = 5.0  # between two looks at whether a controller is alive


class StoreExchange:
    """Events of one experiment out of the store, answers into it. See `runner.Exchange`.

    Args:
        opened: The store.
        experiment_id: An experiment whose search is decided outside.
    """

    def __init__(self, opened: Store, experiment_id: int) -> None:
        self._store = opened
        self._experiment_id = experiment_id
        self._waiting: deque[tuple[int, Event]] = deque()
        self._last_row = 0
        self._progress: float | None = None
        self._watched_at = float("-inf")

    def search(self) -> tuple[dict[str, Any], Space, int]:
        """Return what the search is: its `searcher` section, the hyperparameters, and the seed."""
        with self._store.read() as conn:
            row = store.experiments.get(conn, self._experiment_id)
        config = row.config or {}
        if not outside.is_outside(config.get("searcher") or {}):
            raise errors.SearchError(
                f"Experiment {row.id} is not driven from outside: its searcher is {config.get('searcher')!r}."
            )
        space, _ = hparams.parse(config.get("hyperparameters"))
        return dict(config["searcher"]), space, int((config.get("reproducibility") or {}).get("experiment_seed") or 0)

    def apply(self, answer: Answer) -> None:
        """Store the answer for the controller, which takes each of them once. One that changes nothing is left out."""
        if not answer.actions and not answer.warnings and answer.progress == self._progress:
            return
        from determined.store.control import pending

        with self._store.write() as conn:
            pending.append(conn, self._experiment_id, ANSWER, answer.to_json())
        self._progress = answer.progress
        self._watch(now=True)

    def next_event(self, after: int) -> Event | None:
        """Wait for event number `after + 1`; None when the experiment is over and there are no more."""
        while True:
            while self._waiting:
                number, event = self._waiting.popleft()
                if number > after:
                    return event
            is_over = self._is_over()  # before looking: what is written with its end is read then
            self._read()
            if not self._waiting:
                if is_over:
                    return None
                self._watch()
                time.sleep(POLL_SECONDS)

    def wait_for_end(self) -> None:
        """Wait until the experiment has ended."""
        while not self._is_over():
            self._watch()
            time.sleep(POLL_SECONDS)

    def _read(self) -> None:
        with self._store.read() as conn:
            found = store.events.of_experiment(conn, self._experiment_id, after_id=self._last_row, kinds=(TOLD,))
        for row in found:
            self._last_row = row.id
            self._waiting.append((int(row.body["number"]), base.event_from_json(row.body["event"])))

    def _is_over(self) -> bool:
        with self._store.read() as conn:
            return store.experiments.get(conn, self._experiment_id).state in store.experiments.TERMINAL

    def _watch(self, *, now: bool = False) -> None:
        """See to it that a controller runs: now, or now and then."""
        from determined.experiment.controller import start

        if now or time.monotonic() - self._watched_at > WATCH_SECONDS:
            start.ensure(self._store)
            self._watched_at = time.monotonic()


def find(opened: Store, runner: str) -> int | None:
    """Return the experiment that belongs to this runner, if there is one."""
    with opened.read() as conn:
        managed = store.experiments.ExperimentFilter(unmanaged=False)
        for row in store.experiments.find(conn, managed, descending=True):
            config: Mapping[str, Any] = store.experiments.get(conn, row.id).config or {}
            if (config.get("searcher") or {}).get(outside.MARK) == runner:
                return row.id
    return None
