"""The only door to the platform: where reports go, and where a request to stop comes from.

A link is called from background threads, never from the thread that trains, so it may take its time. The few questions
that training asks itself, at its start, are answered within seconds or not at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from determined._home import data_directory, keep_private, make_data_directory
from determined._left_out import ignored_master
from determined.store.messages import FitReport, Report, Signal, now

if TYPE_CHECKING:
    from determined.core.recording.run_description import RunDescription

logger = logging.getLogger("determined.core")


@dataclasses.dataclass(frozen=True)
class Attached:
    """The trial that a run is recorded as."""

    trial_id: int
    experiment_id: int
    attempt: int
    latest_checkpoint: str | None = None
    steps_completed: int = 0


@dataclasses.dataclass(frozen=True)
class History:
    """What is known about checkpoints of earlier runs of this script with these hyperparameters."""

    found: Sequence[str] = ()
    """The ids of those that fit, the one that was asked for first."""
    others: Collection[str] = ()
    """Ids of all other checkpoints in the store."""
    unlike: Unlike | None = None
    """The newest that would fit but for its hyperparameters."""


@dataclasses.dataclass(frozen=True)
class Unlike:
    """A run of the same script and trial class that had other hyperparameters."""

    place: str
    """What it is called, for people: "experiment 7"."""
    hparams: dict[str, Any]


class Link(Protocol):
    """Carries reports out and signals in."""

    place: str
    """Where reports end up, for people."""
    listens: bool
    """Whether `signal()` can ever say more than `Signal.NONE`; if not, nobody asks."""
    is_managed: bool
    """Whether a request to stop may be waiting already when the run starts."""

    def send(self, reports: Sequence[Report]) -> None:
        """Write these, in order, before returning.

        Raises:
            LinkUnavailable: Not now. The same reports are offered again later; training does not notice.
            Exception: Never. The reports are refused, and the training process is told.
        """

    def keep(self, reports: Sequence[Report]) -> bool:
        """Put these aside, to be delivered before the next ones, perhaps by another process. False: cannot."""

    def copy(self, reports: Sequence[Report], number: int) -> bool:
        """Write these to the disk too, under a number: if this process dies before they are delivered, another delivers
        them. Quick. False: cannot."""

    def drop_copy(self, number: int) -> None:
        """What was copied under this number is delivered."""

    def doubt(self, storage_id: str) -> None:
        """A checkpoint is about to come or go. If no report says so in the end, somebody should look. Quick."""

    def begin_fit(self, fit: FitReport) -> None:
        """Training begins so. The report comes too; this is for whoever finds what a dead run has left. Quick."""

    def beat(self) -> None:
        """Nothing to report, but still here."""

    def signal(self) -> Signal:
        """What the outside asks for now."""

    def attach(self) -> Attached | None:
        """The trial that this run is recorded as, found or made now; None if that cannot be had within seconds."""

    def metadata(self) -> dict[str, Any] | None:
        """The metadata that the run's trial has already; None if none, or if that cannot be had within seconds."""

    def best_validation(self) -> float | None:
        """The best searcher metric of the whole experiment so far, as far as this link knows. Quick."""

    def best_before(self, storage_id: str) -> float | None:
        """The best searcher metric that was known when a checkpoint was saved; None if that is not known."""

    def find_checkpoint(
        self, which: Literal["latest", "best"], trial_class: str, smaller_is_better: bool
    ) -> History | None:
        """A checkpoint of earlier runs of this script in this storage; None if there is no telling."""

    def experiment_of(self, storage_id: str) -> int | None:
        """The experiment that a checkpoint is of; None if it is not known, or that cannot be had within seconds."""

    def recorded_as(self) -> Attached | None:
        """The trial that this run is recorded as, as far as this link knows. Quick."""

    def close(self) -> None:
        """Free what is held. Nothing is sent afterwards."""


class NullLink:
    """Nothing is recorded."""

    place = "nowhere"
    listens = False
    is_managed = False

    def send(self, reports: Sequence[Report]) -> None:
        pass

    def keep(self, reports: Sequence[Report]) -> bool:  # noqa: ARG002 - whatever they are
        return False

    def copy(self, reports: Sequence[Report], number: int) -> bool:  # noqa: ARG002 - nobody would look for it
        return True

    def drop_copy(self, number: int) -> None:
        pass

    def doubt(self, storage_id: str) -> None:
        pass

    def begin_fit(self, fit: FitReport) -> None:
        pass

    def beat(self) -> None:
        pass

    def signal(self) -> Signal:
        return Signal.NONE

    def attach(self) -> Attached | None:
        return None

    def metadata(self) -> dict[str, Any] | None:
        return None

    def best_validation(self) -> float | None:
        return None

    def best_before(self, storage_id: str) -> float | None:  # noqa: ARG002 - there is no history
        return None

    def find_checkpoint(
        self,
        which: Literal["latest", "best"],  # noqa: ARG002
        trial_class: str,  # noqa: ARG002
        smaller_is_better: bool,  # noqa: ARG002
    ) -> History | None:
        return None

    def experiment_of(self, storage_id: str) -> int | None:  # noqa: ARG002 - there is no history
        return None

    def recorded_as(self) -> Attached | None:
        return None

    def close(self) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Run:
    """One life of a training process, and where its traces lie in the data directory."""

    name: str
    home: Path

    @property
    def directory(self) -> Path:
        """The run's own directory; there only while something in it waits for the store."""
        return self.home / "runs" / self.name

    @property
    def tensorboard(self) -> Path:
        """Where the run's event files go."""
        return self.home / "tensorboard" / self.name


def new_run() -> Run:
    """A run that no other has the name of; names sort by time."""
    return Run(f"{now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", data_directory())


def is_tracking() -> bool:
    """Whether runs are recorded; `DET_TRACKING=off` says no."""
    return os.environ.get("DET_TRACKING", "on").strip().lower() not in ("off", "0", "false", "no")


def choose_link(run: Run, description: RunDescription, rank: int = 0) -> Link:
    """The link of this process: to the store, unless `DET_TRACKING=off`."""
    if not is_tracking():
        return NullLink()
    if rank == 0 and (said := ignored_master()):
        logger.warning("%s", said)
    from determined.core.recording.store_link import StoreLink

    with contextlib.suppress(OSError):  # the link says so itself, and keeps trying
        directory = make_data_directory()
        if rank == 0:
            keep_private(directory)
    return StoreLink(run, description, rank)
