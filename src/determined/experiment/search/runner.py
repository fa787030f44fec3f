"""A search that is driven from outside and survives crashes: save first, then apply, and never apply twice.

What starts the trials is not here: events and answers go through an `Exchange`, which in real life is the store.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from determined import errors
from determined.experiment.hparams import Space
from determined.experiment.search import methods, older
from determined.experiment.search.base import Answer, Event, SearchMethod
from determined.experiment.search.outside import MARK
from determined.experiment.search.searcher import Searcher

if TYPE_CHECKING:
    from determined.store.database.connection import Store

logger = logging.getLogger("determined.searcher")
FILE = "search.json"
EXPERIMENT = "experiment.json"
LOCK = "lock"


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
    """Runs a search method in this process: it decides here, and its trials run as those of any experiment.

    Args:
        search_method: The method, of `determined.searcher` or of `determined.experiment.search.base`.
        searcher_dir: Where the search is saved, so that the same call goes on after a crash; None saves nothing.

    Example::

        LocalSearchRunner(MySearchMethod(), searcher_dir="search").run("experiment.yaml", model_dir="model")
    """

    def __init__(
        self, search_method: older.SearchMethod | SearchMethod, searcher_dir: os.PathLike[str] | str | None = None
    ) -> None:
        self.search_method = search_method
        self.searcher_dir = None if searcher_dir is None else Path(searcher_dir)

    def run(
        self,
        exp_config: Mapping[str, Any] | str | os.PathLike[str],
        model_dir: str | os.PathLike[str] | None = None,
        includes: Sequence[str | os.PathLike[str]] | None = None,
    ) -> int:
        """Submit an experiment, or find the one that a crash left, and search until it has ended.

        Args:
            exp_config: The experiment file, or its content; its `searcher` has the `name: custom`.
            model_dir: The directory of the trials' code.
            includes: More files and directories for the trials.

        Returns:
            The experiment's id.

        Raises:
            ConfigError: The experiment cannot run; nothing was created.
            SearchError: Another runner uses `searcher_dir`.
        """
        from determined.experiment.search.exchange import StoreExchange
        from determined.store.database.connection import open_store

        methods.adopt(self.search_method)  # what is no search method is refused before anything is created
        opened = open_store()
        try:
            with _alone(self.searcher_dir):
                experiment_id = self._experiment(opened, exp_config, model_dir, tuple(includes or ()))
                exchange = StoreExchange(opened, experiment_id)
                try:
                    self.run_with(exchange, *exchange.search())
                except BaseException:
                    again = "run() again goes on with it" if self.searcher_dir else "it was not saved"
                    logger.warning(
                        "The search of experiment %d stopped before its end (%s). To end it: det experiment cancel %d",
                        *(experiment_id, again, experiment_id),
                    )
                    raise
                exchange.wait_for_end()
                return experiment_id
        finally:
            opened.close()

    def _experiment(self, opened: Store, config: Any, model_dir: Any, includes: Sequence[Any]) -> int:
        """Return the experiment of this search: the one that was saved, or a new one."""
        from determined.experiment.search.exchange import find

        saved = read_saved(self.searcher_dir, EXPERIMENT) or {}
        if "experiment_id" in saved:
            return int(saved["experiment_id"])
        name = saved.get(MARK) or str(uuid.uuid4())
        save(self.searcher_dir, EXPERIMENT, {MARK: name})  # before submitting: a crash in between loses no experiment
        experiment_id = find(opened, name) if saved else None
        if experiment_id is None:
            experiment_id = _submit(opened, name, config, model_dir, includes)
        save(self.searcher_dir, EXPERIMENT, {MARK: name, "experiment_id": experiment_id})
        return experiment_id

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


def _submit(opened: Store, runner: str, config: Any, model_dir: Any, includes: Sequence[Any]) -> int:
    """Submit an experiment that is driven by this runner."""
    from determined.experiment.submission.submit import SubmitRequest, read_config, submit

    file = read_config(config)
    named = (file.values.get("searcher") or {}).get("name")
    if named != "custom":
        raise errors.ConfigError(
            f"searcher.name is {named!r}, and a search that runs in this process is custom. "
            "Write searcher: {name: custom, metric: ...}."
        )
    settings = (f"searcher.{MARK}={runner}",)
    made = submit(opened, SubmitRequest(file, _owner(), settings, directory=model_dir, includes=includes))
    for sentence in made.warnings:
        logger.warning("Experiment %d: %s", made.experiment_id, sentence)
    return made.experiment_id


def _owner() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without that user
        return "unknown"


@contextlib.contextmanager
def _alone(directory: Path | None) -> Iterator[None]:
    """Let no second runner use the directory; a process that dies lets go of it."""
    if directory is None or os.name != "posix":
        yield
        return
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise errors.SearchError(
                f"Another process runs the search in {directory}. Wait for it, or use another searcher_dir."
            ) from None
        yield


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
