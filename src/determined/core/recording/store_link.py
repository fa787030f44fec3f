"""The link to the store. SQL is loaded and spoken in background threads only; trouble with it is never training's."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from determined import artifacts, errors
from determined.core.recording.journal import Journal, Remains, left_behind
from determined.core.recording.link import Attached, History, Run
from determined.core.recording.run_description import RunDescription
from determined.store.messages import CheckpointReport, FitReport, LogLine, Report, Signal

if TYPE_CHECKING:
    from determined.core.recording import run_rows
    from determined.store.checkpoints import CheckpointRow
    from determined.store.database.connection import Store

logger = logging.getLogger("determined.core")

T = TypeVar("T")
ANSWER_SECONDS = 30.0
"""How long training waits, where it resumes, for what the store knows. To go on from the wrong place is worse."""
CHIEF_SECONDS = 5.0
"""How long the other ranks wait for the chief to have begun the run, before they try again later."""
BEAT_SECONDS = 20.0
METADATA = "metadata.json"

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
    """Another store has the name of the one that the run was begun in."""


class StoreLink:
    """Records one run in the store.

    The store is opened with the first report. While it cannot be, or a transaction fails, reports are kept by whoever
    offers them, and in the end in the run's own directory, from where the next run of anybody delivers them.

    Args:
        run: The run's name and places.
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
        self._standing: run_rows.Standing | None = None
        self._best: float | None = None
        self._last_beat = float("-inf")
        self._said: set[str] = set()
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
            self._begin_elsewhere(changed)
            try:
                self._send(reports)
            except (errors.StoreDamaged, _StoreReplaced) as still:
                raise errors.LinkUnavailable(str(still)) from still

    def _begin_elsewhere(self, changed: Exception) -> None:
        """Go on in the store that has the name now: a new one, if the file that had it is damaged and set aside."""
        from determined.store.database import damage
        from determined.store.database.location import find_place

        path = find_place(self._store_place).path
        is_damaged = isinstance(changed, errors.StoreDamaged) and path is not None
        with self._opening:
            store, self._store = self._store, None
            store_id, self._store_id, self._standing = self._store_id, "", None
            try:
                # Before it is closed: SQLite would write its log back, over what is there now.
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
        store = self._opened()
        self._begun(store)
        if not self._journal.is_empty:
            waiting = self._journal.waiting()
            self._write(store, waiting)
            self._journal.delivered()
            self._trust(waiting)
        self._write(store, reports)
        self._trust(reports)
        if any(isinstance(report, CheckpointReport) for report in reports):
            self._clear_up()

    def _trust(self, reports: Sequence[Report]) -> None:
        for report in reports:
            if isinstance(report, CheckpointReport):
                self._journal.trust(report.storage_id)

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

    def doubt(self, storage_id: str) -> None:
        if Path(storage_id).name != storage_id:
            return  # no id of ours, and no name for a file of ours
        try:
            self._journal.doubt(storage_id)
        except OSError as failed:
            logger.debug("Checkpoint %s comes or goes without a note: %s", storage_id, failed)

    def begin_fit(self, fit: FitReport) -> None:
        self._journal.fit = self._journal.fit or fit
        self._has_retention |= bool(fit.retention)

    def _write(self, store: Store, reports: Sequence[Report]) -> None:
        """All of them in one transaction; if one is refused, each in its own, so that the others arrive."""
        try:
            self._write_together(store, reports)
            return
        except (errors.LinkUnavailable, errors.StoreDamaged, _StoreReplaced):
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
                self._say_refused(refused)
                return
        self._write_apart(store, reports)

    def _write_apart(self, store: Store, reports: Sequence[Report]) -> None:
        refusal: Exception | None = None
        for report in reports:
            if self._is_over:
                return
            try:
                self._write(store, [report])
            except (errors.LinkUnavailable, errors.StoreDamaged, _StoreReplaced):
                raise
            except Exception as refused:  # noqa: BLE001 - raised below, once the others have arrived
                refusal = refusal or refused
        if refusal is not None:
            raise refusal

    def _write_together(self, store: Store, reports: Sequence[Report]) -> None:
        from determined.core.recording import run_rows
        from determined.store import attempts

        assert self._standing is not None
        with store.write() as conn:
            self._check_same(store)
            standing = self._standing
            if self._rank != 0:
                standing = run_rows.follow(conn, self._run, standing)
            standing = run_rows.deliver(conn, self._run, self._description, standing, reports)
            beats = time.monotonic() - self._last_beat > BEAT_SECONDS
            if beats and self._rank == 0:
                attempts.beat(conn, standing.attempt)
        self._standing = standing
        if beats:
            self._last_beat = time.monotonic()

    def _check_same(self, store: Store) -> None:
        """Refuse to write to another store: what this run is called there is somebody else."""
        if store.id != self._store_id:
            raise _StoreReplaced(f"The store {store.place} was replaced by another while in use.")

    @property
    def _is_strict(self) -> bool:
        """Whether what the store refuses is an error of the training process. In a plain run it is a warning."""
        return self._description.is_detached or (self._standing is not None and self._standing.is_managed)

    def _say_refused(self, refused: Exception) -> None:
        kind = type(refused).__name__
        self._refused += 1
        level = logging.DEBUG if kind in self._said else logging.WARNING
        self._said.add(kind)
        unexpected = not isinstance(refused, errors.DeterminedError)
        logger.log(level, "A report is not recorded: %s", f"{kind}: {refused}" if unexpected else refused)
        if unexpected:
            logger.debug("Where that came from:", exc_info=refused)

    def _give_up(self, stale: Exception) -> None:
        self._is_over = True
        logger.warning("This run is no longer recorded: %s", stale)

    # Opening.

    def _opened(self) -> Store:
        """The store, opened now unless it is; whatever is wrong with it may pass, so it is tried again."""
        with self._opening:
            if self._store is None:
                try:
                    with _importing:
                        from determined.core.recording import run_rows  # noqa: F401 - loads all that is needed
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
                    self._deliver_remains(store)
            return self._store

    def _begun(self, store: Store) -> run_rows.Standing:
        """Where the run stands. If it cannot be begun, whyever, nothing of it is refused: it is tried again."""
        with self._beginning:
            try:
                return self._begin(store)
            except (errors.LinkUnavailable, errors.StoreDamaged, _StoreReplaced):
                raise
            except Exception as failed:
                raise errors.LinkUnavailable(str(failed)) from failed

    def _begin(self, store: Store) -> run_rows.Standing:
        """The chief begins the run; others wait a little until it has."""
        from determined.core.recording import run_rows

        if self._standing is None and self._rank == 0:
            with store.write() as conn:
                self._check_same(store)
                standing = run_rows.begin(conn, self._run, self._description)
            self._standing, self._last_beat = standing, time.monotonic()
        deadline = time.monotonic() + CHIEF_SECONDS
        while self._standing is None:
            with store.read() as conn:
                self._standing = run_rows.find(conn, self._run, self._description)
            if self._standing is None:
                if time.monotonic() > deadline:
                    raise errors.LinkUnavailable("rank 0 has not recorded the run yet")
                time.sleep(0.05)
        return self._standing

    def _deliver_remains(self, store: Store) -> None:
        """Look after what dead runs have left. Failing to is no reason not to record this one."""
        for remains in left_behind(self._run.directory.parent):
            if remains.description.store != self._description.store:
                continue
            try:
                _adopt(store, Run(remains.name.partition(".")[0], self._run.home), remains)
            except Exception as failed:  # noqa: BLE001 - it stays where it is, for the next run
                logger.debug("What run %s has left is not delivered: %s", remains.name, failed)

    # Questions.

    def beat(self) -> None:
        from determined.store import attempts

        store, standing = self._store, self._standing
        if standing is None or store is None or self._is_over or self._rank != 0:
            return
        try:
            with store.write() as conn:
                self._check_same(store)
                attempts.beat(conn, standing.attempt)
            self._last_beat = time.monotonic()
        except errors.StaleAttempt as stale:
            if not self._is_strict:
                self._give_up(stale)

    def signal(self) -> Signal:
        if self._standing is None:
            if not self.is_managed and self._rank == 0:
                return Signal.NONE  # nobody can have asked for a run that nobody knows
            self._begun(self._opened())
        from determined.core.recording import run_rows
        from determined.store import attempts
        from determined.store.metrics import metric_reports

        store, standing = self._store, self._standing
        if store is None or standing is None:
            return Signal.NONE  # the store was damaged, and whoever writes the reports sees to it
        with contextlib.suppress(errors.StoreDamaged, _StoreReplaced), store.read() as conn:
            self._check_same(store)
            # Reports are written by another thread: one may just have made this run an attempt of an older trial.
            standing = run_rows.follow(conn, self._run, standing)
            if standing.is_managed:  # other trials of the experiment may have become better
                self._best = metric_reports.best_validation(conn, standing.attempt.experiment_id)
            return attempts.signals(conn, standing.attempt.allocation_id)
        return Signal.NONE

    def attach(self) -> Attached | None:
        def ask() -> Attached:
            from determined.core.recording import run_rows

            store = self._opened()
            standing = self._begun(store)
            with store.read() as conn:
                return run_rows.attached(conn, standing)

        return self._ask(ask)

    def metadata(self) -> dict[str, Any] | None:
        def ask() -> dict[str, Any]:
            from determined.core.recording import run_rows
            from determined.store import trials

            store = self._opened()
            standing = self._begun(store)
            with store.read() as conn:
                return trials.get(conn, run_rows.follow(conn, self._run, standing).attempt.trial_id).metadata

        return self._ask(ask) or None

    def best_validation(self) -> float | None:
        return self._best

    def best_before(self, storage_id: str) -> float | None:
        def ask() -> float | None:
            from determined.core.recording import run_rows

            with self._opened().read() as conn:
                return run_rows.best_before(conn, self._description, storage_id)

        return self._ask(ask) if (self._description.config.get("searcher") or {}).get("metric") else None

    def find_checkpoint(
        self, which: Literal["latest", "best"], trial_class: str, smaller_is_better: bool
    ) -> History | None:
        def ask() -> History | None:
            from determined.core.recording import run_rows

            own = None if self._standing is None else self._standing.attempt.trial_id
            with self._opened().read() as conn:
                return run_rows.history(conn, self._description, which, trial_class, smaller_is_better, own)

        return None if self.is_managed or self._description.is_detached else self._ask(ask)

    def experiment_of(self, storage_id: str) -> int | None:
        def ask() -> int | None:
            from determined.store import runs, trials

            with self._opened().read() as conn:
                owner = runs.owner_of(conn, storage_id)
                return None if owner is None else trials.get(conn, owner, deleted=True).experiment_id

        return self._ask(ask)

    def recorded_as(self) -> Attached | None:
        if self._standing is None or self._is_over:
            return None
        attempt = self._standing.attempt
        return Attached(attempt.trial_id, attempt.experiment_id, attempt.attempt)

    def _ask(self, question: Callable[[], T]) -> T | None:
        """The answer, or None if it does not come in time or not at all, which is said."""
        answers: list[T] = []
        problems: list[Exception] = []

        def run() -> None:
            try:
                answers.append(question())
            except Exception as failed:  # noqa: BLE001 - there is no answer, and training goes on without
                problems.append(failed)

        thread = threading.Thread(target=run, name="determined-question", daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)
        if answers:
            return answers[0]
        why = problems[0] if problems else f"no answer within {ANSWER_SECONDS:g} seconds"
        logger.warning("The store could not be asked (%s); training goes on without.", why)
        return None

    def close(self) -> None:
        self._clear_up()
        if self._refused > len(self._said):
            logger.warning("%d reports of this run are not recorded; the first reasons are above.", self._refused)
        self._journal.close()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _clear_up(self) -> None:
        """Remove the checkpoints that a plain run says not to keep, in its `checkpoint_storage` or in `fit()`."""
        store, standing = self._store, self._standing
        if self._rank != 0 or store is None or standing is None or standing.is_managed:
            return
        configured = self._description.config.get("checkpoint_storage") or {}
        if not self._has_retention and not any(key.startswith("save_") for key in configured):
            return
        experiment_id = standing.attempt.experiment_id

        def remove() -> int:
            from determined.store.upkeep import retention

            with store.read() as conn:
                unwanted = retention.plan(conn, experiment_id)
            gone, _ = retention.remove(store, unwanted, _delete_unread, seconds=ANSWER_SECONDS / 2)
            return len(gone)

        if removed := self._ask(remove):
            logger.info("%d checkpoints were removed: no more were to be kept.", removed)


def _delete_unread(row: CheckpointRow) -> bool:
    return row.storage is not None and artifacts.open_storage(row.storage).delete_unread(row.uuid)


def _adopt(store: Store, run: Run, remains: Remains) -> None:
    from determined.core.recording import run_rows

    reports = remains.reports()
    stored = _look_at(remains.description, remains.in_doubt())
    with store.write() as conn:
        run_rows.adopt(conn, run, remains.description, reports, stored, remains.fit)
    remains.bury()
    lines = sum(isinstance(report, LogLine) for report in reports)
    logger.info("Run %s: %d reports and %d lines are delivered late.", run.name, len(reports) - lines, lines)


def _look_at(description: RunDescription, doubtful: Mapping[str, datetime.datetime]) -> dict[str, CheckpointReport]:
    """What is the case with checkpoints that came or went just before a process died."""
    if not doubtful or description.storage is None:
        return {}
    storage = artifacts.open_storage(description.storage)
    found = {}
    for storage_id, when in doubtful.items():
        if not storage.exists(storage_id):
            found[storage_id] = CheckpointReport(storage_id, {}, {}, "DELETED", time=when)
            continue
        manifest = storage.manifest(storage_id)
        metadata: dict[str, Any] = {}
        if METADATA in manifest.files:
            metadata = artifacts.documents.parse(storage.read_bytes(storage_id, METADATA), METADATA)
        found[storage_id] = CheckpointReport(storage_id, metadata, dict(manifest.resources), time=when)
    return found
