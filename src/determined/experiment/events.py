"""What happens to an experiment, and what is done about it: the words between the controller and the engine."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from determined._types import Json
from determined.experiment.lifecycle import Exit, State

# --- Happenings: what the controller saw, or was asked for.


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
    """A person wants this trial gone; the others go on."""

    request_id: str


@dataclass(frozen=True)
class AttemptStarted:
    """The trial has its slots, and a new attempt begins."""

    request_id: str


@dataclass(frozen=True)
class Validated:
    """A validation report is stored."""

    request_id: str
    metrics: dict[str, Json]
    steps_completed: int


@dataclass(frozen=True)
class Progressed:
    """The trial said how far it is."""

    request_id: str
    progress: float


@dataclass(frozen=True)
class InvalidHPReported:
    """The trial cannot be trained with these hyperparameters, and is about to leave."""

    request_id: str


@dataclass(frozen=True)
class AttemptEnded:
    """The processes of the trial's attempt are gone."""

    request_id: str
    exit: Exit


Happening = (
    Started | Request | TrialKillRequested | AttemptStarted | Validated | Progressed | InvalidHPReported | AttemptEnded
)

# --- Deeds: what the controller does about it.


@dataclass(frozen=True)
class AddTrial:
    """Make the trial's row, in this state."""

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
    """Do not start it after all."""

    request_id: str


@dataclass(frozen=True)
class Preempt:
    """Ask the trial's processes to save and leave; kill them after the experiment's `preemption_timeout`."""

    request_id: str
    reason: str


@dataclass(frozen=True)
class Kill:
    """End the trial's processes, after so many seconds of grace."""

    request_id: str
    reason: str
    after_seconds: float = 0.0


@dataclass(frozen=True)
class SetTrial:
    """The trial's row changes."""

    request_id: str
    state: State
    reason: str
    restarts: int


@dataclass(frozen=True)
class SetExperiment:
    """The experiment's row changes."""

    state: State
    reason: str


@dataclass(frozen=True)
class Warn:
    """Tell the user."""

    text: str


Deed = AddTrial | Queue | Dequeue | Preempt | Kill | SetTrial | SetExperiment | Warn
