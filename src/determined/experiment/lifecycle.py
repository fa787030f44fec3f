"""States of experiments and trials, the legal moves between them, and how the end of a process is judged. All pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from determined import errors
from determined.experiment.search.base import ExitedReason


class State(str, enum.Enum):
    """The state of an experiment or trial. The names are those of the store's `state` columns."""

    PAUSED = "PAUSED"
    ACTIVE = "ACTIVE"
    RUNNING = "RUNNING"  # of unmanaged trials, which nobody schedules
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"
    DELETED = "DELETED"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing runs, and nothing will unless somebody continues the experiment."""
        return self in (State.COMPLETED, State.CANCELED, State.ERROR)

    @property
    def is_stopping(self) -> bool:
        """Whether the end is decided and processes are still exiting."""
        return self in ENDS

    @property
    def end(self) -> State:
        """The terminal state that a stopping state leads to."""
        return ENDS[self]


ENDS = {  # by severity: a stopping trial only ever moves down this list
    State.STOPPING_COMPLETED: State.COMPLETED,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
    State.STOPPING_ERROR: State.ERROR,
}
_STOPPING = tuple(ENDS)

EXPERIMENT_MOVES: Mapping[State, tuple[State, ...]] = {
    State.PAUSED: (State.ACTIVE, *_STOPPING, State.ERROR),
    State.ACTIVE: (State.PAUSED, *_STOPPING, State.ERROR),
    State.STOPPING_COMPLETED: (State.COMPLETED, State.STOPPING_KILLED, State.STOPPING_ERROR, State.ERROR),
    State.STOPPING_CANCELED: (State.CANCELED, State.STOPPING_KILLED, State.STOPPING_ERROR, State.ERROR),
    State.STOPPING_KILLED: (State.CANCELED, State.STOPPING_ERROR, State.ERROR),
    State.STOPPING_ERROR: (State.ERROR,),
    State.COMPLETED: (State.DELETING,),
    State.CANCELED: (State.DELETING,),
    State.ERROR: (State.DELETING,),
    State.DELETING: (State.DELETED, State.DELETE_FAILED),
    State.DELETE_FAILED: (State.DELETING,),
    State.DELETED: (),
}

_ENDED = (State.COMPLETED, State.CANCELED, State.ERROR)
TRIAL_MOVES: Mapping[State, tuple[State, ...]] = {
    State.PAUSED: (State.ACTIVE, *_STOPPING, *_ENDED),
    State.ACTIVE: (State.PAUSED, *_STOPPING, *_ENDED),
    State.RUNNING: _ENDED,
    **{state: (*_STOPPING[place + 1 :], state.end, State.ERROR) for place, state in enumerate(_STOPPING)},
    **dict.fromkeys(_ENDED, ()),
}


def move(of: str, state: State, to: State, moves: Mapping[State, tuple[State, ...]] = EXPERIMENT_MOVES) -> bool:
    """Return whether moving from `state` to `to` changes anything; moving to the present state does not.

    Args:
        of: What moves, for the message: "Experiment 7".
        state: Where it is.
        to: Where it is wanted.
        moves: `EXPERIMENT_MOVES` or `TRIAL_MOVES`.

    Raises:
        IllegalMove: There is no way from here to there.

    Example::

        move("Experiment 7", State.ACTIVE, State.PAUSED)  # True
    """
    if state is to:
        return False
    if to not in moves[state]:
        possible = ", ".join(each.value for each in moves[state]) or "nothing"
        rest = "It has ended." if state.is_terminal else f"It can become: {possible}."
        raise errors.IllegalMove(f"{of} is {state.value}, so it cannot become {to.value}. {rest}")
    return True


@dataclass(frozen=True)
class Exit:
    """How the processes of one attempt ended, as seen from outside.

    Args:
        code: The exit code; None if nobody could see one.
        acknowledged: The trial had acknowledged the request to stop.
        killed: The controller killed it: after a grace period, or on request.
        lost: The machine, the executor or the controller failed, not the trial.
        matched_policy: The log line that matched a `cancel_retries` policy, if one did.
    """

    code: int | None = 0
    acknowledged: bool = False
    killed: bool = False
    lost: bool = False
    matched_policy: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What an exit means for its trial. Without a final `state` the trial goes on in another attempt."""

    state: State | None
    reason: str
    restarts: int
    early: ExitedReason | None = None


def judge(exit: Exit, state: State, *, restarts: int, max_restarts: int, is_invalid: bool = False) -> Verdict:
    """Return what the end of an attempt means for its trial.

    Args:
        exit: How it ended.
        state: The trial's state when it did.
        restarts: How often the trial has failed before.
        max_restarts: How often it may.
        is_invalid: The trial had reported InvalidHP.

    Example::

        judge(Exit(code=1), State.ACTIVE, restarts=0, max_restarts=0).state  # State.ERROR
    """
    if state.is_stopping:
        if exit.code == 0 or exit.killed or exit.acknowledged or exit.lost:
            return Verdict(state.end, _because(exit), restarts, early_reason(state.end))
        reason = f"The trial was asked to stop, and failed with exit code {exit.code} instead."
        return Verdict(State.ERROR, reason, restarts, ExitedReason.ERRORED)
    if is_invalid and not exit.lost and (exit.killed or exit.code == 0) and not exit.acknowledged:
        return Verdict(State.COMPLETED, "The trial raised InvalidHP.", restarts, ExitedReason.INVALID_HP)
    if exit.lost or exit.acknowledged or exit.killed:
        return Verdict(None, _because(exit), restarts)
    if exit.code == 0:
        return Verdict(State.COMPLETED, "The trial ended by itself.", restarts)
    if exit.matched_policy is not None:
        reason = f"The trial failed with exit code {exit.code} and is not tried again: {exit.matched_policy}"
        return Verdict(State.ERROR, reason, restarts, ExitedReason.ERRORED)
    failed = f"The trial failed with exit code {exit.code}"
    if restarts + 1 > max_restarts:
        reason = f"{failed}, and max_restarts is {max_restarts}."
        return Verdict(State.ERROR, reason, restarts, ExitedReason.ERRORED)  # no restart follows this one
    return Verdict(None, f"{failed}; this is restart {restarts + 1} of {max_restarts}.", restarts + 1)


def _because(exit: Exit) -> str:
    if exit.lost:
        return "Its machine or its executor went away."
    if exit.acknowledged:
        return "The trial stopped when it was asked to."
    return "The trial was killed." if exit.killed else "The trial ended."


def early_reason(end: State) -> ExitedReason | None:
    """Return the reason that the search is given for a trial that ended in this state."""
    return {State.CANCELED: ExitedReason.USER_CANCELED, State.ERROR: ExitedReason.ERRORED}.get(end)


def shown_restarts(restarts: int, max_restarts: int) -> int:
    """Return the number of restarts to show: the last failure was not followed by one."""
    return min(restarts, max_restarts)


def result_of(ends: Iterable[State]) -> State:
    """Return the final state of an experiment whose search is over and whose trials ended in these states.

    Example::

        result_of([State.ERROR, State.COMPLETED])  # State.COMPLETED
    """
    found = set(ends)
    if State.COMPLETED in found or not found:
        return State.COMPLETED
    return State.ERROR if State.ERROR in found else State.CANCELED


def state_of_unmanaged(trials: Iterable[State]) -> State:
    """Return the state of an unmanaged experiment: that of its most advanced trial."""
    order = (State.RUNNING, State.COMPLETED, State.ERROR, State.CANCELED, State.PAUSED)
    found = set(trials)
    return next((state for state in order if state in found), State.PAUSED)


def shown_state(state: State, allocations: Iterable[str]) -> str:
    """Return the state to show: for an ACTIVE experiment or trial, that of its most advanced allocation."""
    if state is not State.ACTIVE:
        return str(state.value)
    found = set(allocations)
    if found & {"RUNNING", "TERMINATING"}:
        return "RUNNING"
    return "STARTING" if found & {"ASSIGNED", "STARTING"} else "QUEUED"
