"""When a learning rate scheduler steps: a function of the batch's index, called after every batch."""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from determined import errors


class LRScheduler:
    """A learning rate scheduler that steps by itself while training. `context.wrap_lr_scheduler()` makes one.

    Automatic steps come after `train_batch`, and only after batches on which optimizers step: with
    `aggregation_frequency=n` those of a group of n batches come together, after its last.

    Args:
        scheduler: Any object with `step()`, usually of `torch.optim.lr_scheduler`.
        step_mode: What is counted.
        frequency: Every how many of these it steps.

    Raises:
        TypeError: `step_mode` is no `LRScheduler.StepMode`.
        ValueError: `frequency` is below 1.

    Example::

        decay = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
        LRScheduler(decay, LRScheduler.StepMode.STEP_EVERY_EPOCH, frequency=2)
    """

    class StepMode(enum.Enum):
        """What a scheduler counts."""

        STEP_EVERY_EPOCH = 1
        """Epochs; with aggregation, at the last update before the next one falls into a later epoch."""
        STEP_EVERY_BATCH = 2
        """Batches of one slot."""
        MANUAL_STEP = 3
        """Nothing: the trial calls `step()`."""
        STEP_EVERY_OPTIMIZER_STEP = 4
        """Updates: batches divided by the aggregation frequency."""

    def __init__(self, scheduler: Any, step_mode: StepMode, frequency: int = 1) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            raise TypeError(
                f"step_mode is {step_mode!r}, expected one of LRScheduler.StepMode, for example "
                "LRScheduler.StepMode.STEP_EVERY_BATCH."
            )
        try:
            self.frequency = operator.index(frequency)
        except TypeError:
            raise TypeError(f"frequency is {frequency!r}; expected an int of 1 or more.") from None
        if self.frequency < 1:
            raise ValueError(f"frequency is {frequency}; a scheduler steps every 1 or more, never less.")
        self.scheduler = scheduler
        self.step_mode = step_mode

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step the scheduler now."""
        self.scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> Any:
        """The learning rates that the scheduler set last."""
        return self.scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state."""
        state: dict[str, Any] = self.scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.scheduler.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"LRScheduler({type(self.scheduler).__name__}, {self.step_mode.name}, frequency={self.frequency})"


def check_scheduler(wrapped: LRScheduler, optimizers: Sequence[Any]) -> None:
    """Refuse a scheduler that could not step by itself, or whose optimizer is none of these."""
    scheduler = wrapped.scheduler
    if wrapped.step_mode is not LRScheduler.StepMode.MANUAL_STEP and isinstance(scheduler, ReduceLROnPlateau):
        raise errors.InvalidExperimentException(
            "ReduceLROnPlateau needs a metric to step, so it cannot step by itself. Wrap it with "
            "LRScheduler.StepMode.MANUAL_STEP, and call step(metric) yourself."
        )
    optimizer = getattr(scheduler, "optimizer", None)
    if optimizer is not None and not any(optimizer is known for known in optimizers):
        raise errors.InvalidExperimentException(
            f"{type(scheduler).__name__} belongs to a {type(optimizer).__name__} that was not wrapped. Build it on "
            "what context.wrap_optimizer() returned."
        )


def count_steps(
    step_mode: LRScheduler.StepMode,
    *,
    frequency: int,
    aggregation_frequency: int,
    epoch_length: int | None,
    batch_idx: int,
    epoch_shift: int = 0,
) -> int:
    """Return how often a scheduler steps after this batch; 0 after a batch on which no optimizer steps.

    `epoch_shift` is how far the batch's position among epochs of this length is ahead of its index.
    """
    modes = LRScheduler.StepMode
    trained = batch_idx + 1
    if trained % aggregation_frequency:
        return 0
    if step_mode is modes.STEP_EVERY_BATCH:
        return trained // frequency - (trained - aggregation_frequency) // frequency
    if step_mode is modes.STEP_EVERY_OPTIMIZER_STEP:
        return int(trained // aggregation_frequency % frequency == 0)
    if step_mode is modes.STEP_EVERY_EPOCH and epoch_length is not None:
        position = batch_idx + epoch_shift
        epochs, epochs_at_next_update = position // epoch_length, (position + aggregation_frequency) // epoch_length
        return epochs_at_next_update // frequency - epochs // frequency
    return 0


def stepping(
    scheduler: LRScheduler, aggregation_frequency: int, epoch_length: int | None, epoch_shift: int = 0
) -> Callable[[int], None] | None:
    """Return what to call with the index of each update batch; None if the scheduler never steps by itself."""
    mode, frequency = scheduler.step_mode, scheduler.frequency
    if mode is LRScheduler.StepMode.MANUAL_STEP:
        return None
    step = scheduler.scheduler.step
    if frequency == 1 and (
        mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP
        or (mode is LRScheduler.StepMode.STEP_EVERY_BATCH and aggregation_frequency == 1)
    ):
        return lambda _batch_idx: step()

    count = functools.partial(
        count_steps, mode, frequency=frequency, aggregation_frequency=aggregation_frequency, epoch_length=epoch_length
    )

    def step_if_due(batch_idx: int) -> None:
        for _ in range(count(batch_idx=batch_idx, epoch_shift=epoch_shift)):
            step()

    return step_if_due


def finishing(
    schedulers: Sequence[LRScheduler],
    aggregation_frequency: int,
    epoch_length: int | None,
    epoch_shift: int,
    update_scaler: Callable[[], None] | None,
) -> Callable[[int], None] | None:
    """Return what has to be called with the index of each batch after it is trained; None if nothing has to."""
    maybe = [stepping(scheduler, aggregation_frequency, epoch_length, epoch_shift) for scheduler in schedulers]
    steps = [step for step in maybe if step is not None]
    if update_scaler is not None:
        steps.insert(0, lambda _batch_idx: update_scaler())
    if not steps:
        return None
    if aggregation_frequency == 1 and len(steps) == 1:
        return steps[0]

    def finish(batch_idx: int) -> None:
        if (batch_idx + 1) % aggregation_frequency == 0:
            for step in steps:
                step(batch_idx)

    return finish
