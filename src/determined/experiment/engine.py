"""One experiment as a pure state machine: an event in, the actions it calls for out. No clock, no files, no processes.

The controller calls `Engine.handle` with one event at a time and performs the returned actions, in order, in the
transaction that stores the event. Events and actions are in `events`, states and the meaning of an exit in `lifecycle`;
which trials there are is decided by the `Searcher`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from determined import errors
from determined.experiment import lifecycle
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
from determined.experiment.lifecycle import State
from determined.experiment.search import base
from determined.experiment.search.base import ExitedReason
from determined.experiment.search.searcher import Searcher

INVALID_HP_SECONDS = 10.0
"""How many seconds a trial that reported InvalidHP has to exit by itself."""


class Phase(str, enum.Enum):
    """What the controller has of a trial: nothing, a place in the queue, or running processes."""

    IDLE = "IDLE"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"


@dataclass
class Trial:
    """What the engine knows about one trial."""

    state: State
    phase: Phase = Phase.IDLE
    restarts: int = 0
    attempts: int = 0
    is_invalid: bool = False  # it reported InvalidHP
    is_held: bool = False  # the search paused it, so that activating the experiment does not start it
    is_again: bool = False  # it had ended, and the experiment was continued


class Engine:
    """One experiment: events in, actions out.

    What comes in and goes out is listed in `events`. The order of a trial's events is: `AttemptStarted` after its
    `Queue`, then any number of `Validated`, `Progressed` and `InvalidHPReported`, then `AttemptEnded`. After a crash,
    `Searcher.restore` and `restore()` bring back what `snapshot()` returned; nothing else is needed.

    Args:
        searcher: Decides which trials there are, and when they end.
        max_restarts: How many failures of a trial are followed by another attempt.
        name: What messages call the experiment.

    Attributes:
        state: The experiment's state.
        trials: Every trial that was created, by request id.

    Example::

        engine = Engine(Searcher(config, space, seed), max_restarts=5)
        engine.handle(Started())           # [AddTrial(...), ...]
        engine.handle(Request.ACTIVATE)    # [SetExperiment(ACTIVE), SetTrial(...), Queue(...), ...]
    """

    def __init__(self, searcher: Searcher, *, max_restarts: int, name: str = "The experiment") -> None:
        self.searcher = searcher
        self.state = State.PAUSED
        self.trials: dict[str, Trial] = {}
        self._max_restarts = max_restarts
        self._name = name
        self._open = 0  # trials that have not ended
        self._cause = ""  # why it is stopped, unless its search is simply over
        self._uncreated: list[base.Create] = []  # what the search asked for while the experiment was stopping
        self._ends: dict[State, int] = {}
        self._actions: list[Action] = []

    def handle(self, event: Event) -> list[Action]:
        """Take in one event, and return the actions it calls for, to be performed in order.

        Raises:
            IllegalMove: A person asked for what this state does not allow. Nothing changed.
            NotFound: The event names a trial that was never created. Nothing changed.
        """
        self._actions = []
        self._HANDLERS[type(event)](self, event)
        return self._actions

    def progress(self) -> float:
        """Return how far the experiment is, 0 to 1; exactly 1 when it is COMPLETED."""
        return 1.0 if self.state is State.COMPLETED else self.searcher.progress()

    def snapshot(self) -> dict[str, Any]:
        """Return everything that must survive a restart, as strict JSON."""
        return {
            "state": self.state.value,
            "cause": self._cause,
            "trials": {request_id: dataclasses.asdict(trial) for request_id, trial in self.trials.items()},
            "uncreated": [base.to_json(create) for create in self._uncreated],
            "searcher": self.searcher.snapshot(),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from `snapshot`. The searcher given to the constructor comes from `Searcher.restore`."""
        self.state = State(snapshot["state"])
        self._cause = snapshot.get("cause", "")
        self.trials = {
            request_id: Trial(**{**row, "state": State(row["state"]), "phase": Phase(row["phase"])})
            for request_id, row in snapshot["trials"].items()
        }
        self._uncreated = base.creates(map(base.action_from_json, snapshot["uncreated"]))
        self._count_ends()

    def _count_ends(self) -> None:
        self._ends = {}
        for trial in self.trials.values():
            if trial.state.is_terminal:
                self._ends[trial.state] = self._ends.get(trial.state, 0) + 1
        self._open = len(self.trials) - sum(self._ends.values())

    # Requests of people.

    def _start(self, _: Started) -> None:
        self._search(base.Initial())

    def _request(self, request: Request) -> None:
        if request is Request.ACTIVATE:
            self._activate()
        elif request is Request.PAUSE:
            self._pause()
        elif request is Request.CANCEL:
            if not (self.state.is_stopping or self.state.is_terminal):
                self._stop_everything(State.STOPPING_CANCELED, "Somebody canceled the experiment.")
        elif not (self.state in (State.STOPPING_KILLED, State.STOPPING_ERROR) or self.state.is_terminal):
            self._stop_everything(State.STOPPING_KILLED, "Somebody killed the experiment.")

    def _activate(self) -> None:
        if not self._move(State.ACTIVE, "Somebody activated the experiment."):
            return
        for request_id, trial in self.trials.items():
            if trial.state is State.PAUSED and not trial.is_held:
                self._set(request_id, State.ACTIVE, "The experiment was activated.")
                self._queue(request_id)

    def _pause(self) -> None:
        if not self._move(State.PAUSED, "Somebody paused the experiment."):
            return
        for request_id, trial in self.trials.items():
            if trial.state is State.ACTIVE:
                self._hold(request_id, "The experiment was paused.")

    def _kill_trial(self, asked: TrialKillRequested) -> None:
        trial = self._trial(asked.request_id)
        if not trial.state.is_terminal:
            self._stop(asked.request_id, State.STOPPING_KILLED, "Somebody killed the trial.")

    def _continue(self, event: Continued) -> None:
        """Start over with what has not COMPLETED, and with the trials that were not created because of the end."""
        if not self.state.is_terminal:
            raise errors.IllegalMove(f"{self._name} is {self.state.value}; only one that has ended can be continued.")
        self.state, self._cause = State.PAUSED, ""
        if event.max_restarts is not None:
            self._max_restarts = event.max_restarts
        self._actions.append(SetExperiment(State.PAUSED, "Somebody continued the experiment."))
        again = [request_id for request_id, trial in self.trials.items() if trial.state is not State.COMPLETED]
        for request_id in again:
            attempts = self.trials[request_id].attempts
            self.trials[request_id] = Trial(State.PAUSED, attempts=attempts, is_again=True)
            self._actions.append(SetTrial(request_id, State.PAUSED, "The experiment was continued.", 0))
            if event.hparams is not None:
                self._actions.append(SetHparams(request_id, event.hparams))
        self._count_ends()
        self.searcher.reopen(again)
        if not again:
            self._create_uncreated(len(self._uncreated))

    def _create_uncreated(self, most: int) -> None:
        """Create trials that the search asked for while the experiment was stopping; it takes them for created."""
        created, self._uncreated = self._uncreated[:most], self._uncreated[most:]
        for create in created:
            self._create(create)
            self._search(base.TrialCreated(create.request_id))

    # Events of trials.

    def _attempt_started(self, started: AttemptStarted) -> None:
        trial = self._trial(started.request_id)
        trial.phase = Phase.RUNNING
        trial.attempts += 1

    def _validated(self, report: Validated) -> None:
        if not self._trial(report.request_id).state.is_terminal:
            self._search(base.ValidationCompleted(report.request_id, report.metrics, report.steps_completed))

    def _progressed(self, report: Progressed) -> None:
        if not self._trial(report.request_id).state.is_terminal:
            self._search(base.TrialProgress(report.request_id, report.progress))

    def _invalid_hp(self, report: InvalidHPReported) -> None:
        trial = self._trial(report.request_id)
        if trial.phase is Phase.RUNNING and not trial.is_invalid:
            trial.is_invalid = True
            self._actions.append(Kill(report.request_id, "The trial raised InvalidHP.", INVALID_HP_SECONDS))

    def _attempt_ended(self, ended: AttemptEnded) -> None:
        request_id, trial = ended.request_id, self._trial(ended.request_id)
        if trial.phase is Phase.RUNNING:
            trial.phase = Phase.IDLE
        if trial.state.is_terminal:
            return
        verdict = lifecycle.judge(
            ended.exit,
            trial.state,
            restarts=trial.restarts,
            max_restarts=self._max_restarts,
            is_invalid=trial.is_invalid,
        )
        trial.restarts = verdict.restarts
        if verdict.state is not None:
            self._end(request_id, verdict.state, verdict.reason, verdict.early)
            return
        trial.is_invalid = False
        self._actions.append(SetTrial(request_id, trial.state, verdict.reason, trial.restarts))
        if trial.state is State.ACTIVE:
            self._queue(request_id)

    # The search: its events, and its actions.

    def _search(self, event: base.Event) -> None:
        if self.searcher.method.is_outside:
            self._actions.append(Tell(self.searcher.events + 1, base.to_json(event)))
        self._follow(lambda: self.searcher.handle(event))

    def _answered(self, told: Answered) -> None:
        self._follow(lambda: self.searcher.answer(base.Answer.from_json(told.answer)))

    def _follow(self, decide: Callable[[], list[base.Action]]) -> None:
        """Do what the search decides."""
        try:
            actions = decide()
        except Exception as failed:  # noqa: BLE001 - a search method of the user's own may raise anything
            if not self.state.is_terminal:
                self._stop_everything(State.STOPPING_ERROR, f"The search failed with {type(failed).__name__}: {failed}")
            return
        self._actions += [Warn(text) for text in self.searcher.warnings]
        for action in actions:
            self._apply(action)
        for create in base.creates(actions):  # after all actions: an answer may name any of the new trials
            if create.request_id in self.trials:
                self._search(base.TrialCreated(create.request_id))

    def _apply(self, action: base.Action) -> None:
        if isinstance(action, base.Create):
            self._create(action)
        elif isinstance(action, base.Shutdown):
            self._shut_down(action)
        elif action.request_id not in self.trials:
            return  # it was not created, because the experiment was already stopping
        elif isinstance(action, base.Stop):
            self._stop(action.request_id, State.STOPPING_COMPLETED, "The search stopped this trial.")
        elif isinstance(action, base.Pause):
            trial = self.trials[action.request_id]
            trial.is_held = True
            if trial.state is State.ACTIVE:
                self._hold(action.request_id, "The search paused this trial.")
        else:
            trial = self.trials[action.request_id]
            trial.is_held = False
            if trial.state is State.PAUSED and self.state is State.ACTIVE:
                self._set(action.request_id, State.ACTIVE, "The search resumed this trial.")
                self._queue(action.request_id)

    def _create(self, action: base.Create) -> None:
        if self.state not in (State.ACTIVE, State.PAUSED):
            self._uncreated.append(action)
            return
        self.trials[action.request_id] = Trial(self.state)
        self._open += 1
        self._actions.append(
            AddTrial(action.request_id, action.hparams, action.seed, self.state, action.source_checkpoint_uuid)
        )
        self._queue(action.request_id)

    def _shut_down(self, end: base.Shutdown) -> None:
        if self.state.is_stopping or self.state.is_terminal:
            self._finish_if_done()
            return
        if end.failure:
            self._stop_everything(State.STOPPING_ERROR, "The search failed.")
        elif end.cancel:
            self._stop_everything(State.STOPPING_CANCELED, "The search was canceled.")
        else:
            self._stop_everything(State.STOPPING_COMPLETED, "The search is over.")

    # The end of trials and of the experiment.

    def _stop_everything(self, to: State, reason: str) -> None:
        if self._move(to, reason) and to is not State.STOPPING_COMPLETED:
            self._cause = f"{reason.removesuffix('.')}. "
        for request_id, trial in list(self.trials.items()):
            if not trial.state.is_terminal:
                self._stop(request_id, to, reason)
        self._finish_if_done()

    def _stop(self, request_id: str, to: State, reason: str) -> None:
        """Stop one trial; one that is already stopping can only be stopped more severely."""
        trial = self.trials[request_id]
        if trial.state.is_terminal or trial.state is to or to not in lifecycle.TRIAL_MOVES[trial.state]:
            return
        self._set(request_id, to, reason)
        if trial.phase is Phase.RUNNING:
            kills = to in (State.STOPPING_KILLED, State.STOPPING_ERROR)
            self._actions.append(Kill(request_id, reason) if kills else Preempt(request_id, reason))
            return
        self._dequeue(request_id)
        self._end(request_id, to.end, reason, lifecycle.early_reason(to.end))

    def _end(self, request_id: str, state: State, reason: str, early: ExitedReason | None) -> None:
        self._set(request_id, state, reason)
        self._open -= 1
        self._ends[state] = self._ends.get(state, 0) + 1
        if early is not None:
            self._search(base.TrialExitedEarly(request_id, early))
        self._search(base.TrialExited(request_id))
        if self.trials[request_id].is_again and not self.state.is_stopping:
            self._create_uncreated(1)  # what the search answered when this trial ended for the first time
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if not self.state.is_stopping or self._open:
            return
        end = lifecycle.result_of(self._ends) if self.state is State.STOPPING_COMPLETED else self.state.end
        if self.state is State.STOPPING_COMPLETED and end is State.CANCELED:
            self._move(State.STOPPING_KILLED, "Every trial was canceled.")
        self._move(end, f"{self._cause}All trials have ended: {self._tally()}.")

    def _tally(self) -> str:
        return ", ".join(f"{count} {state.value}" for state, count in self._ends.items()) or "there were none"

    # Single changes of state, each with its action.

    def _trial(self, request_id: str) -> Trial:
        if request_id not in self.trials:
            raise errors.NotFound(f"{self._name} has no trial with the request id {request_id!r}.")
        return self.trials[request_id]

    def _move(self, to: State, reason: str) -> bool:
        if not lifecycle.move(self._name, self.state, to):
            return False
        self.state = to
        self._actions.append(SetExperiment(to, reason))
        return True

    def _set(self, request_id: str, state: State, reason: str) -> None:
        trial = self.trials[request_id]
        trial.state = state
        self._actions.append(SetTrial(request_id, state, reason, trial.restarts))

    def _hold(self, request_id: str, reason: str) -> None:
        self._set(request_id, State.PAUSED, reason)
        if self.trials[request_id].phase is Phase.RUNNING:
            self._actions.append(Preempt(request_id, reason))
        self._dequeue(request_id)

    def _queue(self, request_id: str) -> None:
        """Queue the trial, unless it still runs: then the end of its attempt queues it."""
        trial = self.trials[request_id]
        if trial.state is State.ACTIVE and trial.phase is Phase.IDLE:
            trial.phase = Phase.QUEUED
            self._actions.append(Queue(request_id))

    def _dequeue(self, request_id: str) -> None:
        trial = self.trials[request_id]
        if trial.phase is Phase.QUEUED:
            trial.phase = Phase.IDLE
            self._actions.append(Dequeue(request_id))

    _HANDLERS: Mapping[type, Callable[[Engine, Any], None]] = {
        Started: _start,
        Request: _request,
        TrialKillRequested: _kill_trial,
        AttemptStarted: _attempt_started,
        Validated: _validated,
        Progressed: _progressed,
        InvalidHPReported: _invalid_hp,
        Answered: _answered,
        AttemptEnded: _attempt_ended,
        Continued: _continue,
    }
