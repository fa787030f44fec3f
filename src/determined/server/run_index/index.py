"""The index of all runs: brought up to date when it is asked, by whichever thread asks."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from determined.client._session import Session
from determined.errors import DeterminedError
from determined.server.answers.tables import Kind, TableQuestion
from determined.server.run_index import answer, condition, newest, selection
from determined.server.run_index.column import Whole
from determined.server.run_index.runs import AT_ONCE, Runs
from determined.server.run_index.view import View
from determined.store.messages import now
from determined.store.overview import changes

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.database.connection import Store

SERVER_SECONDS = 0.5  # a database server is asked so often at most
OWED_SECONDS = 2.0  # while runs report: an edit that hides behind their rows is seen this late
OWED_SHARE = 5  # looking at everything takes at most this part of the time
FIRST_LOOK = 200  # runs whose keys are known at once


class RunIndex:
    """Answers questions about all runs of a store. Threads may share it.

    At first the plain columns of all runs are read, which takes a moment; their documents (hyperparameters, metric
    summaries, metadata) follow in `load`, or when a question needs them. Later only what changed is read.

    Args:
        session: The store.
        pause: Called now and then while everything is read in the background; returns when that may go on, at once if
            what it is given returns True.

    Example::

        index = RunIndex(session)
        index.rows("experiments", TableQuestion(columns=["run.name", "hparams.lr"], sort=["hparams.lr"]))
    """

    def __init__(self, session: Session, pause: Callable[[Callable[[], bool]], None] = lambda _: None) -> None:
        self._session = session
        self._pause = pause
        self._lock = threading.RLock()
        self._runs = Runs()
        self._store: Store | None = None
        self._store_id = ""
        self._mark: object = None
        self._seen: changes.Marks | None = None
        self._looked_at = self._checked_at = float("-inf")
        self._check_seconds = 0.0
        self._is_owed = self._is_edited = False
        self._is_loaded = False
        self._is_ready = False  # all plain columns were read
        self._askers: set[object] = set()
        self._hasty: set[object] = set()
        self._is_closed = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def columns(self, kind: Kind, project_id: int | None = None, experiment_id: int | None = None) -> dict[str, Any]:
        """Return the columns that a table can show; only those of the newest runs while documents are being read."""
        if not self._is_ready and (found := self._hastily(lambda: newest.columns(self._session, kind))) is not None:
            return found
        with self._asking():
            view = self._view(kind)
            if not self._is_loaded:
                self._read_documents(self._runs.unread(FIRST_LOOK))
                view = self._view(kind)
                self.start()
            return {"columns": answer.columns(view, project_id, experiment_id), "is_rough": not self._is_loaded}

    def rows(self, kind: Kind, question: TableQuestion) -> dict[str, Any]:
        """Return a page of rows.

        Raises:
            InvalidValue: The question names a column that there is not, or compares what cannot be compared.
        """
        if not self._is_ready and newest.can_answer(question):
            found = self._hastily(lambda: newest.rows(self._session, kind, question))
            if found is not None:
                return found
        named = [key.removeprefix("-") for key in question.sort]
        named += [each.column for each in condition.conditions(question.filter)] if question.filter else []
        named += [question.group_by] if question.group_by else []
        if not all(key.startswith("run.") for key in named):
            of = question.experiment_id if kind == "trials" else None
            if of is None or not self._load_trials(of, named):
                self.load()
        with self._asking():
            view = self._view(kind)
            rows = selection.ordered(view, selection.selected(view, question), question.sort, question.group_by)
            is_rough = any(not key.startswith("run.") for key in question.columns) and self._is_unread(view, rows)
            if is_rough:
                wanted = {ident for ident in view.trial_ids()[answer.page_of(rows, question)].tolist() if ident}
                self._read_documents(sorted(wanted))
                view = View(self._runs, kind, now().timestamp())
                self.start()
            return answer.table(view, rows, question, is_rough=is_rough)

    def trial_states(self, experiment_ids: list[int]) -> dict[int, dict[str, int]]:
        """Return how many trials of each of these experiments are in each state."""
        with self._asking():
            view = self._view("trials")
            owners = view.experiment_ids()
            rows = {ident: (owners == ident).nonzero()[0] for ident in experiment_ids}
            states = condition.required(view, "run.state")
            return {ident: collections.Counter(states.cells(found)) for ident, found in rows.items()}

    def load(self) -> None:
        """Read all documents that were not read yet, some at a time, so that others can ask meanwhile."""
        with self._waiting():
            while not self._load_some(AT_ONCE):
                pass

    def _load_trials(self, experiment_id: int, keys: list[str]) -> bool:
        """Read the documents of one experiment's trials; return whether all these columns are there then.

        One may be missing while the documents of other trials are: of too many keys not all have columns meanwhile.
        """
        with self._waiting():
            while True:
                with self._lock:
                    view = self._view("trials")
                    if not (some := self._runs.unread(AT_ONCE, experiment_id)):
                        return all(view.column(key) is not None for key in keys)
                    self._read_documents(some)

    def load_quietly(self) -> None:
        """The same, behind everybody who asks something: two threads that compute make each other slow."""
        while not self._load_some(AT_ONCE // 5):
            while self._askers and not self._is_closed:
                time.sleep(0.002)
            self._pause(self._is_needed)

    def start(self) -> None:
        """Read everything in a thread, unless that was done or is being done."""
        with self._starting:
            if not (self._is_loaded or self._is_closed or (self._thread is not None and self._thread.is_alive())):
                self._thread = threading.Thread(target=self._load_unless_lost, name="det-ui-index", daemon=True)
                self._thread.start()

    def _load_unless_lost(self) -> None:
        with contextlib.suppress(DeterminedError):  # whoever asks is told, and it is tried again
            self.load_quietly()

    def _load_some(self, most: int) -> bool:
        """Read some documents; return whether all were read."""
        with self._lock:
            if not (self._is_loaded or self._is_closed):
                self._refresh()
                if some := self._runs.unread(most):
                    self._read_documents(some)
                else:
                    self._is_loaded = not self._runs.settle()
            return self._is_loaded or self._is_closed

    def searched(self, kind: Kind, ids: list[int]) -> dict[int, tuple[int, str]]:
        """Return the trial that stands for each of these rows, and the metric that its experiment searches for."""
        with self._asking():
            view = self._view(kind)
            rows = selection.selected(view, TableQuestion(columns=[], ids=ids, archived=True))
            trials, metrics = view.trial_ids()[rows].tolist(), view.hidden("searcher_metric").cells(rows)
            several = zip(view.rows.ids[rows].tolist(), trials, metrics, strict=True)
            return {ident: (trial, metric) for ident, trial, metric in several if trial and metric}

    def tell_edit(self) -> None:
        """Note that this server has changed something itself: the next question looks at everything."""
        self._is_edited = True

    def close(self) -> None:
        """Give back the connection. No questions may follow."""
        with self._starting:
            self._is_closed = True
        if self._thread is not None:
            self._thread.join(timeout=1.0)  # one that hangs in a lost connection ends with the process
        with self._lock:
            if self._store is not None:
                self._store.close()

    def _hastily(self, ask: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        """Answer while everything is being read for the first time, without waiting for that."""
        asker = object()
        self._hasty.add(asker)
        try:
            return ask()
        finally:
            self._hasty.discard(asker)
            self.start()

    def _rest(self) -> None:
        """Let those go first who cannot wait until everything was read."""
        while self._hasty and not self._is_closed:
            time.sleep(0.002)
        self._pause(self._is_needed)

    def _is_needed(self) -> bool:
        """Return whether somebody waits until everything was read, or all is over."""
        return bool(self._askers) or self._is_closed

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        with self._waiting(), self._lock:
            yield

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        asker = object()
        self._askers.add(asker)
        try:
            yield
        finally:
            self._askers.discard(asker)

    def _is_unread(self, view: View, rows: Whole) -> bool:
        """Return whether the documents of any of these rows were not read yet."""
        return not self._is_loaded and not self._runs.have_read(view.trial_ids()[rows].tolist())

    def _view(self, kind: Kind) -> View:
        self._refresh()
        return View(self._runs, kind, now().timestamp())

    def _read_documents(self, ids: list[int]) -> None:
        if ids:
            with self._session.read() as conn:
                self._runs.read_documents(conn, ids)

    def _refresh(self) -> None:
        """Read what changed since the last time."""
        store, moment = self._opened(), time.monotonic()
        if not store.is_sqlite and not self._is_edited and moment - self._looked_at < SERVER_SECONDS:
            return
        mark = store.change_mark()
        if store.id != self._store_id:  # at first, or when another store has its place
            self._store_id, self._seen, self._runs, self._is_loaded = store.id, None, Runs(), False
            self._is_ready = False
        elif mark == self._mark and not self._is_edited and not self._is_due(moment):
            return
        self._is_owed = self._is_owed or mark != self._mark
        with self._session.read() as conn:
            self._read(conn, moment)
        self._mark, self._looked_at = mark, moment

    def _is_due(self, moment: float) -> bool:
        """Return whether to look for edits, which leave no new rows; they may hide behind what does."""
        return self._is_owed and moment - self._checked_at > max(OWED_SECONDS, OWED_SHARE * self._check_seconds)

    def _read(self, conn: sa.Connection, moment: float) -> None:
        if self._seen is None:
            seen, change = changes.marks(conn), changes.Change()
        else:
            seen, change = changes.since(conn, self._seen)
        if self._seen is None or self._is_edited or self._is_due(moment):
            self._is_edited = self._is_owed = False
            began = time.thread_time()
            self._runs.read_all(conn, self._rest)
            if self._is_loaded:
                self._runs.read_documents(conn, self._runs.unread())
            self._checked_at = time.monotonic()
            self._check_seconds = time.thread_time() - began
        else:
            self._runs.read_some(conn, change.experiments, change.trials)
        self._seen, self._is_ready = seen, True

    def _opened(self) -> Store:
        """Return a connection of our own: its marks mean nothing on another one."""
        if self._store is None:
            from determined.store.database.connection import open_store

            place = self._session.store.place
            self._store = open_store(place.address, create=False)
        return self._store
