"""When schedulers step: the worked table of the contract, and what the wrapper forwards."""

from __future__ import annotations

import pytest
import torch

from determined.pytorch import Batch, LRScheduler
from determined.pytorch._lr_scheduler import count_steps, stepping
from tests.trials import Run, train
from tests.unit.pytorch import contexts as _contexts  # noqa: F401  # has torch settle down first

EPOCH = LRScheduler.StepMode.STEP_EVERY_EPOCH
BATCH = LRScheduler.StepMode.STEP_EVERY_BATCH
OPT = LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP
MANUAL = LRScheduler.StepMode.MANUAL_STEP

TABLE = [
    (EPOCH, 1, 1, 5, [5, 10]),
    (EPOCH, 1, 2, 5, [10]),
    (EPOCH, 2, 1, 5, [4, 10]),
    (EPOCH, 3, 1, 5, [3, 9]),
    (EPOCH, 3, 1, 2, [3, 6, 6, 9, 12, 12]),
    (EPOCH, 5, 1, 2, [5, 5, 10, 10, 10]),
    (EPOCH, 1, 1, None, []),
    (BATCH, 1, 1, 5, list(range(1, 13))),
    (BATCH, 1, 3, 5, [3, 6, 9, 12]),
    (BATCH, 2, 1, 5, [2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12]),
    (BATCH, 2, 3, 5, [4, 6, 10, 12]),
    (BATCH, 3, 2, 5, [3, 6, 6, 9, 12, 12]),
    (OPT, 2, 1, 5, [2, 4, 6, 8, 10, 12]),
    (OPT, 2, 2, 5, [4, 8, 12]),
    (OPT, 3, 3, 5, [9]),
    (OPT, 2, 3, 5, [6, 12]),
    (MANUAL, 1, 1, 5, []),
]


class Counter:
    """Counts its steps, as a scheduler does."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1

    def get_last_lr(self) -> list[float]:
        return [0.5]

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


@pytest.mark.parametrize(("mode", "agg", "frequency", "length", "expected"), TABLE)
def test_steps_as_in_the_worked_table(mode, agg, frequency, length, expected):
    """T64, W35: for every step mode and aggregation frequency the scheduler steps as often as documented."""
    taken = []
    for batch_idx in range(12):
        count = count_steps(
            mode, frequency=frequency, aggregation_frequency=agg, epoch_length=length, batch_idx=batch_idx
        )
        taken += [batch_idx + 1] * count
    assert taken == expected


@pytest.mark.parametrize(("mode", "agg", "frequency", "length", "expected"), TABLE)
def test_what_the_loop_calls_steps_the_same(mode, agg, frequency, length, expected):
    """T64: short cuts for common cases change nothing."""
    scheduler, taken = Counter(), []
    step = stepping(LRScheduler(scheduler, mode, frequency), agg, length)
    if step is None:
        assert expected == []
        return
    for batch_idx in range(12):
        before = scheduler.steps
        if (batch_idx + 1) % agg == 0:
            step(batch_idx)
        taken += [batch_idx + 1] * (scheduler.steps - before)
    assert taken == expected


def test_modes_keep_their_values():
    """The numbers that older checkpoints and configs know."""
    assert [mode.value for mode in (EPOCH, BATCH, MANUAL, OPT)] == [1, 2, 3, 4]


def test_a_wrong_mode_or_frequency_is_refused():
    """A mode by its number is a TypeError; so is a frequency that is no int, and one below 1 is a ValueError."""
    with pytest.raises(TypeError, match="StepMode"):
        LRScheduler(Counter(), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"frequency is 1\.5"):
        LRScheduler(Counter(), BATCH, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="frequency is 0"):
        LRScheduler(Counter(), BATCH, 0)


def test_the_wrapper_forwards():
    """step, get_last_lr and state reach the scheduler inside."""
    scheduler = Counter()
    wrapped = LRScheduler(scheduler, MANUAL)
    wrapped.step()
    assert (scheduler.steps, wrapped.get_last_lr(), wrapped.state_dict()) == (1, [0.5], {"steps": 1})
    wrapped.load_state_dict({"steps": 7})
    assert scheduler.steps == 7
    assert repr(wrapped) == "LRScheduler(Counter, MANUAL_STEP, frequency=1)"


def test_a_real_scheduler_decays():
    """StepLR halves the rate after every second batch."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    step = stepping(LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5), BATCH, 2), 1, None)
    assert step is not None
    rates = []
    for batch_idx in range(4):
        optimizer.step()
        step(batch_idx)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1.0, 0.5, 0.5, 0.25]


def test_a_scheduler_wrapped_when_training_starts_steps():
    """3.13: a scheduler that comes later than the constructor is not forgotten, as little as a reducer is."""
    scheduler, run = Counter(), Run([])
    hooks = {"on_training_start": lambda: run.context.wrap_lr_scheduler(scheduler, BATCH)}
    train(run=run, hooks=hooks, max_length=Batch(3))
    assert scheduler.steps == 3


def test_epochs_end_where_data_ends_when_batches_change():
    """Decision 5: six of eight records are trained in batches of two; after two more, one by one, the epoch is over."""
    saved = train(trial={"decays": True}, max_length=Batch(3)).of("checkpoint")[-1][1]
    one_by_one = {"decays": True, "loader": {"batch_size": 1}}
    rates = []
    for length in (4, 5, 12, 13):
        run = train(trial=one_by_one, max_length=Batch(length), latest_checkpoint=saved)
        rates.append(run.trial.optimizer.param_groups[0]["lr"])
        saved = run.of("checkpoint")[-1][1]
    assert rates == [1.0, 0.5, 0.5, 0.25]
