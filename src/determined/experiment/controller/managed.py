"""One experiment under the controller: each pending event goes through its engine, and what follows becomes rows.

Nothing here starts or ends a process. Rows say what is wanted (a preemption, a time to kill), and `loop` does it.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from determined import errors
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.controller import history
from determined.experiment.engine import Engine, Phase
from determined.experiment.events import (
    Action,
    AddTrial,
    Answered,
    AttemptEnded,
    AttemptStarted,
    Continued,
    Dequeue,
    Event,
    InvalidHPReported,
    Kill,
    Preempt,
    Progressed,
    Queue,
    Request,
    SetExperiment,
    SetHparams,
    SetTrial,
    Started,
    Tell,
    TrialKillRequested,
    Validated,
    Warn,
)
from determined.experiment.generator import Generator
from determined.experiment.lifecycle import Exit
from determined.experiment.search.base import SearchMethod
from determined.store import attempts, checkpoints, events, experiments, logs, trials
from determined.store.attempts import AttemptRow
from determined.store.control import pending
from determined.store.control.pending import PendingEvent
from determined.store.messages import LogLine, now

if TYPE_CHECKING:
    import sqlalchemy as sa

logger = logging.getLogger("determined.experiment")

FEWEST_EVENTS = 32
"""Events between two snapshots, at least; of a large search about as many as it has trials, so that its snapshots,
which grow with it, cost about the same per event."""

COLLECT = "COLLECT"
"""The pending event that asks for the checkpoints of an ended experiment to be cleared out; `loop` handles it."""


class Managed:
    """One experiment: its engine, and the rows that follow from what the engine decides.

    Args:
        conn: Where the experiment is.
        experiment_id: Which.
        custom: The method of a custom search.
    """

    def __init__(self, conn: sa.Connection, experiment_id: int, custom: SearchMethod | None = None) -> None:
        self.id = experiment_id
        self.engine: Engine = history.restore(conn, experiment_id, custom)
        self.queued: dict[str, None] = {
            request_id: None for request_id, trial in self.engine.trials.items() if trial.phase is Phase.QUEUED
        }
        """Request ids of the trials that wait for slots, in their order."""
        self._trial_ids = {trial.request_id: trial.id for trial in trials.of_experiment(conn, experiment_id)}
        self._request_ids = {ident: request_id for request_id, ident in self._trial_ids.items()}
        self._events = 0  # since the last snapshot
        self._can_replay = custom is None or custom.is_outside
        self.shown_progress: float | None = None
        self.read_settings(conn)

    def read_settings(self, conn: sa.Connection) -> None:
        """Read what a person may change while the experiment runs."""
        row = experiments.get(conn, self.id)
        self.config: dict[str, Any] = row.config or {}
        self.resources: dict[str, Any] = self.config.get("resources") or {}
        self.uuid = row.uuid
        self.code_snapshot_id = row.code_snapshot_id
        self.preemption_timeout = float(self.config.get("preemption_timeout", 3600))

    def trial_id(self, request_id: str) -> int:
        """Return the id of the trial's row."""
        return self._trial_ids[request_id]

    # Events.

    def handle(self, conn: sa.Connection, told: PendingEvent) -> None:
        """Handle one pending event. One that is out of date, such as the end of an older attempt, changes nothing.

        Raises:
            IllegalMove: A person asked for what the experiment's state does not allow.
        """
        if (event := self._event(conn, told)) is not None:
            self.perform(conn, event)

    def perform(self, conn: sa.Connection, event: Event) -> None:
        """Hand an event to the engine, store it, and write the rows of the actions that it calls for."""
        actions = self.engine.handle(event)
        request_id = getattr(event, "request_id", None)
        trial_id = None if request_id is None else self._trial_ids.get(request_id)
        if isinstance(event, Continued):
            self._reopen(conn)
        event_id = history.record(conn, self.id, event, trial_id)
        for action in actions:
            self._apply(conn, action)
        self._events += 1
        if self.engine.state.is_terminal:
            experiments.update(conn, self.id, searcher_snapshot=None if self._can_replay else self._snapshot(event_id))
        elif not self._can_replay or self._events >= max(FEWEST_EVENTS, len(self.engine.trials)):
            history.take_snapshot(conn, self.id, self.engine, event_id)
            self._events = 0

    def _snapshot(self, event_id: int) -> dict[str, Any]:
        return {"event_id": event_id, "engine": self.engine.snapshot()}

    def note_progress(self, conn: sa.Connection, running: Sequence[int]) -> float:
        """Take over how far the running trials say they are, and return how far the experiment is.

        This changes what is shown, and no decision, so it is not stored as an event.
        """
        if not self.engine.searcher.method.is_outside:
            for ident, progress in trials.progress_of(conn, running).items():
                self.engine.handle(Progressed(self._request_ids[ident], progress))
        return self.engine.progress()

    def _event(self, conn: sa.Connection, told: PendingEvent) -> Event | None:
        if told.kind == "STARTED":
            return None if self.engine.trials else Started()
        if told.kind == "REQUEST":
            return self._request(Request(told.body["action"]))
        if told.kind == "CONTINUED":
            return self._continued(conn)
        if told.kind == "OPERATIONS":
            return Answered(told.body)
        request_id = self._request_ids.get(told.trial_id or 0)
        if request_id is None:
            return None
        if told.kind == "KILL_TRIAL":
            return TrialKillRequested(request_id)
        trial = self.engine.trials[request_id]
        if trial.phase is not Phase.RUNNING or told.attempt != trial.attempts:
            return None  # an older attempt
        if told.kind == "VALIDATED":
            return Validated(request_id, told.body["metrics"], told.body["steps_completed"])
        if told.kind == "INVALID_HP":
            return InvalidHPReported(request_id)
        if told.kind == "ATTEMPT_ENDED":
            row = attempts.of_trial(conn, told.trial_id or 0)[-1]
            return AttemptEnded(request_id, exit_of(row, told.body.get("code"), told.body.get("matched_policy")))
        raise errors.StoreError(f"Experiment {self.id} has a pending event of the unknown kind {told.kind!r}.")

    def _request(self, request: Request) -> Request | None:
        # A search may be over as soon as it has begun: there is nothing to activate then.
        is_over = self.engine.state.is_terminal or self.engine.state.is_stopping
        return None if request is Request.ACTIVATE and is_over else request

    def _continued(self, conn: sa.Connection) -> Continued:
        config = ExperimentConfig.parse(experiments.get(conn, self.id).config or {})
        if config.effective()["searcher"]["name"] != "single":
            return Continued(config.max_restarts)
        # What was drawn is drawn again, and a constant that somebody has changed is the new one.
        return Continued(config.max_restarts, config.space.sample(Generator(config.reproducibility.experiment_seed)))

    def attempt_started(self, conn: sa.Connection, request_id: str) -> None:
        """Note that an attempt of a queued trial has been given its slots."""
        del self.queued[request_id]
        self.perform(conn, AttemptStarted(request_id))

    def attempt_refused(self, conn: sa.Connection, attempt: attempts.Attempt, reason: str) -> None:
        """Note that an attempt which has just begun can run nowhere, and that no other could."""
        attempts.end(conn, attempt.allocation_id, exit_code=1, reason=reason)
        body = {"code": 1, "matched_policy": reason}
        pending.append(conn, self.id, "ATTEMPT_ENDED", body, trial_id=attempt.trial_id, attempt=attempt.attempt)

    def attempt_lost(self, conn: sa.Connection, row: AttemptRow) -> None:
        """Note that the agent of an attempt is gone, without having said how the trial ended."""
        attempts.end(conn, row.allocation_id, reason="Its agent is gone.")
        request_id = self._request_ids[row.trial_id]
        if self.engine.trials[request_id].phase is Phase.RUNNING:
            self.perform(conn, AttemptEnded(request_id, exit_of(row, None, None, lost=not row.killed)))

    # Actions.

    def _apply(self, conn: sa.Connection, action: Action) -> None:
        if isinstance(action, AddTrial):
            self._add(conn, action)
        elif isinstance(action, Queue):
            self.queued[action.request_id] = None
        elif isinstance(action, Dequeue):
            self.queued.pop(action.request_id, None)
        elif isinstance(action, Preempt):
            self._preempt(conn, action)
        elif isinstance(action, Kill):
            self._kill(conn, action.request_id, action.reason, action.after_seconds)
        elif isinstance(action, SetTrial):
            trial_id = self._trial_ids[action.request_id]
            trials.update(conn, trial_id, restarts=action.restarts)
            trials.set_state(conn, trial_id, action.state.value, action.reason)
        elif isinstance(action, SetHparams):
            trials.update(conn, self._trial_ids[action.request_id], hparams=action.hparams)
        elif isinstance(action, SetExperiment):
            experiments.set_state(conn, self.id, action.state.value, action.reason)
            if action.state.is_terminal:
                pending.append(conn, self.id, COLLECT)
        elif isinstance(action, Warn):
            self._warn(conn, action.text)
        elif isinstance(action, Tell):
            events.append(conn, self.id, "SEARCH", {"number": action.number, "event": action.event})

    def _add(self, conn: sa.Connection, action: AddTrial) -> None:
        retention = (self.config.get("retention_policy") or {}).get("log_retention_days")
        ident = trials.create(
            conn,
            self.id,
            hparams=action.hparams,
            request_id=action.request_id,
            state=action.state.value,
            seed=action.seed,
            warm_start_checkpoint_uuid=action.source_checkpoint_uuid or self._warm_start(conn),
            log_retention_days=None if retention in (None, -1) else retention,
        )
        self._trial_ids[action.request_id] = ident
        self._request_ids[ident] = action.request_id

    def _warm_start(self, conn: sa.Connection) -> str | None:
        searcher = self.config.get("searcher") or {}
        if (source := searcher.get("source_trial_id")) is not None:
            newest = checkpoints.newest(conn, source)
            return None if newest is None else newest.uuid
        uuid: str | None = searcher.get("source_checkpoint_uuid")
        return uuid

    def _preempt(self, conn: sa.Connection, action: Preempt) -> None:
        row = attempts.of_trial(conn, self._trial_ids[action.request_id])[-1]
        if row.preempt_requested:
            return  # it was asked before, and the time it has runs from then
        attempts.request_preemption(conn, row.allocation_id)
        # A process that has not come as far as to ask would not hear of it, and has nothing to save.
        after = self.preemption_timeout if row.state == "RUNNING" else 0.0
        self._kill(conn, action.request_id, action.reason, after)
        say(conn, row, f"The trial is asked to stop: {action.reason}")

    def _kill(self, conn: sa.Connection, request_id: str, reason: str, after_seconds: float) -> None:
        row = attempts.of_trial(conn, self._trial_ids[request_id])[-1]
        due = now() + datetime.timedelta(seconds=after_seconds)
        if row.kill_at is None or due < row.kill_at:
            attempts.kill_at(conn, row.allocation_id, due, reason)

    def _reopen(self, conn: sa.Connection) -> None:
        experiments.update(conn, self.id, end_time=None, progress=0.0)
        self.read_settings(conn)
        for request_id, trial in self.engine.trials.items():
            if not trial.state.is_terminal and request_id in self._trial_ids:
                attempts.continue_trial(conn, self._trial_ids[request_id])

    def _warn(self, conn: sa.Connection, text: str) -> None:
        logger.warning("Experiment %d: %s", self.id, text)
        known = experiments.get(conn, self.id).warnings or []
        experiments.update(conn, self.id, warnings=[*known, text])


def exit_of(row: AttemptRow, code: int | None, matched_policy: str | None, *, lost: bool = False) -> Exit:
    """Return how an attempt ended, for the engine to judge."""
    return Exit(
        code=code,
        acknowledged=row.preempt_acked,
        killed=row.killed,
        lost=lost,
        matched_policy=matched_policy,
    )


def say(conn: sa.Connection, row: AttemptRow, text: str) -> None:
    """Add a line of the controller to the trial's log."""
    attempt = attempts.Attempt(
        row.allocation_id, row.task_id, row.trial_id, row.experiment_id, row.attempt, row.run_name
    )
    logs.append(conn, attempt, [LogLine(text, "stdout")], source="controller")
