"""What goes into the engine (events) and what comes out of it (actions): the interface to the controller.

An event says what happened; the controller stores it. An action says what to do; the controller performs it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from determined import errors
from determined._types import Json
from determined.experiment.lifecycle import Exit, State

# --- Events: what the controller observed, or was asked for.


@dataclass(frozen=True)
class Started:
    """The experiment was submitted. It is PAUSED until somebody activates it."""


class Request(enum.Enum):
    """What a person may ask of an experiment."""

    ACTIVATE = "activate"
    PAUSE = "pause"
    CANCEL = "cancel"
    KILL = "kill"


@dataclass(frozen=True)
class TrialKillRequested:
    """A person asked to kill this one trial; the others continue."""

    request_id: str


@dataclass(frozen=True)
class AttemptStarted:
    """The trial has its slots, and the processes of a new attempt were started."""

    request_id: str


@dataclass(frozen=True)
class Validated:
    """A validation report is stored."""

    request_id: str
    metrics: dict[str, Json]
    steps_completed: int


@dataclass(frozen=True)
class Progressed:
    """The trial reported its progress, 0 to 1."""

    request_id: str
    progress: float


@dataclass(frozen=True)
class InvalidHPReported:
    """The trial raised InvalidHP: it cannot be trained with these hyperparameters, and is about to exit."""

    request_id: str


@dataclass(frozen=True)
class AttemptEnded:
    """All processes of the trial's attempt have exited."""

    request_id: str
    exit: Exit


@dataclass(frozen=True)
class Answered:
    """A search method in another process decided: `answer` is a `search.base.Answer` as JSON."""

    answer: dict[str, Json]


@dataclass(frozen=True)
class Continued:
    """The experiment had ended and is continued: PAUSED again, and trials that are not COMPLETED will run again.

    `max_restarts` is what its configuration says from now on, and `hparams` those of the trial of a single search;
    None leaves them.
    """

    max_restarts: int | None = None
    hparams: dict[str, Json] | None = None


Event = (
    Started
    | Request
    | TrialKillRequested
    | AttemptStarted
    | Validated
    | Progressed
    | InvalidHPReported
    | AttemptEnded
    | Answered
    | Continued
)

_KINDS: dict[str, type] = {
    "started": Started,
    "request": Request,
    "trial_kill_requested": TrialKillRequested,
    "attempt_started": AttemptStarted,
    "validated": Validated,
    "progressed": Progressed,
    "invalid_hp_reported": InvalidHPReported,
    "attempt_ended": AttemptEnded,
    "answered": Answered,
    "continued": Continued,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(event: Event) -> dict[str, Any]:
    """Return an event as a JSON object: its fields, and `type`.

    Example::

        to_json(AttemptStarted("a1"))             # {"type": "attempt_started", "request_id": "a1"}
        from_json(to_json(AttemptStarted("a1")))  # AttemptStarted("a1")
    """
    if isinstance(event, Request):
        return {"type": "request", "action": event.value}
    return {"type": _NAMES[type(event)], **dataclasses.asdict(event)}


def from_json(row: Mapping[str, Any]) -> Event:
    """Return the event that `to_json` wrote."""
    fields = dict(row)
    kind = _KINDS.get(fields.pop("type", ""))
    if kind is None:
        raise errors.StoreError(f"{dict(row)!r} is no event of an experiment: its type is none of {', '.join(_KINDS)}.")
    if kind is Request:
        return Request(fields["action"])
    if "exit" in fields:
        fields["exit"] = Exit(**fields["exit"])
    event: Event = kind(**fields)
    return event


# --- Actions: what the controller does, in the order in which they are returned.


@dataclass(frozen=True)
class AddTrial:
    """Insert the trial's row, in this state."""

    request_id: str
    hparams: dict[str, Json]
    seed: int
    state: State
    source_checkpoint_uuid: str | None = None


@dataclass(frozen=True)
class Queue:
    """Start an attempt as soon as the slots are free."""

    request_id: str


@dataclass(frozen=True)
class Dequeue:
    """Take the trial out of the queue."""

    request_id: str


@dataclass(frozen=True)
class Preempt:
    """Ask the trial's processes to checkpoint and exit; kill them after the experiment's `preemption_timeout`."""

    request_id: str
    reason: str


@dataclass(frozen=True)
class Kill:
    """Kill the trial's processes, after `after_seconds` in which they may exit by themselves."""

    request_id: str
    reason: str
    after_seconds: float = 0.0


@dataclass(frozen=True)
class SetTrial:
    """Update the trial's row."""

    request_id: str
    state: State
    reason: str
    restarts: int


@dataclass(frozen=True)
class SetHparams:
    """Update the hyperparameters in the trial's row: its next attempt is started with these."""

    request_id: str
    hparams: dict[str, Json]


@dataclass(frozen=True)
class SetExperiment:
    """Update the experiment's row."""

    state: State
    reason: str


@dataclass(frozen=True)
class Warn:
    """Show this text to the user."""

    text: str


@dataclass(frozen=True)
class Tell:
    """Store this event of the search, a `search.base.Event` as JSON, for the method in another process to read."""

    number: int
    event: dict[str, Json]


Action = AddTrial | Queue | Dequeue | Preempt | Kill | SetTrial | SetHparams | SetExperiment | Warn | Tell
