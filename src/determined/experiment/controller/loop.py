"""The controller: take what changed from the store, ask the engine, store, perform. One round is `Controller.round`.

All state is in the store. What is kept in memory (engines) is what the store says, and is dropped when a transaction
fails, so a controller that is killed at any instant loses nothing: the next one goes on from the rows.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from determined import errors
from determined.experiment.controller import collect, start, tasks
from determined.experiment.controller.managed import COLLECT, Managed, say
from determined.experiment.controller.schedule import Start, Waiting, choose
from determined.experiment.launchers.base import Launcher
from determined.experiment.slots import pool_of
from determined.store import attempts, events, experiments, trials
from determined.store.attempts import AttemptRow
from determined.store.control import controllers, pending
from determined.store.control.pending import PendingEvent
from determined.store.database.connection import Store
from determined.store.messages import now

if TYPE_CHECKING:
    import sqlalchemy as sa

logger = logging.getLogger("determined.experiment")

MOST_EVENTS = 500
"""Events of one transaction, at most."""
POLL_SECONDS, IDLE_POLL_SECONDS = 0.1, 0.5
"""How long a round waits for news, while trials run and while none does."""
LINGER_SECONDS = 3.0
"""How long the controller stays when nothing is left to do: often another command follows."""
BEAT_SECONDS = 10.0
SETTINGS_SECONDS = 1.0
STARTING_SECONDS = 2.0
"""How long an agent that an earlier controller may have started has to record its process id; one that comes later
finds its attempt ended and leaves."""
AGAIN_SECONDS = 5.0
"""After this a process that was killed, and is still there, is killed again; and a start that failed is tried again."""


class Controller:
    """Drives the experiments of one store. There is one per store: `take_lease` says whether this is it.

    Args:
        store: The store.
        launcher: Starts and ends the processes of trials.

    Example::

        controller = Controller(open_store(), LocalLauncher())
        if controller.take_lease():
            controller.run()
    """

    def __init__(self, store: Store, launcher: Launcher) -> None:
        self._store = store
        self._launcher = launcher
        self._holder = secrets.token_hex(8)
        self._slots = launcher.slots()
        self._shown: dict[str, Any] = {}  # what the store says about this controller
        self._told_to_wait: set[str] = set()  # allocations
        self._experiments: dict[int, Managed] = {}
        self._is_loaded = False
        self._mark: object = None  # of the store as we know it
        self._running: list[AttemptRow] = []
        self._collecting = collect.Collections(store)
        self._killed: dict[str, float] = {}  # when, by allocation
        self._last_beat = self._last_settings = self._last_look = time.monotonic()
        self._idle_since: float | None = None
        self._start_after = 0.0
        self.is_asked_to_leave = False

    def take_lease(self) -> bool:
        """Become the controller of this store, unless a living process is. Return whether this one is it."""
        with self._store.write() as conn:
            return controllers.take(conn, self._holder, launcher=self._launcher.name, info=self._info([]))

    def _info(self, running: list[AttemptRow]) -> dict[str, Any]:
        """Return what others want to know: slots, who waits for nodes and why, how to start a controller like this."""
        reasons = self._launcher.waiting()
        waiting = {str(row.trial_id): reasons[row.allocation_id] for row in running if row.allocation_id in reasons}
        cluster = self._slots.to_json() if self._slots.nodes else None
        return {
            "slots": len(self._slots),
            "slot_kind": self._slots.kind,
            "cluster": cluster,
            "waiting": waiting,
            "environment": self._launcher.settings(),
        }

    def run(self) -> None:
        """Drive experiments until nothing is left to do, somebody else has the lease, or somebody asks to leave."""
        while not self.is_asked_to_leave:
            try:
                is_busy = self.round()
                if not self._beat() or (not is_busy and self._leave()):
                    return
            except errors.StoreUnavailable as failed:
                if self._store.path is not None and not self._store.path.exists():
                    logger.warning("The store %s was removed, so the controller leaves.", self._store.path)
                    return
                logger.warning("The store cannot be used now (%s); trying again.", failed)
                is_busy = True
                time.sleep(1.0)
            self._launcher.wait(POLL_SECONDS if is_busy else IDLE_POLL_SECONDS)
        with self._store.write() as conn:
            controllers.leave(conn, self._holder, even_with_events=True)

    def round(self) -> bool:
        """Handle what has come, end what is to end, start what can start. Return whether anything is going on."""
        if not self._is_loaded:
            self._load()
        running = self._take_news()
        self._watch(running)
        started = self._start_queued(running)
        self._note_settings_and_progress(running)
        self._collecting.poll()
        return bool(running or started or self._collecting.is_busy or any(e.queued for e in self._experiments.values()))

    def _take_news(self) -> list[AttemptRow]:
        """Handle what has come, and return what runs; both are known if the store has not changed since."""
        mark = self._store.change_mark()
        if mark != self._mark or time.monotonic() - self._last_look > SETTINGS_SECONDS:
            self._mark, self._last_look = None, time.monotonic()
            self._handle_pending()
            with self._store.read() as conn:
                self._running = attempts.of_controller(conn)
            self._mark = mark
        return self._running

    def _load(self) -> None:
        """Load the experiments that are under way, unless they are."""
        with self._store.read() as conn:
            driven = experiments.find(conn, experiments.ExperimentFilter(states=start.DRIVEN, unmanaged=False))
        for row in driven:
            try:
                with self._store.read() as conn:
                    self._experiment(conn, row.id)
            except errors.StoreUnavailable:
                raise
            except Exception as failed:
                logger.exception("Experiment %d cannot be loaded.", row.id)
                self._give_up(row.id, "loading it", failed)
        self._is_loaded = True

    def _forget(self, experiment_id: int) -> None:
        """Drop an engine that is not what the store has; the next round loads it again."""
        self._experiments.pop(experiment_id, None)
        self._is_loaded = False

    # What has come.

    def _handle_pending(self) -> None:
        while True:
            with self._store.read() as conn:
                found = pending.read(conn, MOST_EVENTS)
            for told in found:
                if told.kind == COLLECT:
                    self._collecting.start(told)
            found = [told for told in found if told.kind != COLLECT]
            if not found:
                return
            try:
                self._handle(found)
            except errors.StoreUnavailable:
                raise
            except Exception:
                logger.exception("Events could not be handled together; handling each on its own.")
                self._handle_each(found)

    def _handle(self, found: list[PendingEvent]) -> None:
        """Handle events in one transaction. If it fails, what the engines in memory have handled is forgotten."""
        try:
            self._load_new(found)
            with self._store.write() as conn:
                for told in found:
                    self._handle_one(conn, told)
                pending.remove(conn, [told.id for told in found])
        except BaseException:
            for told in found:
                self._forget(told.experiment_id)
            raise

    def _load_new(self, found: list[PendingEvent]) -> None:
        """Load experiments before anything is written: importing a search method of the user's own may take long."""
        new = {told.experiment_id for told in found} - self._experiments.keys()
        if new:
            with self._store.read() as conn:
                for experiment_id in new:
                    self._experiment(conn, experiment_id)

    def _handle_one(self, conn: sa.Connection, told: PendingEvent) -> None:
        try:
            self._experiment(conn, told.experiment_id).handle(conn, told)
        except (errors.IllegalMove, errors.NotFound) as refused:
            logger.warning("Experiment %d: refused %s: %s", told.experiment_id, told.kind, refused)
            body = {"pending_id": told.id, "kind": told.kind, "reason": str(refused)}
            events.append(conn, told.experiment_id, "REFUSED", body)

    def _handle_each(self, found: list[PendingEvent]) -> None:
        for told in found:
            try:
                self._handle([told])
            except errors.StoreUnavailable:
                raise
            except Exception as failed:
                logger.exception("Experiment %d is ended: its event %r failed.", told.experiment_id, told)
                self._give_up(told.experiment_id, f"the event {told.kind}", failed, told.id)

    def _give_up(self, experiment_id: int, what: str, failed: Exception, pending_id: int | None = None) -> None:
        """End an experiment that cannot be driven; the others go on."""
        reason = f"The controller failed on {what} with {type(failed).__name__}: {failed}"
        with self._store.write() as conn:
            pending.remove(conn, [] if pending_id is None else [pending_id])
            for trial in trials.of_experiment(conn, experiment_id):
                if trial.state not in experiments.TERMINAL:
                    trials.set_state(conn, trial.id, "ERROR", reason)
            experiments.set_state(conn, experiment_id, "ERROR", reason)
            for row in attempts.of_controller(conn):
                if row.experiment_id == experiment_id:
                    attempts.kill_at(conn, row.allocation_id, now(), reason)

    def _experiment(self, conn: sa.Connection, experiment_id: int) -> Managed:
        if experiment_id not in self._experiments:
            self._experiments[experiment_id] = tasks.load(conn, experiment_id)
        return self._experiments[experiment_id]

    # What runs.

    def _watch(self, running: list[AttemptRow]) -> None:
        """End attempts whose time has come, and note those whose agent is gone."""
        for row in running:
            if not self._launcher.is_alive(row):
                if row.pid is not None or now() - row.start_time > datetime.timedelta(seconds=STARTING_SECONDS):
                    self._lost(row)
            elif row.kill_at is not None and row.kill_at <= now():
                self._kill(row)

    def _kill(self, row: AttemptRow) -> None:
        if time.monotonic() - self._killed.get(row.allocation_id, float("-inf")) < AGAIN_SECONDS:
            return
        if not row.killed:
            with self._store.write() as conn:
                attempts.mark_killed(conn, row.allocation_id)
                say(conn, row, f"The trial's processes are killed: {row.kill_reason}")
        self._killed[row.allocation_id] = time.monotonic()
        self._launcher.kill(row)

    def _lost(self, row: AttemptRow) -> None:
        self._launcher.kill(row)  # whatever it has left
        with self._store.read() as conn:
            if pending.waits(conn, trial_id=row.trial_id):
                return  # what it reported before comes first
        with self._changing(row.experiment_id) as (conn, experiment):
            if attempts.get(conn, row.allocation_id).state == "TERMINATED":
                return  # it recorded its end after we looked
            say(conn, row, "The agent of this attempt is gone, and has not said how the trial ended.")
            experiment.attempt_lost(conn, row)

    # What can start.

    def _start_queued(self, running: list[AttemptRow]) -> int:
        if time.monotonic() < self._start_after or not any(e.queued for e in self._experiments.values()):
            return 0
        self._slots = self._launcher.slots()
        taken = {slot for row in running for slot in row.slot_ids}
        free = [slot for slot in self._slots.devices if slot not in taken]
        used: dict[int, int] = {}
        for row in running:
            used[row.experiment_id] = used.get(row.experiment_id, 0) + row.slots
        chosen = choose([self._waiting(each, used.get(each.id, 0)) for each in self._experiments.values()], free)
        for given in chosen:
            self._start(given)
        return len(chosen)

    def _waiting(self, experiment: Managed, used: int) -> Waiting:
        resources = experiment.resources
        return Waiting(
            experiment.id,
            int(resources.get("priority") or 42),
            int(resources.get("slots_per_trial", 1)),
            resources.get("max_slots"),
            used,
            list(experiment.queued),
            frozenset(self._slots.usable(pool_of(resources))) if self._slots.nodes else None,
            bool(resources.get("is_single_node")),
        )

    def _start(self, given: Start) -> None:
        """Give a trial its slots, in one transaction with the event; then start its agent."""
        with self._changing(given.experiment_id) as (conn, experiment):
            trial_id = experiment.trial_id(given.request_id)
            begun = attempts.begin(conn, trial_id, slots=len(given.slots), slot_ids=list(given.slots), state="ASSIGNED")
            experiment.attempt_started(conn, given.request_id)
            task = tasks.task_of(conn, self._store, experiment, begun, self._slots, given.slots)
            if refused := tasks.refusal(task, self._slots):
                say(conn, attempts.get(conn, begun.allocation_id), f"ERROR: The trial cannot run: {refused}.")
                experiment.attempt_refused(conn, begun, refused)
                return
        try:
            self._launcher.start(task)
        except OSError as failed:
            logger.warning("Trial %d could not be started (%s); trying again.", trial_id, failed)
            self._start_after = time.monotonic() + AGAIN_SECONDS
            with self._store.read() as conn:
                row = attempts.get(conn, begun.allocation_id)
            self._lost(row)

    @contextlib.contextmanager
    def _changing(self, experiment_id: int) -> Iterator[tuple[sa.Connection, Managed]]:
        """Open a transaction that changes an experiment; if it is rolled back, the experiment is read anew."""
        try:
            with self._store.write() as conn:
                yield conn, self._experiment(conn, experiment_id)
        except BaseException:
            self._forget(experiment_id)
            raise

    # Now and then.

    def _note_settings_and_progress(self, running: list[AttemptRow]) -> None:
        if time.monotonic() - self._last_settings < SETTINGS_SECONDS:
            return
        self._last_settings = time.monotonic()
        self._show(running)
        of: dict[int, list[int]] = {}
        for row in running:
            of.setdefault(row.experiment_id, []).append(row.trial_id)
        changed: dict[int, float] = {}
        with self._store.read() as conn:
            for experiment in list(self._experiments.values()):
                if experiment.engine.state.is_terminal:
                    del self._experiments[experiment.id]
                    continue
                experiment.read_settings(conn)
                progress = experiment.note_progress(conn, of.get(experiment.id, []))
                if progress != experiment.shown_progress:
                    changed[experiment.id] = experiment.shown_progress = progress
        if changed:
            with self._store.write() as conn:
                for ident, progress in changed.items():
                    experiments.update(conn, ident, progress=progress)

    def _show(self, running: list[AttemptRow]) -> None:
        """Say in the store which slots there are, and in logs why attempts that were started do not run yet."""
        self._slots = self._launcher.slots()
        info = self._info(running)
        if info == self._shown:
            return
        reasons = self._launcher.waiting()
        with self._store.write() as conn:
            controllers.beat(conn, self._holder, info)
            for row in running:
                if row.allocation_id in reasons and row.allocation_id not in self._told_to_wait:
                    say(conn, row, reasons[row.allocation_id])
        self._told_to_wait = set(reasons)
        self._shown = info

    def _beat(self) -> bool:
        if time.monotonic() - self._last_beat < BEAT_SECONDS:
            return True
        self._last_beat = time.monotonic()
        with self._store.write() as conn:
            is_ours = controllers.beat(conn, self._holder)
        if not is_ours:
            logger.warning("Another controller has taken over; this one leaves.")
        return is_ours

    def _leave(self) -> bool:
        """Leave when there has been nothing to do for a while. What has come in the very last moment is handled."""
        self._idle_since = self._idle_since or time.monotonic()
        if time.monotonic() - self._idle_since < LINGER_SECONDS:
            return False
        self._idle_since = None
        with self._store.write() as conn:
            return controllers.leave(conn, self._holder)
