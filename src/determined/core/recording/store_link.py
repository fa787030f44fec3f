"""The link to the store. SQL is loaded and used in background threads only; trouble with it never stops training."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from determined import artifacts, errors
from determined._home import keep_private, make_data_directory
from determined._left_out import ignored_master
from determined.core.ranks.connection import in_thread
from determined.core.recording.journal import Journal
from determined.core.recording.link import Attached, History, Link, NullLink
from determined.core.recording.run_description import Run, RunDescription
from determined.store.messages import CheckpointReport, FitReport, Report, Signal

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from determined.core.recording.run_rows import RecordedRun
    from determined.store.checkpoints import CheckpointRow
    from determined.store.database.connection import Store

logger = logging.getLogger("determined.core")

T = TypeVar("T")
ANSWER_SECONDS = 30.0
"""How long a resume waits for an answer of the store. To go on from the wrong checkpoint is worse."""
CHIEF_SECONDS = 5.0
"""How long the other ranks wait for the chief to have begun the run, before they try again later."""
RETRY_SECONDS = 0.3
BEAT_SECONDS = 20.0


def choose_link(run: Run, description: RunDescription, rank: int = 0) -> Link:
    """Return the link of this process: to the store, unless `DET_TRACKING=off`."""
    if os.environ.get("DET_TRACKING", "on").strip().lower() in ("off", "0", "false", "no"):
        return NullLink()
    if rank == 0 and (warning := ignored_master()):
        logger.warning("%s", warning)
    with contextlib.suppress(OSError):  # the link warns of it, and keeps trying
        directory = make_data_directory()
        if rank == 0:
            keep_private(directory)
    return StoreLink(run, description, rank)


_importing = threading.Lock()


def _before_fork() -> None:
    global _fork_waited
    # A fork in the middle of an import would leave the child with modules that are half there, for ever.
    _fork_waited = _importing.acquire(timeout=10)


def _after_fork() -> None:
    if _fork_waited:
        _importing.release()


_fork_waited = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class _StoreReplaced(Exception):
    """Another store is at the address of the one that the run was begun in."""


_PASSING = (errors.LinkUnavailable, errors.StoreDamaged, _StoreReplaced)
"""Trouble that `send` handles or its caller retries."""


class StoreLink(Link):
    """Records one run in the store.

    The store is opened with the first report. While that fails, or a transaction fails, the caller keeps the reports,
    and in the end the run's own directory does, from where the next run, of any script, delivers them.

    Args:
        run: The run's name and directories.
        description: What is recorded about it.
        rank: The chief (0) begins the run; the other ranks look for it by its name and add to it.
        place: The store, as `open_store` takes it.
    """

    listens = True

    def __init__(self, run: Run, description: RunDescription, rank: int = 0, place: str | None = None) -> None:
        self.place = "the store"
        self.is_managed = description.is_managed
        self._run = run
        self._description = description
        self._rank = rank
        self._store_place = place
        self._opening = threading.Lock()
        self._beginning = threading.Lock()
        self._store: Store | None = None
        self._store_id = ""  # of the store that the run was begun in
        self._recorded: RecordedRun | None = None
        self._best: float | None = None
        self._last_beat = float("-inf")
        self._logged: set[str] = set()  # kinds of refusal
        self._refused = 0
        self._has_retention = False  # fit() says how many checkpoints to keep
        self._is_over = False  # a newer attempt has taken over: nothing is recorded any more
        name = run.directory if rank == 0 else run.directory.with_name(f"{run.name}.{rank}")
        self._journal = Journal(name, description)

    # Reports.

    def send(self, reports: Sequence[Report]) -> None:
        if self._is_over:
            return
        try:
            self._send(reports)
        except (errors.StoreDamaged, _StoreReplaced) as changed:
            self._switch_store(changed)
            try:
                self._send(reports)
            except (errors.StoreDamaged, _StoreReplaced) as still:
                raise errors.LinkUnavailable(str(still)) from still

    def _switch_store(self, changed: Exception) -> None:
        """Go on in the store that is at the address now: a new one, after the damaged file there is moved aside."""
        from determined.store.database import damage
        from determined.store.database.location import find_place

        path = find_place(self._store_place).path
        is_damaged = isinstance(changed, errors.StoreDamaged) and path is not None
        with self._opening:
            store, self._store = self._store, None
            store_id, self._store_id, self._recorded = self._store_id, "", None
            try:
                # Before it is closed: SQLite would write its log back, over the file that is there now.
                known = store_id if store is not None and store.is_same_file else ""
                aside = damage.set_aside(path, known) if is_damaged and path is not None else None
            except OSError as failed:
                raise errors.LinkUnavailable(f"{changed} It cannot be set aside: {failed}") from failed
            finally:
                if store is not None:
                    store.close()
        if aside is not None:
            logger.warning(
                "The store %s is damaged (%s). It is kept as %s, with what was recorded so far; a new store is begun, "
                "and nothing that this run reports from now on is lost.", path, aside[1], aside[0].name,
            )  # fmt: skip
        elif not is_damaged:
            logger.warning("%s What this run reports from now on is recorded there, as a new experiment.", changed)

    def _send(self, reports: Sequence[Report]) -> None:
        store = self._open_store()
        self._begin_run(store)
        if not self._journal.is_empty:
            unsent = self._journal.unsent()
            self._write(store, unsent)
            self._journal.remove_unsent()
            self._clear_pending(unsent)
        self._write(store, reports)
        if self._clear_pending(reports):
            self._remove_checkpoints()

    def _clear_pending(self, reports: Sequence[Report]) -> bool:
        """Note that the store has these; return whether there is a checkpoint among them."""
        ids = [report.storage_id for report in reports if isinstance(report, CheckpointReport)]
        for storage_id in ids:
            self._journal.clear_pending(storage_id)
        return bool(ids)

    def keep(self, reports: Sequence[Report]) -> bool:
        try:
            self._journal.keep(reports)
        except OSError:
            return False
        return True

    def copy(self, reports: Sequence[Report], number: int) -> bool:
        if self._is_over:
            return True
        try:
            self._journal.copy(reports, number)
        except OSError as failed:
            logger.debug("Reports are not copied to the disk: %s", failed)
            return False
        return True

    def drop_copy(self, number: int) -> None:
        self._journal.drop_copy(number)

    def mark_pending(self, storage_id: str) -> None:
        if Path(storage_id).name != storage_id:
            return  # no id of ours, and no name for a file of ours
        try:
            self._journal.mark_pending(storage_id)
        except OSError as failed:
            logger.debug("Checkpoint %s is stored or deleted without a note: %s", storage_id, failed)

    def begin_fit(self, fit: FitReport) -> None:
        self._journal.fit = self._journal.fit or fit
        self._has_retention |= bool(fit.retention)

    def _write(self, store: Store, reports: Sequence[Report]) -> None:
        """Write all in one transaction; if one is refused, each in its own, so that the others arrive."""
        try:
            self._write_together(store, reports)
            return
        except _PASSING:
            raise
        except errors.StaleAttempt as stale:
            if self._is_strict:
                raise
            self._give_up(stale)
            return
        except Exception as refused:
            if len(reports) == 1:
                if self._is_strict:
                    raise
                self._log_refused(refused)
                return
        refusal: Exception | None = None
        for report in reports:
            if self._is_over:
                return
            try:
                self._write(store, [report])
            except _PASSING:
                raise
            except Exception as refused:  # noqa: BLE001 - raised below, once the others have arrived
                refusal = refusal or refused
        if refusal is not None:
            raise refusal

    def _write_together(self, store: Store, reports: Sequence[Report]) -> None:
        from determined.core.recording import run_rows
        from determined.store import attempts

        assert self._recorded is not None
        with store.write() as conn:
            self._check_same(store)
            recorded = self._recorded
            if self._rank != 0:
                recorded = run_rows.refresh(conn, self._run, recorded)
            recorded = run_rows.deliver(conn, self._run, self._description, recorded, reports)
            beats = time.monotonic() - self._last_beat > BEAT_SECONDS
            if beats and self._rank == 0:
                attempts.beat(conn, recorded.attempt)
        self._recorded = recorded
        if beats:
            self._last_beat = time.monotonic()

    def _check_same(self, store: Store) -> None:
        """Refuse to write to another store: this run's ids there are somebody else's."""
        if store.id != self._store_id:
            raise _StoreReplaced(f"The store {store.place} was replaced by another while in use.")

    @property
    def _is_strict(self) -> bool:
        """Whether a refusal of the store is an error of the training process. In a plain run it is a warning."""
        return self._description.is_detached or (self._recorded is not None and self._recorded.is_managed)

    def _log_refused(self, refused: Exception) -> None:
        kind = type(refused).__name__
        self._refused += 1
        level = logging.DEBUG if kind in self._logged else logging.WARNING
        self._logged.add(kind)
        unexpected = not isinstance(refused, errors.DeterminedError)
        logger.log(level, "A report is not recorded: %s", f"{kind}: {refused}" if unexpected else refused)
        if unexpected:
            logger.debug("Where that came from:", exc_info=refused)

    def _give_up(self, stale: Exception) -> None:
        self._is_over = True
        logger.warning("This run is no longer recorded: %s", stale)

    # Opening.

    def _open_store(self) -> Store:
        """Return the store, opened now unless it is. Every failure may pass, so the caller tries again."""
        with self._opening:
            if self._store is None:
                try:
                    with _importing:
                        from determined.core.recording import recovery
                        from determined.store.database.connection import open_store
                    store = open_store(self._store_place)
                    if store.read_only:
                        store.close()
                        raise errors.StoreUnavailable(f"{store.url} may only be read")
                except (errors.LinkUnavailable, errors.StoreDamaged):
                    raise
                except Exception as failed:
                    raise errors.LinkUnavailable(str(failed)) from failed
                self._store, self._store_id = store, store.id
                self.place = store.url
                if self._rank == 0:
                    with contextlib.suppress(errors.StoreUnavailable):  # what waits goes on waiting
                        recovery.recover_runs(store, self._run.home, self._description.store)
            return self._store

    def _begin_run(self, store: Store) -> RecordedRun:
        """Return the recorded run: the chief begins it, others wait a little until it has.

        Every failure may pass, so nothing is refused: the caller tries again.
        """
        with self._beginning:
            try:
                from determined.core.recording import run_rows
                from determined.store import trials

                if self._recorded is None and self._rank == 0:
                    with store.write() as conn:  # of its own: it locks trials of others
                        self._check_same(store)
                        trials.settle(conn)
                    with store.write() as conn:
                        self._check_same(store)
                        recorded = run_rows.begin(conn, self._run, self._description)
                    self._recorded, self._last_beat = recorded, time.monotonic()
                deadline = time.monotonic() + CHIEF_SECONDS
                while self._recorded is None:
                    with store.read() as conn:
                        self._recorded = run_rows.find(conn, self._run, self._description)
                    if self._recorded is None:
                        if time.monotonic() > deadline:
                            raise errors.LinkUnavailable("rank 0 has not recorded the run yet")
                        time.sleep(0.05)
                return self._recorded
            except _PASSING:
                raise
            except Exception as failed:
                raise errors.LinkUnavailable(str(failed)) from failed

    # Questions.

    def beat(self) -> None:
        from determined.store import attempts

        store, recorded = self._store, self._recorded
        if store is not None and self._rank != 0:
            store.rest()  # the chief says that the run is alive
        if recorded is None or store is None or self._is_over or self._rank != 0:
            return
        try:
            with store.write() as conn:
                self._check_same(store)
                attempts.beat(conn, recorded.attempt)
            self._last_beat = time.monotonic()
        except errors.StaleAttempt as stale:
            if not self._is_strict:
                self._give_up(stale)

    def signal(self) -> Signal:
        if self._recorded is None:
            if not self.is_managed and self._rank == 0:
                return Signal.NONE  # nobody can have stopped a run that is not recorded yet
            self._begin_run(self._open_store())
        from determined.core.recording import run_rows
        from determined.store import attempts
        from determined.store.metrics import metric_reports

        store, recorded = self._store, self._recorded
        if store is None or recorded is None:
            return Signal.NONE  # the store was damaged, and the thread that writes the reports handles it
        with contextlib.suppress(errors.StoreDamaged, _StoreReplaced), store.read() as conn:
            self._check_same(store)
            # Reports are written by another thread: one may just have made this run an attempt of an older trial.
            recorded = run_rows.refresh(conn, self._run, recorded)
            if recorded.is_managed:  # other trials of the experiment may have become better
                self._best = metric_reports.best_validation(conn, recorded.attempt.experiment_id)
            return attempts.signals(conn, recorded.attempt.allocation_id)
        return Signal.NONE

    def attach(self) -> Attached | None:
        is_named = bool(self._description.config.get("external_experiment_id"))
        return self._ask(lambda conn, rows: rows.attached(conn, self._recorded), begins=True, waits=is_named)

    def metadata(self) -> dict[str, Any] | None:
        return self._ask(lambda conn, rows: rows.metadata(conn, self._run, self._recorded), begins=True) or None

    def best_validation(self) -> float | None:
        return self._best

    def best_before(self, storage_id: str) -> float | None:
        if not (self._description.config.get("searcher") or {}).get("metric"):
            return None
        return self._ask(lambda conn, rows: rows.best_before(conn, self._description, storage_id))

    def find_checkpoints(
        self, which: Literal["latest", "best"], trial_class: str, smaller_is_better: bool
    ) -> History | None:
        def question(conn: Connection, rows: Any) -> History | None:
            own = None if self._recorded is None else self._recorded.attempt.trial_id
            found: History | None = rows.find_checkpoints(
                conn, self._description, which, trial_class, smaller_is_better, own
            )
            return found

        return None if self.is_managed or self._description.is_detached else self._ask(question)

    def experiment_of(self, storage_id: str) -> int | None:
        return self._ask(lambda conn, rows: rows.experiment_of(conn, storage_id))

    def recorded_as(self) -> Attached | None:
        if self._recorded is None or self._is_over:
            return None
        attempt = self._recorded.attempt
        return Attached(attempt.trial_id, attempt.experiment_id, attempt.attempt)

    def _ask(self, question: Callable[[Connection, Any], T], begins: bool = False, waits: bool = False) -> T | None:
        """Return the store's answer; None, with a warning, if none comes in time.

        Args:
            question: It gets a connection and `run_rows`, which loads SQL.
            begins: Begin the run first.
            waits: Ask again for as long as one may wait, if the store cannot be asked now.
        """

        def read() -> T:
            store = self._open_store()
            from determined.core.recording import run_rows

            if begins:
                self._begin_run(store)
            with store.read() as conn:
                return question(conn, run_rows)

        return _in_time(_patient(read) if waits else read)

    def close(self) -> None:
        self._remove_checkpoints()
        if self._refused > len(self._logged):
            logger.warning("%d reports of this run are not recorded; the first reasons are above.", self._refused)
        self._journal.close()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _remove_checkpoints(self) -> None:
        """Remove the checkpoints that a plain run does not keep, by its `checkpoint_storage` or by `fit()`."""
        store, recorded = self._store, self._recorded
        if self._rank != 0 or store is None or recorded is None or recorded.is_managed:
            return
        configured = self._description.config.get("checkpoint_storage") or {}
        if not self._has_retention and not any(key.startswith("save_") for key in configured):
            return
        experiment_id = recorded.attempt.experiment_id

        def remove() -> int:
            from determined.store.upkeep import retention

            with store.read() as conn:
                unwanted = retention.plan(conn, experiment_id)
            removed, _ = retention.remove(store, unwanted, _delete_unread, seconds=ANSWER_SECONDS / 2)
            return len(removed)

        if count := _in_time(remove):
            logger.info("%d checkpoints were removed: no more were to be kept.", count)


def _delete_unread(row: CheckpointRow) -> bool:
    return row.storage is not None and artifacts.open_storage(row.storage).delete_unread(row.uuid)


def _patient(work: Callable[[], T]) -> Callable[[], T]:
    """Return work that is tried again while the store cannot be used, and says so once."""

    def again() -> T:
        deadline = time.monotonic() + 0.8 * ANSWER_SECONDS  # so that the last reason is heard
        has_said = False
        while True:
            try:
                return work()
            except errors.LinkUnavailable as failed:
                if time.monotonic() > deadline:
                    raise
                if not has_said:
                    logger.warning(
                        "The store cannot be asked for this trial's newest checkpoint (%s); trying for %.0f seconds.",
                        failed, ANSWER_SECONDS,
                    )  # fmt: skip
                has_said = True
            time.sleep(RETRY_SECONDS)

    return again


def _in_time(work: Callable[[], T]) -> T | None:
    """Return the result of work on the store; None, with a warning, if it fails or takes too long."""
    try:
        return in_thread(work, ANSWER_SECONDS)
    except futures.TimeoutError:
        why = f"no answer within {ANSWER_SECONDS:g} seconds"
    except Exception as failed:  # noqa: BLE001 - there is no answer, and training goes on without
        why = str(failed)
    logger.warning("The store could not be asked (%s); training goes on without.", why)
    return None
