"""The seam between training and the platform: where reports go, and where a request to stop comes from.

A link is called from background threads, never from the thread that trains, so it may take its time. The few questions
that training itself asks, at its start, are answered within seconds or not at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from determined.core.recording.values import differences
from determined.store.messages import FitReport, Report, Signal


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
    """Checkpoints of earlier runs of this script with these hyperparameters."""

    found: Sequence[str] = ()
    """The ids of those that fit, the one that was asked for first."""
    others: Collection[str] = ()
    """Ids of all other checkpoints in the store."""
    unlike: Candidate | None = None
    """The newest that would fit but for its hyperparameters."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A checkpoint that may be the newest or best one of a training."""

    storage_id: str
    metadata: Mapping[str, Any]
    hparams: dict[str, Any]
    place: str
    """Its name for people: "experiment 7"."""


def is_of_class(metadata: Mapping[str, Any], trial_class: str) -> bool:
    """Return whether a checkpoint is of this trial class (`module:Name`, or the name alone), and not of a test."""
    spec = str(metadata.get("trial_class", ""))
    return trial_class in (spec, spec.rpartition(":")[2]) and not metadata.get("test_mode")


def choose_checkpoints(
    candidates: Iterable[Candidate],
    which: Literal["latest", "best"],
    trial_class: str,
    smaller_is_better: bool,
    hparams: Mapping[str, Any] | None,
) -> History:
    """Return the candidates that fit, the newest or best first.

    Args:
        candidates: The newest first.
        which: "latest", or "best" by the searcher metric that a checkpoint was saved with.
        trial_class: Their trial class.
        smaller_is_better: The direction of the metric.
        hparams: Their hyperparameters; None for any.
    """
    found: list[tuple[float, str]] = []
    unlike: Candidate | None = None
    for one in candidates:
        value = one.metadata.get("searcher_metric")
        if not is_of_class(one.metadata, trial_class):
            continue
        if hparams is not None and differences(hparams, one.hparams):
            unlike = unlike or one
        elif which == "latest":
            found.append((0, one.storage_id))
        elif isinstance(value, (int, float)) and value == value:
            found.append((value if smaller_is_better else -value, one.storage_id))
    found.sort(key=lambda pair: pair[0])  # of equals the newest stays first
    return History([storage_id for _, storage_id in found], unlike=unlike)


class Link:
    """Carries reports out and signals in. `tests/contracts/link.py` tests what every link promises.

    Its own methods record nothing and know nothing: a link has those that it can do better.
    """

    place = "nowhere"
    """Where reports are written to, for people."""
    listens = False
    """Whether `signal()` can ever return more than `Signal.NONE`; if not, nobody asks."""
    is_managed = False
    """Whether a request to stop may be waiting already when the run starts."""

    def send(self, reports: Sequence[Report]) -> None:
        """Write these, in order, before returning.

        Raises:
            LinkUnavailable: Not now. The same reports are offered again later; training does not notice.
            Exception: Never. The reports are refused, and the next report of the training process raises this.
        """

    def keep(self, reports: Sequence[Report]) -> bool:  # noqa: ARG002 - here and below: a link that knows uses them
        """Write reports to the disk, to be delivered before the next ones, maybe by another process. False: failed."""
        return False

    def copy(self, reports: Sequence[Report], number: int) -> bool:  # noqa: ARG002
        """Write reports to the disk too, under a number: if this process dies before they are delivered, another
        process delivers them. Quick. False: failed."""
        return True

    def drop_copy(self, number: int) -> None:
        """Remove the copy with this number: its reports are delivered."""

    def mark_pending(self, storage_id: str) -> None:
        """Note that a checkpoint is about to be stored or deleted. If no report of it follows because this process
        dies, the next run looks at the storage. Quick."""

    def begin_fit(self, fit: FitReport) -> None:
        """Note how training begins, for the run that recovers this one if it dies. The report is sent too. Quick."""

    def beat(self) -> None:
        """Record that the run is alive, although it has nothing to report."""

    def signal(self) -> Signal:
        """Return what the outside asks for now."""
        return Signal.NONE

    def attach(self) -> Attached | None:
        """Return the trial that this run is recorded as, made now if need be; None without an answer within seconds."""
        return None

    def metadata(self) -> dict[str, Any] | None:
        """Return the metadata that the run's trial has already; None without any, or without an answer in seconds."""
        return None

    def best_validation(self) -> float | None:
        """Return the best searcher metric of the whole experiment so far, as far as this link knows. Quick."""
        return None

    def best_before(self, storage_id: str) -> float | None:  # noqa: ARG002
        """Return the best searcher metric that was known when a checkpoint was saved; None if that is unknown."""
        return None

    def find_checkpoints(
        self,
        which: Literal["latest", "best"],  # noqa: ARG002
        trial_class: str,  # noqa: ARG002
        smaller_is_better: bool,  # noqa: ARG002
    ) -> History | None:
        """Return the checkpoints of earlier runs of this script in this storage; None if they are unknown."""
        return None

    def experiment_of(self, storage_id: str) -> int | None:  # noqa: ARG002
        """Return the experiment that a checkpoint belongs to; None if unknown, or without an answer within seconds."""
        return None

    def recorded_as(self) -> Attached | None:
        """Return the trial that this run is recorded as, as far as this link knows. Quick."""
        return None

    def close(self) -> None:
        """Free what is held. Nothing is sent afterwards."""


class NullLink(Link):
    """Records nothing."""
