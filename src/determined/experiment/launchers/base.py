"""What the controller tells a launcher to start, and what it may ask of one."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from determined._types import Json
from determined.experiment.slots import Slots

if TYPE_CHECKING:
    from determined.store.attempts import AttemptRow

AGENT = "determined.experiment.attempt.agent"
"""The program that runs an attempt; its task is on its standard input."""


@dataclass(frozen=True)
class Place:
    """The nodes of a cluster that run an attempt together, and which of them this task is for.

    Attributes:
        rank: This node, by its place in the lists.
        nodes: What people call the nodes.
        addresses: How ranks reach them.
        slot_ids: The devices of each node; those of a CPU have no names of their own.
        port: Where the ranks of several nodes meet, on the first.
        secret: What ranks of several nodes sign their messages with.
        marks: Files that the controller has put into directories for checkpoints, each with its content.
        controller: The machine of the controller.
        settings: The variables that a controller needs to choose the same launcher.
    """

    rank: int
    nodes: list[str]
    addresses: list[str]
    slot_ids: list[list[str]]
    port: int | None = None
    secret: str = ""
    marks: dict[str, str] = field(default_factory=dict)
    controller: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The name of this node."""
        return self.nodes[self.rank]

    @property
    def is_first(self) -> bool:
        """Whether this node's agent records the attempt: one of them does."""
        return self.rank == 0


@dataclass(frozen=True)
class TaskSpec:
    """Everything that is needed to run one attempt of a trial, as plain JSON.

    Attributes:
        store: The store's address, as `open_store` takes it.
        home: The data directory.
        store_id: The store's own id.
        config: The effective config, with its secrets; never written to the store or to a log.
        slot_kind: `cpu` or `cuda`.
        slot_ids: Names of this attempt's devices.
        threads: How many CPU threads this attempt may use.
        latest_checkpoint: The checkpoint to go on from, of this trial or of its warm start.
        steps_completed: The steps of that checkpoint; 0 for a warm start.
        code_snapshot_id: The code to run; None is none.
        versions: Those of whoever submitted the experiment, which the nodes of a cluster must have, too.
        excluded_nodes: Nodes of a cluster that the trial must not run on any more.
        place: The nodes of a cluster that it runs on; None is this machine.
    """

    store: str
    home: str
    store_id: str
    allocation_id: str
    task_id: str
    experiment_id: int
    trial_id: int
    attempt: int
    trial_seed: int
    hparams: dict[str, Json]
    config: dict[str, Any]
    slots: int
    slot_kind: str
    slot_ids: list[str]
    threads: int
    latest_checkpoint: str | None = None
    steps_completed: int = 0
    code_snapshot_id: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    excluded_nodes: list[str] = field(default_factory=list)
    place: Place | None = None

    def to_json(self) -> str:
        """Return the task as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskSpec:
        """Return the task that `to_json` wrote."""
        values = json.loads(text)
        place = values.pop("place", None)
        return cls(**values, place=None if place is None else Place(**place))

    def __repr__(self) -> str:  # without config and hparams: they may hold secrets
        return f"TaskSpec({self.allocation_id!r}, trial_id={self.trial_id}, attempt={self.attempt})"


class Launcher(Protocol):
    """Starts and ends attempts. `tests/contracts/launcher.py` holds what each kind promises.

    An attempt is run by an agent, a process that records its own process id in its allocation before anything else,
    captures what the trial's processes print, and in the end records how they ended together with a pending event
    `ATTEMPT_ENDED`. An agent goes on without the controller that started it.
    """

    name: str

    def slots(self) -> Slots:
        """Return the slots that attempts can be given now; those of a cluster come and go."""

    def settings(self) -> dict[str, str]:
        """Return the environment variables that another controller needs to choose the same launcher."""

    def waiting(self) -> dict[str, str]:
        """Return why attempts that were started do not run yet, by allocation."""

    def start(self, task: TaskSpec) -> None:
        """Start the agent of an attempt. Returns at once."""

    def is_alive(self, attempt: AttemptRow) -> bool:
        """Return whether the agent of an attempt runs, whoever started it."""

    def kill(self, attempt: AttemptRow) -> None:
        """End all processes of an attempt now. The agent, if it lives, records the end; otherwise nobody does."""

    def wait(self, seconds: float) -> None:
        """Wait until an agent that this launcher started has ended, or for so long."""
