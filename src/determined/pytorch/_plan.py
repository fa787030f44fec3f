"""Training lengths, periods and schedules, how far training has come, and what is due. The loop does it."""

from __future__ import annotations

import bisect
import dataclasses
import enum
import functools
import math
import numbers
import sys
from collections.abc import Container, Mapping
from typing import Any

from determined import core
from determined._types import Json

_COLLECTIONS = (list, tuple, set, frozenset)


class TrainUnit:
    """A length, a period or a schedule of training; use `Batch` or `Epoch`.

    Args:
        value: A whole number n: every n-th (0 or less: every one). A container of numbers: exactly at these counts.

    Example::

        trainer.fit(max_length=pytorch.Epoch(10), checkpoint_period=pytorch.Batch([100, 500]))
    """

    def __init__(self, value: int | Container[int]) -> None:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number and not _is_schedule(value):
            raise TypeError(
                f"{type(self).__name__}({value!r}): expected a whole number, or a list of the counts at which to stop."
            )
        self.value = value

    def should_stop(self, count: int) -> bool:
        """Whether something of this period or schedule is due after `count` batches or epochs."""
        if isinstance(self.value, int):
            return self.value <= 0 or (count > 0 and count % self.value == 0)
        return count in self.value

    def next_after(self, count: int) -> float:
        """Return the first count after `count` at which this may be due; infinity if never again."""
        if isinstance(self.value, int):
            return count + 1 if self.value <= 0 else (count // self.value + 1) * self.value
        if isinstance(self.value, range) and self.value.step > 0:
            position = bisect.bisect_right(self.value, count)
            return self.value[position] if position < len(self.value) else math.inf
        if isinstance(self.value, _COLLECTIONS):
            return min((n for n in self.value if n > count), default=math.inf)
        return count + 1  # a container that only knows `in`

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self), self.value if isinstance(self.value, int) else None))  # equal sets print in any order

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    # For configs of older experiments.

    def _to_searcher_unit(self) -> core.Unit:
        return core.Unit.BATCHES if isinstance(self, Batch) else core.Unit.EPOCHS

    @staticmethod
    def _from_searcher_unit(length: int, unit: core.Unit | None, global_batch_size: int | None = None) -> TrainUnit:
        if unit is core.Unit.EPOCHS:
            return Epoch(length)
        if unit is core.Unit.BATCHES:
            return Batch(length)
        if unit is core.Unit.RECORDS:
            if global_batch_size is None:
                raise ValueError(
                    "A length in records needs global_batch_size in the hyperparameters, and there is none."
                )
            return Batch._from_records(length, global_batch_size)
        raise ValueError(f"A training length in {unit} is unknown; expected epochs, batches or records.")

    @staticmethod
    def _from_values(
        batches: int | None = None,
        records: int | None = None,
        epochs: int | None = None,
        global_batch_size: int | None = None,
    ) -> TrainUnit:
        given = {n: v for n, v in (("batches", batches), ("records", records), ("epochs", epochs)) if v is not None}
        if len(given) != 1:
            raise ValueError(f"Expected exactly one of batches, records and epochs, not {sorted(given) or 'none'}.")
        ((name, value),) = given.items()
        if value < 1:
            return Batch(sys.maxsize)
        if name == "batches":
            return Batch(value)
        if name == "epochs":
            return Epoch(value)
        if not global_batch_size:
            raise AssertionError(
                f"A period of {value} records needs global_batch_size in the hyperparameters, and there is none."
            )
        return Batch._from_records(value, global_batch_size)


def _is_schedule(value: Any) -> bool:
    """Return whether `value` is a container in which a count can be looked up."""
    if isinstance(value, _COLLECTIONS):
        return all(isinstance(count, numbers.Real) for count in value)
    return isinstance(value, Container) and not isinstance(value, (str, bytes))


class Batch(TrainUnit):
    """A length, period or schedule counted in batches of one slot."""

    @staticmethod
    def _from_records(records: int, global_batch_size: int) -> Batch:
        return Batch(max(records // global_batch_size, 1))


class Epoch(TrainUnit):
    """A length, period or schedule counted in epochs."""


class _TrainBoundaryType(enum.Enum):
    """What can be due at a stop, in the order in which it is handled."""

    TRAIN = "TRAIN"
    VALIDATE = "VALIDATE"
    CHECKPOINT = "CHECKPOINT"
    REPORT = "REPORT"


@dataclasses.dataclass
class Progress:
    """How far training has come. Everything here is saved; nothing else is.

    `last_validation` and `last_checkpoint` are the numbers of batches at which those happened; 0 stands for never.
    """

    batches_trained: int = 0
    epochs_trained: int = 0
    last_validation: int = 0
    last_checkpoint: int = 0
    trial_id: int = 0

    def state_dict(self) -> dict[str, Json]:
        return dataclasses.asdict(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name in dataclasses.asdict(self):
            setattr(self, name, int(state_dict[name]))

    def trial_state(self) -> dict[str, int]:
        """The same under the names that `trial_state.pkl` has always had."""
        return {
            "trial_id": self.trial_id,
            "last_ckpt": self.last_checkpoint,
            "step_id": 0,
            "last_val": self.last_validation,
            "batches_trained": self.batches_trained,
            "epochs_trained": self.epochs_trained,
        }

    @classmethod
    def from_trial_state(cls, saved: Mapping[str, Any], epoch_length: int) -> Progress:
        """Read `trial_state.pkl`. Until 0.20 it had no epochs: they follow from the length of one."""
        batches = int(saved["batches_trained"])
        return cls(
            batches_trained=batches,
            epochs_trained=int(saved.get("epochs_trained", batches // epoch_length)),
            last_validation=int(saved.get("last_val") or 0),
            last_checkpoint=int(saved.get("last_ckpt") or 0),
            trial_id=int(saved.get("trial_id") or 0),
        )


@dataclasses.dataclass(frozen=True)
class Due:
    """What is due at one stop."""

    complete: bool = False
    validate: bool = False
    checkpoint: bool = False
    progress: bool = False
    fraction: float = dataclasses.field(default=0.0, compare=False)
    """How much of the length is trained, from 0 to 1."""

    def __bool__(self) -> bool:
        return self.complete or self.validate or self.checkpoint or self.progress


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """The whole schedule of one `fit()`. Counts are absolute over the life of the trial."""

    max_length: TrainUnit | None
    validation_period: TrainUnit | None = None
    checkpoint_period: TrainUnit | None = None
    reporting_period: TrainUnit | None = None
    test_mode: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no length, and periods that would silently never be reached."""
        for name in ("validation_period", "checkpoint_period", "reporting_period"):
            unit = getattr(self, name)
            if unit is not None and not isinstance(unit, (Batch, Epoch)):
                raise TypeError(f"{name} is {unit!r}; expected pytorch.Batch(n) or pytorch.Epoch(n).")
        if self.max_length is None:
            raise ValueError("fit() needs max_length: say how long to train, for example max_length=pytorch.Epoch(10).")
        if not isinstance(self.max_length, (Batch, Epoch)) or not isinstance(self.max_length.value, int):
            raise TypeError(
                f"max_length is {self.max_length!r}; expected pytorch.Batch(n) or pytorch.Epoch(n) with a number n."
            )

    @functools.cached_property
    def length(self) -> int:
        """How long to train, in the unit of `max_length`."""
        value = None if self.max_length is None else self.max_length.value
        assert isinstance(value, int), "checked above"
        return value

    def complete(self, batches: int, epochs: int) -> bool:
        """Return whether nothing is left to train."""
        if self.test_mode and batches > 0:
            return True
        return (batches if isinstance(self.max_length, Batch) else epochs) >= self.length

    def fraction(self, batches: int, epochs: int) -> float:
        """Return how much of the length is trained, from 0 to 1."""
        done = batches if isinstance(self.max_length, Batch) else epochs
        return 1.0 if self.length <= 0 else min(1.0, done / self.length)

    def due(self, batches: int, epochs: int, ends_epoch: bool) -> Due:
        """Return what to do now, after `batches` batches; `ends_epoch` says that the last one ended an epoch."""
        validate, checkpoint, progress = [
            unit is not None
            and (unit.should_stop(batches) if isinstance(unit, Batch) else ends_epoch and unit.should_stop(epochs))
            for unit in (self.validation_period, self.checkpoint_period, self.reporting_period)
        ]
        complete = self.complete(batches, epochs)
        return Due(complete, validate, checkpoint, complete or progress, self.fraction(batches, epochs))

    def next_stop(self, batches: int) -> float:
        """Return the next batch count at which something counted in batches may be due."""
        if self.test_mode:
            return batches + 1
        end = self.length if isinstance(self.max_length, Batch) else math.inf
        periods = (self.validation_period, self.checkpoint_period, self.reporting_period)
        return min([max(end, batches + 1), *[unit.next_after(batches) for unit in periods if isinstance(unit, Batch)]])

    @functools.cached_property
    def stops_at_epochs(self) -> bool:
        """Whether the end of an epoch can be a stop."""
        return bool(self.counted_in_epochs())

    def counted_in_epochs(self) -> list[str]:
        """Return the arguments of `fit()` that count in epochs, as they were given."""
        names = ("max_length", "validation_period", "checkpoint_period", "reporting_period")
        return [f"{name}={unit!r}" for name in names if isinstance(unit := getattr(self, name), Epoch)]


def check_reachable(plan: FitPlan, epoch_length: int) -> None:
    """Refuse a length in epochs where no epoch ends, which would be trained for ever.

    Raises:
        ValueError: `max_length` is an `Epoch`, and the training data loader has no length.
    """
    if epoch_length == sys.maxsize and isinstance(plan.max_length, Epoch) and plan.length > 0:
        raise ValueError(
            f"max_length is {plan.max_length!r}, but the training data loader has no len(), so no epoch ever ends. "
            "Count in batches, for example max_length=pytorch.Batch(1000), or give the loader a __len__()."
        )
