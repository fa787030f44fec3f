"""Events and actions of a search, and the contract of a search method. `searcher` does the bookkeeping.

A search is a pure function: its configuration, the space, the seed, and the events so far decide every action. So there
are two ways to get one back after a crash, and both give the same later actions as if nothing had happened:

1. From all events: `Searcher.rebuild(searcher, space, seed, events)` hands a new searcher the stored events, in order.
   Their actions are discarded: they were applied when the events first came.
2. From a snapshot: `Searcher.restore(snapshot, searcher, space)`, then `handle()` for the stored events from number
   `snapshot["events"]` on (counted from 0). A snapshot grows with the search, an event does not: store every event, and
   a snapshot now and then.

In both cases one rule makes it safe: an event and what follows from it (the rows of new trials, the stop flags) are
stored in one transaction. What is stored is then exactly what was decided. A method that draws from anything but
`ctx.generator` (older methods like `uuid.uuid4()`) can only come back by way 2, with a snapshot after every event.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from determined import errors
from determined._types import Json
from determined.experiment.generator import Generator
from determined.experiment.hparams import Space


class ExitedReason(enum.Enum):
    """Why a trial ended before its search or its code wanted it to."""

    ERRORED = "ERRORED"
    USER_CANCELED = "USER_CANCELED"
    INVALID_HP = "INVALID_HP"


# --- Actions: what a search asks for, to be applied in the order of its list.


@dataclass(frozen=True)
class Create:
    """A new trial. `source_checkpoint_uuid` is what it starts from, if not from nothing or the experiment's source."""

    request_id: str
    hparams: dict[str, Json]
    seed: int
    source_checkpoint_uuid: str | None = None


@dataclass(frozen=True)
class Stop:
    """The trial has trained enough: checkpoint, end as COMPLETED, never run again. It may be paused."""

    request_id: str


@dataclass(frozen=True)
class Pause:
    """The trial gives up its slots for now: checkpoint, and wait for Resume or Stop. It has not exited."""

    request_id: str


@dataclass(frozen=True)
class Resume:
    """A paused trial trains on from its newest checkpoint."""

    request_id: str


@dataclass(frozen=True)
class Shutdown:
    """The search is over; nothing follows. Trials that still run are stopped.

    Without a flag the experiment is COMPLETED, with `failure` ERROR, with `cancel` CANCELED.
    """

    cancel: bool = False
    failure: bool = False


Action = Create | Stop | Pause | Resume | Shutdown

# --- Events: what happened, told in this order.


@dataclass(frozen=True)
class Initial:
    """The experiment starts; once, also when it is created paused."""


@dataclass(frozen=True)
class TrialCreated:
    """The trial's row exists."""

    request_id: str


@dataclass(frozen=True)
class ValidationCompleted:
    """A validation report is stored."""

    request_id: str
    metrics: dict[str, Json]
    steps_completed: int


@dataclass(frozen=True)
class TrialProgress:
    """How far the trial says it is, 0 to 1. Changes what `progress()` shows, and no decision."""

    request_id: str
    progress: float


@dataclass(frozen=True)
class TrialExitedEarly:
    """The trial ended for a reason of its own, for good; `TrialExited` follows."""

    request_id: str
    reason: ExitedReason


@dataclass(frozen=True)
class TrialExited:
    """The trial reached a state it never leaves."""

    request_id: str


Event = Initial | TrialCreated | ValidationCompleted | TrialProgress | TrialExitedEarly | TrialExited


@dataclass(frozen=True)
class Answer:
    """What a search method in another process decided after event number `event` (see `outside`)."""

    event: int
    actions: tuple[Action, ...] = ()
    progress: float | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the answer as a strict JSON object."""
        return {
            "event": self.event,
            "actions": [to_json(action) for action in self.actions],
            "progress": self.progress if self.progress is None else spell(self.progress),
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Answer:
        """Return the answer that `to_json` wrote."""
        actions = tuple(action_from_json(action) for action in row["actions"])
        return cls(int(row["event"]), actions, read_number(row.get("progress")), tuple(row.get("warnings") or ()))


_ACTIONS = {"create": Create, "stop": Stop, "pause": Pause, "resume": Resume, "shutdown": Shutdown}
_EVENTS = {
    "initial": Initial,
    "trial_created": TrialCreated,
    "validation_completed": ValidationCompleted,
    "trial_progress": TrialProgress,
    "trial_exited_early": TrialExitedEarly,
    "trial_exited": TrialExited,
}
_NAMES: dict[type, str] = {kind: name for name, kind in [*_ACTIONS.items(), *_EVENTS.items()]}
_Kind = TypeVar("_Kind")


def to_json(item: Action | Event) -> dict[str, Json]:
    """Return an action or event as a strict JSON object: its fields, and `type`. NaN and infinity become text.

    Example::

        to_json(Stop("a1"))                 # {"type": "stop", "request_id": "a1"}
        action_from_json(to_json(Stop("a1")))  # Stop("a1")
    """
    fields = {f.name: getattr(item, f.name) for f in dataclasses.fields(item)}
    return {"type": _NAMES[type(item)], **{name: _plain(value) for name, value in fields.items()}}


def action_from_json(row: Mapping[str, Any]) -> Action:
    """Return the action that `to_json` wrote."""
    return _from_json(row, _ACTIONS)


def event_from_json(row: Mapping[str, Any]) -> Event:
    """Return the event that `to_json` wrote. NaN and infinity stay text; the searcher reads them as numbers."""
    return _from_json(row, _EVENTS)


def _from_json(row: Mapping[str, Any], kinds: Mapping[str, type[_Kind]]) -> _Kind:
    fields = dict(row)
    kind = kinds.get(fields.pop("type", None) or "")
    if kind is None:
        raise errors.SearchError(f"{dict(row)!r} has no known type; expected one of {', '.join(kinds)}.")
    if "reason" in fields:
        fields["reason"] = ExitedReason(fields["reason"])
    return kind(**fields)


def _plain(value: Any) -> Json:
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return spell(value) if isinstance(value, float) else value


def spell(value: float) -> float | str:
    """Return a number as strict JSON can hold it: NaN and infinity are text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def read_number(value: Any) -> float | None:
    """Return a reported value as a number, also one that came as text; None if it is none.

    Example::

        [read_number(v) for v in (1, "NaN", "-Infinity", "0.5", "high", None, True)]
        # [1, nan, -inf, 0.5, None, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


# --- What a search method is given, and what it has to be.


@dataclass
class SearchState:
    """What the searcher keeps for every method: how many trials there were, and how far those that live have come."""

    requested: int = 0
    exited: int = 0
    invalid: int = 0
    completed: int = 0
    errored: int = 0
    canceled: int = 0
    live: dict[str, float] = field(default_factory=dict)
    """Trials that have not exited, with the progress each last reported."""

    def work_done(self) -> float:
        """Trials' worth of training: 1 for each that exited, except invalid ones, and the progress of the others."""
        return self.exited - self.invalid + math.fsum(self.live.values())


class SearchContext:
    """What a method may use while it decides.

    Args:
        generator: The experiment's generator. Draw from nothing else, and the search can be rebuilt.
        space: The declared hyperparameters.
        searcher: The `searcher` section of the configuration, defaults filled in.
    """

    def __init__(self, generator: Generator, space: Space, searcher: Mapping[str, Any] | None = None) -> None:
        self.generator = generator
        self.space = space
        self.searcher = dict(searcher or {})
        self.warnings: list[str] = []

    @property
    def metric(self) -> str:
        """The searcher metric's name."""
        return str(self.searcher.get("metric", ""))

    def create(self, hparams: Mapping[str, Json] | None = None, *, source_checkpoint_uuid: str | None = None) -> Create:
        """A new trial. Draws, in this order: hyperparameters (unless given), request id, seed of the trial.

        Example::

            def initial_trials(self, ctx):
                return [ctx.create(), ctx.create({"lr": 0.1})]
        """
        values = self.space.sample(self.generator) if hparams is None else dict(hparams)
        request_id = self.generator.uuid4()
        return Create(request_id, values, self.generator.trial_seed(), source_checkpoint_uuid)

    def warn(self, text: str) -> None:
        """Show this text to the user, once, when this event has been handled."""
        self.warnings.append(text)


class SearchMethod:
    """Decides which trials there are, and when they end. Subclass it for a search of your own.

    Every method is told of one event and returns what to do, in order. All that must survive a restart goes through
    `snapshot()` and `restore()`, as JSON. The search ends by itself when every trial has exited; return a `Shutdown` to
    end it sooner. A method never sees invalid input: an event comes once, only for trials that live, and
    `metrics` always has the searcher metric, as a float (NaN and infinity possible), and `batches`.

    Example::

        class FirstGood(SearchMethod):
            '''Random trials until one is good enough.'''

            def initial_trials(self, ctx):
                return [ctx.create() for _ in range(4)]

            def validation_completed(self, ctx, request_id, metrics):
                return [Shutdown()] if metrics[ctx.metric] < 0.1 else []

            def trial_exited(self, ctx, request_id):
                return [ctx.create()]
    """

    uses_metrics: ClassVar[bool] = True
    """Whether a trial that ends without ever reporting the searcher metric has failed, as far as the search goes."""

    is_outside: ClassVar[bool] = False
    """Whether the decisions come from another process, as answers: see `outside`."""

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        """Return the first trials."""
        raise NotImplementedError(
            f"{type(self).__name__} has no initial_trials(ctx). Return for example [ctx.create()]."
        )

    def trial_created(self, ctx: SearchContext, request_id: str) -> list[Action]:  # noqa: ARG002
        """The trial exists now."""
        return []

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:  # noqa: ARG002
        """The trial reported a validation, with the searcher metric in it."""
        return []

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:  # noqa: ARG002
        """The trial is over. Comes for every trial, after `trial_exited_early` if there was one."""
        return []

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:  # noqa: ARG002
        """The trial failed for good, was killed, or found its hyperparameters unusable."""
        return []

    def progress(self, state: SearchState) -> float:
        """Return how far the search has come, 0 to 1."""
        return state.work_done() / state.requested if state.requested else 0.0

    def snapshot(self) -> dict[str, Any]:
        """Return everything that must survive a restart, as JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `snapshot` returned."""


def creates(actions: Iterable[Action]) -> list[Create]:
    """Return the new trials among some actions."""
    return [action for action in actions if isinstance(action, Create)]
