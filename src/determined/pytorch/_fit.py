"""What one `fit()` works with: plain fields, set once, before the first batch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

from determined import core
from determined.pytorch._callback import Callbacks
from determined.pytorch._plan import Due, FitPlan
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.data.stream import TrainingStream
from determined.pytorch.display.console import Outcome
from determined.pytorch.metrics.reduction import TrainingWindow
from determined.pytorch.rng.kept_streams import KeptStreams

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext
    from determined.pytorch._state import Progress
    from determined.pytorch._validate import Validation
    from determined.pytorch.checkpoint.checkpointer import Checkpointer


class Bar(Protocol):
    """A progress bar, or what stands in for one."""

    def show(self, metrics: dict[str, Any], *, validation: bool = False) -> None:
        """Show new metrics."""

    def close(self) -> None:
        """Take it off the screen."""


class Policy(Protocol):
    """Whether a validation earns a checkpoint."""

    def earns_checkpoint(self, metrics: dict[str, Any]) -> bool:
        """Return whether to save. Called on the chief, before the metrics are reported."""

    def best(self) -> float | None:
        """Return the best value known, if the policy compares."""


@dataclasses.dataclass
class Fit:
    """What the loop reads and changes during one `fit()`."""

    trial: PyTorchTrial
    context: PyTorchTrialContext
    core: core.Context
    plan: FitPlan
    progress: Progress
    stream: TrainingStream
    callbacks: Callbacks
    validation: Validation
    checkpointer: Checkpointer
    policy: Policy
    window: TrainingWindow
    bar: Bar
    streams: KeptStreams  # as they were before the batch that is being trained
    outcome: Outcome
    saves_async: bool = False
    measures_throughput: bool = False
    events_synced: float = 0.0  # when, by the monotonic clock
    searcher_metric: str | None = None
    validates_first: bool = False
    window_started: float = 0.0
    misses_metric: bool = False  # a validation lacked the searcher metric, which is logged once
    last_value: float | None = None  # of the searcher metric, at `progress.last_validation`
    updates_checked: bool = False

    @property
    def is_validated(self) -> bool:
        """Whether the newest batch count is validated."""
        return 0 < self.progress.batches_trained == self.progress.last_validation

    @property
    def is_saved(self) -> bool:
        """Whether the newest batch count is saved; at the beginning there is nothing to save."""
        return self.progress.batches_trained == self.progress.last_checkpoint

    def due(self) -> Due:
        """Return what is due now, after the last batch."""
        return self.plan.due(self.progress.batches_trained, self.progress.epochs_trained, self.stream.ends_epoch)

    def set_training_mode(self, is_training: bool) -> None:
        """Put all models into train or eval mode."""
        for model in self.context.models:
            model.train(is_training)

    def checkpoint_metadata(self) -> dict[str, Any]:
        """Return what a checkpoint stores about its validation: for `latest_checkpoint="best"`, and for the policy."""
        metadata: dict[str, Any] = {}
        if self.last_value is not None and self.is_validated:
            metadata["searcher_metric"] = self.last_value
        if self.plan.test_mode:
            metadata["test_mode"] = True
        if (best := self.policy.best()) is not None:
            metadata["best_validation"] = best
        return metadata

    def counters(self) -> dict[str, int]:
        """Return the counters that are part of every report."""
        return {"batches": self.progress.batches_trained, "epochs": self.progress.epochs_trained}

    @property
    def spares_communication(self) -> bool:
        """Whether gradients of some batches stay on their rank until a later one."""
        return self.context.distributed.size > 1 and self.context.gradients.aggregation_frequency > 1
