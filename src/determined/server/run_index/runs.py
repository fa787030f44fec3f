"""All experiments and trials of a store, read once and then only where they changed."""

from __future__ import annotations

import datetime
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from determined import store
from determined.experiment.lifecycle import State, shown_restarts, shown_state
from determined.server.answers.tables import Kind
from determined.server.run_index.column import Whole
from determined.server.run_index.documents import Documents, Texts
from determined.server.run_index.rows import Rows
from determined.store.control import pending
from determined.store.overview import run_rows, running

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")
GOING = [state.value for state in State if not state.is_terminal]
AT_ONCE = 250
_EXPERIMENT = ("name", "state", "start_time", "end_time", "owner", "searcher", "searcher_metric", "description",
               "labels", "parent_id", "progress", "resource_pool", "checkpoint_count", "checkpoint_size", "external_id",
               "archived", "project", "project_id", "unmanaged", "smaller_is_better", "best_trial_id",
               "max_restarts")  # fmt: skip
_TRIAL = ("experiment_id", "state", "start_time", "end_time", "batches", "restarts", "seed", "progress", "best_metric",
          "latest_metric", "checkpoint_count", "checkpoint_size", "external_id")  # fmt: skip


class Runs:
    """What is known of all runs. `version` rises with whatever changes here."""

    def __init__(self) -> None:
        self.experiments = Rows(_EXPERIMENT)
        self.trials = Rows(_TRIAL)
        self.documents = Documents()
        self.version = 0
        self._going: tuple[set[int], set[int]] = (set(), set())  # experiments and trials that have not ended
        self._unread: set[int] = set()  # trials whose documents were not read yet
        self._derived: tuple[int, Whole, Whole] | None = None

    # Reading.

    def read_all(self, conn: sa.Connection, rest: Callable[[], object] = lambda: None) -> None:
        """Read every row, and look at every document that was read before; `rest` is called now and then."""
        gone = set(self.experiments.at)
        labels = run_rows.labels(conn)
        for page in _pages(run_rows.of_experiments(conn)):
            gone.difference_update(self._take_experiments(conn, page, labels))
            rest()
        self._remove_experiments(gone)
        gone = set(self.trials.at)
        for page in _pages(run_rows.of_trials(conn)):
            gone.difference_update(self._take_trials(conn, page))
            rest()
        self._remove_trials(gone)
        if self.documents.hashes:
            self._take_documents(pair for pair in self._texts(conn) if pair[0] in self.documents.hashes)

    def read_newest(self, conn: sa.Connection, kind: Kind, most: int, most_trials: int) -> bool:
        """Read only the newest rows of one table; return whether that was possible without many others."""
        if kind == "experiments":
            ids: list[int] = run_rows.newest_experiments(conn, most)
            counts = store.experiments.trial_counts(conn, ids)
            if sum(number for states in counts.values() for number in states.values()) > most_trials:
                return False
            several = list(run_rows.of_trials(conn, experiment_ids=ids))
        else:
            owners = run_rows.newest_trials(conn, most)
            ids = sorted(set(owners.values()))
            several = list(run_rows.of_trials(conn, ids=list(owners)))
        self._take_experiments(conn, list(run_rows.of_experiments(conn, ids=ids)), run_rows.labels(conn, ids))
        self._take_trials(conn, several)
        return True

    def read_some(self, conn: sa.Connection, experiments: Collection[int], trials: Collection[int]) -> None:
        """Read what has not ended, what had not when it was last read, and what is named."""
        asked, before = {*self._going[0], *experiments}, set(self.experiments.at)
        found = {row[0]: row for row in run_rows.of_experiments(conn, states=GOING)}
        found |= {row[0]: row for row in run_rows.of_experiments(conn, ids=sorted(asked - found.keys()))}
        self._take_experiments(conn, list(found.values()), run_rows.labels(conn, list(found)))
        self._remove_experiments((asked & before) - found.keys())

        asked = {*self._going[1], *trials}
        several = {row[0]: row for row in run_rows.of_trials(conn, states=GOING)}
        several |= {row[0]: row for row in run_rows.of_trials(conn, ids=sorted(asked - several.keys()))}
        several |= {row[0]: row for row in run_rows.of_trials(conn, experiment_ids=sorted(found.keys() - before))}
        taken = self._take_trials(conn, list(several.values()))
        self._remove_trials((asked & self.trials.at.keys()) - taken)
        self._take_documents(self._texts(conn, sorted(taken)))

    def read_documents(self, conn: sa.Connection, ids: Iterable[int]) -> None:
        """Read the documents of these trials."""
        self._take_documents(self._texts(conn, sorted(ids)))

    def unread(self, most: int | None = None, experiment_id: int | None = None) -> list[int]:
        """Return trials, of all or of one experiment, whose documents were not read yet, the newest first."""
        found = self._unread
        if experiment_id is not None:
            owners = self.trials.fields["experiment_id"].numbers(self.trials.size)
            found = found.intersection(self.trials.ids[owners == experiment_id].tolist())
        return heapq.nlargest(len(found) if most is None else most, found)

    def have_read(self, ids: Iterable[int]) -> bool:
        """Return whether the documents of all these trials were read."""
        return self._unread.isdisjoint(ids)

    def settle(self) -> bool:
        """Return whether all documents have to be read again, because there were too many keys."""
        if self.documents.settle():
            self._unread.update(self.trials.at)
        return bool(self._unread)

    def _texts(self, conn: sa.Connection, ids: list[int] | None = None) -> Iterable[tuple[int, Texts]]:
        for ident, hparams, summary, metadata in run_rows.documents(conn, ids):
            if (at := self.trials.at.get(ident)) is not None:
                yield at, (hparams or "{}", summary or "{}", metadata or "{}")

    def _take_documents(self, found: Iterable[tuple[int, Texts]]) -> None:
        for some in _pages(found):
            page = dict(some)
            self.version += self.documents.put(page, self.trials.size)
            self._unread.difference_update(self.trials.ids[list(page)].tolist())

    def _take_experiments(
        self, conn: sa.Connection, found: Sequence[run_rows.Row], labels: Mapping[int, tuple[str, ...]]
    ) -> set[int]:
        live: dict[int, Any] = dict(running.live_states(conn, [row[0] for row in found if row[1] == "ACTIVE"]))
        if any(row[1] == "PAUSED" for row in found):  # what was submitted and is not taken up yet looks as if paused
            live |= {event.experiment_id: ("SUBMITTED",) for event in pending.read(conn)}
        read = {row[0]: (tuple(row), labels.get(row[0]), tuple(live.get(row[0], ()))) for row in found}
        self._note(0, read, self.experiments.put(read, _experiment_columns))
        return set(read)

    def _take_trials(self, conn: sa.Connection, found: Sequence[run_rows.Row]) -> set[int]:
        launches = running.of_trials(conn, [row[0] for row in found if row[1] == "ACTIVE"])
        live = {ident: tuple(running.states(several)) for ident, several in launches.items()}
        known = self.experiments.fields["max_restarts"].numbers(self.experiments.size).tolist()
        most = [None if number != number else number for number in known]  # two NaNs are not the same to a hash
        at = self.experiments.at
        read = {row[0]: (tuple(row), most[at[row[2]]], live.get(row[0], ())) for row in found if row[2] in at}
        self._unread.update(read.keys() - self.trials.at.keys())
        self._note(1, read, self.trials.put(read, _trial_columns))
        return set(read)

    def _note(self, which: int, read: Mapping[int, tuple[run_rows.Row, Any, Any]], changed: Iterable[int]) -> None:
        going = self._going[which]
        for ident in changed:
            self.version += 1
            if read[ident][0][1] in GOING:
                going.add(ident)
            else:
                going.discard(ident)

    def _remove_experiments(self, ids: Iterable[int]) -> None:
        for ident in ids:
            owners = self.trials.fields["experiment_id"].numbers(self.trials.size)
            self._remove_trials(self.trials.ids[owners == ident].tolist())
            self._going[0].discard(ident)
            self.experiments.remove(ident)
            self.version += 1

    def _remove_trials(self, ids: Iterable[int]) -> None:
        for ident in ids:
            self._going[1].discard(ident)
            self._unread.discard(ident)
            self.documents.remove(self.trials.remove(ident))
            self.version += 1

    # What follows from it.

    @property
    def owners(self) -> Whole:
        """The position of each trial's experiment."""
        return self._relations()[0]

    @property
    def chosen(self) -> Whole:
        """The position of each experiment's best trial, or of its first where none is best; -1 without trials."""
        return self._relations()[1]

    def trial_counts(self) -> Whole:
        """Return how many trials each experiment has."""
        owners = self.owners[self.trials.is_there]
        return np.bincount(owners, minlength=self.experiments.size).astype(np.int64)

    def _relations(self) -> tuple[Whole, Whole]:
        if self._derived is None or self._derived[0] != self.version:
            trials, experiments = self.trials, self.experiments
            owners = experiments.positions(_whole(trials.fields["experiment_id"].numbers(trials.size)))
            chosen = np.full(experiments.size, -1, np.int64)
            last_first = np.argsort(-trials.ids, kind="stable")
            last_first = last_first[owners[last_first] >= 0]
            chosen[owners[last_first]] = last_first  # of several, the last one to be set stays: the first trial
            best = trials.positions(_whole(experiments.fields["best_trial_id"].numbers(experiments.size)))
            self._derived = (self.version, owners, np.where(best >= 0, best, chosen))
        return self._derived[1], self._derived[2]


def _experiment_columns(read: Sequence[tuple[run_rows.Row, Any, tuple[str, ...]]]) -> Sequence[Sequence[Any]]:
    rows, labels, live = zip(*read, strict=True)
    of = dict(zip(run_rows.EXPERIMENT, zip(*rows, strict=True), strict=True))
    made: dict[str, Sequence[Any]] = {
        "state": _states(of["state"], live),
        "start_time": _seconds(of["start_time"]),
        "end_time": _seconds(of["end_time"]),
        "description": [text or None for text in of["description"]],
        "labels": labels,
        "external_id": of["external_experiment_id"],
        **{name: list(map(bool, of[name])) for name in ("archived", "unmanaged", "smaller_is_better")},
    }
    return [made[name] if name in made else of[name] for name in _EXPERIMENT]


def _trial_columns(read: Sequence[tuple[run_rows.Row, float | None, tuple[str, ...]]]) -> Sequence[Sequence[Any]]:
    rows, most_restarts, live = zip(*read, strict=True)
    of = dict(zip(run_rows.TRIAL, zip(*rows, strict=True), strict=True))
    made: dict[str, Sequence[Any]] = {
        "state": _states(of["state"], live),
        "start_time": _seconds(of["start_time"]),
        "end_time": _seconds(of["end_time"]),
        "restarts": [
            number if most is None else shown_restarts(number, int(most))
            for number, most in zip(of["restarts"], most_restarts, strict=True)
        ],
        "batches": of["total_batches"],
        "best_metric": of["searcher_metric_value"],
        "latest_metric": of["latest_metric_value"],
        "external_id": of["external_trial_id"],
    }
    return [made[name] if name in made else of[name] for name in _TRIAL]


def _states(states: Iterable[str], live: Iterable[tuple[str, ...]]) -> list[str]:
    """Return states as people see them."""
    return [
        shown_state(State.ACTIVE, now) if state == "ACTIVE" or (state == "PAUSED" and now) else state
        for state, now in zip(states, live, strict=True)
    ]


def _pages(found: Iterable[T]) -> Iterator[list[T]]:
    some = iter(found)
    while page := list(itertools.islice(some, AT_ONCE)):
        yield page


def _whole(ids: Any) -> Whole:
    found: Whole = np.nan_to_num(ids, nan=0.0).astype(np.int64)
    return found


def _seconds(moments: Iterable[str | datetime.datetime | None]) -> list[float | None]:
    """Return times, read as the database keeps them."""
    made = (
        datetime.datetime.fromisoformat(moment[:-1] + "+00:00") if isinstance(moment, str) else moment
        for moment in moments
    )
    return [None if moment is None else moment.timestamp() for moment in made]
