"""Makes, of what a trial's `build_*_data_loader()` returned, the batches that the loop trains on: without end, with a
position that is saved and resumed. `order` and `deal` compute which batch is next; `seeded_loader` reads it.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

from determined._types import Json, Stateful
from determined.pytorch.data import order
from determined.pytorch.data.deal import Deal, Step
from determined.pytorch.data.foreign_loader import is_endless, reader_of
from determined.pytorch.data.loader import GUIDE, DataLoader, read_unmeasured
from determined.pytorch.data.seeded_loader import Place

logger = logging.getLogger("determined.pytorch")

TRAINING = "build_training_data_loader"
VALIDATION = "build_validation_data_loader"


class TrainingStream(ABC, Iterator[Any]):
    """Training batches of one rank, without end. The attributes describe the batch that `next()` returned last.

    Example::

        stream = training_stream(loader, seed=seed, rank=rank, size=size)
        stream.load_state_dict(saved)      # on a resume; the number of ranks may have changed
        batch = next(stream)
        stream.epoch_idx, stream.ends_epoch
        saved = stream.state_dict()        # after any batch
    """

    epoch_length: int
    """Steps of a whole epoch, the same on every rank; `sys.maxsize` if unknown."""
    epoch_idx: int = 0
    """The epoch that the last batch belongs to."""
    starts_epoch: bool = False
    """The last batch was the first of its epoch."""
    ends_epoch: bool = False
    """The last batch was the last of its epoch."""
    is_stand_in: bool = False
    """The last batch is another rank's: this rank had none left, and trains so that the others need not wait."""

    @abstractmethod
    def __next__(self) -> Any: ...

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch. Equal on every rank, unless the user's loader has a state."""

    @abstractmethod
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue at the position of `state_dict()`."""

    @abstractmethod
    def epoch_shift(self, batches_trained: int) -> int:
        """Return how many steps epochs of `epoch_length` are ahead of the batch index: 0 unless ranks changed.

        Call it before training; it is saved, and stays the same until ranks change again.
        """

    @abstractmethod
    def step_back(self) -> None:
        """Return to the position before the last batch, which was not trained after all."""

    @abstractmethod
    def close(self) -> None:
        """Release workers. The position stays; `next()` starts them again."""


def epoch_length(loader: Any, size: int = 1) -> int:
    """Return the steps of an epoch that `size` ranks share; `sys.maxsize` if the loader has no length.

    Loaders that are not ours may differ between ranks: the chief's length must be sent to all.
    """
    try:
        length = len(loader)
    except TypeError:
        return sys.maxsize
    return -(-length // size) if isinstance(loader, DataLoader) else length


def training_stream(
    loader: Any,
    *,
    seed: int,
    rank: int = 0,
    size: int = 1,
    batches_trained: int = 0,
    chief_length: int | None = None,
    is_checked: bool = True,
) -> TrainingStream:
    """Return the stream of what `build_training_data_loader()` returned.

    Args:
        loader: Our `DataLoader`, or, unchecked, anything that can be iterated over.
        seed: The trial's seed; equal on every rank.
        rank: This process.
        size: How many processes train.
        batches_trained: Batches of this rank that were trained before. `load_state_dict` is more exact: it also allows
            for a change of `size`.
        chief_length: The chief's `epoch_length()`, if several ranks train.
        is_checked: Refuse loaders other than ours; the user may opt out.

    Raises:
        RuntimeError: A loader that is not ours, while the check is on.
        TypeError: Something that cannot be iterated over.
        ValueError: A loader without a single batch, or one that differs between ranks.
    """
    own = epoch_length(loader, size)
    agreed = own if chief_length is None else chief_length
    if not isinstance(loader, DataLoader):
        _check_ours(loader, TRAINING, is_checked)
        return ForeignStream(loader, seed, rank, batches_trained, agreed)
    if own != agreed:
        raise ValueError(
            f"{TRAINING}() gives rank {rank} an epoch of {own} batches and the chief one of {agreed}. "
            f"Describe the same dataset, batch size and sampler on every rank; training shards it."
        )
    return OrderedStream(loader, loader.seed_for(seed), rank, size, batches_trained, own)


def validation_loader(loader: Any, *, seed: int, rank: int = 0, size: int = 1, is_checked: bool = True) -> Any:
    """Return what one rank iterates over in each validation.

    That is its share of our `DataLoader`, in the same order every time, or, unchecked, the user's loader itself. A
    share may be empty. For `evaluate_full_dataset`, pass rank 0 of size 1.

    Raises:
        RuntimeError: A loader that is not ours, while the check is on.
        TypeError: One that is used up after the first validation, or cannot be iterated over at all.
    """
    if isinstance(loader, DataLoader):
        return loader.shard(seed=seed, num_replicas=size, rank=rank)
    _check_ours(loader, VALIDATION, is_checked)
    if isinstance(loader, Iterator):
        raise TypeError(
            f"{VALIDATION}() returned a {type(loader).__name__}, which can be read only once, and validations are "
            f"many. Return a loader or a list."
        )
    return loader


def _check_ours(loader: Any, method: str, is_checked: bool) -> None:
    if is_checked:
        raise RuntimeError(_dataset_repro_warning(method, loader))
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(
            f"{method}() returned {'None' if loader is None else f'a {type(loader).__name__}'}, which holds no "
            "batches. Return a data loader."
        )


def _dataset_repro_warning(fn: str, data_obj: Any, is_deepspeed_trial: bool = False) -> str:
    """Return why a loader that is not ours is refused, and what to do."""
    where = "context" if is_deepspeed_trial else "context.experimental"
    return (
        f"{fn}() returned a {type(data_obj).__name__}, which cannot be sharded, nor resumed at the right batch. "
        f"Return a determined.pytorch.DataLoader, which takes the same arguments as torch's. Or call "
        f"{where}.disable_dataset_reproducibility_checks() in the trial's __init__, and shuffle, repeat, shard and "
        f"skip yourself, in this order. See {GUIDE}."
    )


class OrderedStream(TrainingStream):
    """Batches of our `DataLoader`.

    The position counts records of the epoch over all ranks (batches, if the user's sampler makes them), so another
    number of ranks can resume from it.
    """

    def __init__(
        self, loader: DataLoader[Any], seed: int, rank: int, size: int, batches_trained: int, length: int
    ) -> None:
        self.epoch_length = length
        self._loader = loader
        self._rank = rank
        self._size = size
        self._batches: Iterator[Any] | None = None
        self._read_ahead: deque[Step] = deque()  # batches that workers are loading
        self._shift: int | None = 0
        self._use_seed(seed)
        if self.epoch_length == 0:
            raise ValueError(
                f"{TRAINING}() returned a DataLoader without a single batch ({_size_of(loader.dataset)}, "
                f"batch_size={loader.batch_size}, drop_last={loader.drop_last}), so there is nothing to train on."
            )
        self._seek(batches_trained)
        if size > 1 and order.is_sharded(loader.batch_sampler):
            logger.warning(
                "%s() returned a DataLoader whose sampler already deals records to ranks; training deals them once "
                "more, so each rank sees only a part of its part. Leave the distributed sampler out.",
                TRAINING,
            )
        if loader.num_workers > 1 and getattr(loader, "in_order", True) is False:
            logger.warning("in_order=False: batches come as workers finish them, so a resume may repeat or miss a few.")

    def _use_seed(self, seed: int) -> None:
        self._seed = seed
        self._cut = order.batching(self._loader.batch_sampler, seed)
        if self._cut is not None:
            self._deal = Deal(
                self._cut.batch_size, self._size, self._cut.drop_last, may_cut=self._cut.order.unit == "records"
            )

    def _seek(self, batches_trained: int) -> None:
        epoch, step = divmod(batches_trained, self.epoch_length)
        if self._cut is None:
            self._go_to(0, batches_trained * self._size)
        else:
            self._go_to(epoch, self._deal.taken_by(step, self._cut.order.expected_length()))

    def _go_to(self, epoch: int, position: int) -> None:
        self.close()
        self.epoch_idx, self._before, self._position = epoch, position, position
        self.starts_epoch = self.ends_epoch = self.is_stand_in = False

    def __next__(self) -> Any:
        if self._batches is None:
            places = self._unmeasured() if self._cut is None else self._measured(self._cut)
            self._batches = iter(self._loader.open(lambda _: places, seed=self._seed))
        batch = next(self._batches)
        step = self._read_ahead.popleft()
        self.epoch_idx, self._before, self._position, self.starts_epoch, self.ends_epoch, self.is_stand_in = step
        return batch

    def step_back(self) -> None:
        self._go_to(self.epoch_idx, self._before)

    def epoch_shift(self, batches_trained: int) -> int:
        if self._shift is None and self._cut is not None:
            epoch, position = self._next_place()
            left = self._deal.steps(self._cut.order.expected_length() - position)
            self._shift = (epoch + 1) * self.epoch_length - left - batches_trained
        return self._shift or 0

    def _layout(self) -> list[Json]:
        """Return all that the number of a step within its epoch depends on."""
        return [self.epoch_length, self._size, None if self._cut is None else self._deal.batch]

    def _next_place(self) -> tuple[int, int]:
        return (self.epoch_idx + 1, 0) if self.ends_epoch else (self.epoch_idx, self._position)

    def _measured(self, cut: order.Batching) -> Iterator[Place]:
        epoch, position = self._next_place()
        empty = 0
        while empty < 2:  # one epoch may be empty: with another batch size, the rest of it may not make a batch
            empty += 1
            for spans, steps in self._deal.blocks(self._rank, epoch, position, cut.order.length(epoch)):
                empty = 0
                self._read_ahead.extend(steps)
                for span, indices in zip(spans, cut.order.read(epoch, spans), strict=True):
                    yield epoch, span[0], indices
            epoch, position = epoch + 1, 0
        raise ValueError(f"{TRAINING}() returned a DataLoader whose epoch {epoch - 1} has no batch.")

    def _unmeasured(self) -> Iterator[Place]:
        """Read a batch sampler without a length as one endless epoch, forward from its beginning."""
        first = self._position + self._rank
        for place in read_unmeasured(self._loader.batch_sampler, self._seed, first, self._size):
            before = place[1] - self._rank
            self._read_ahead.append((0, before, before + self._size, before == 0, False, False))
            yield place

    def state_dict(self) -> dict[str, Any]:
        (epoch, position), layout = self._next_place(), self._layout()
        return {
            "version": 1,
            "seed": self._seed,
            "epoch": epoch,
            "position": position,
            "unit": self._unit(),
            "length": self._length(),
            "layout": layout,
            "shift": self._shift,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "position" not in state_dict:
            logger.warning(
                "The checkpoint was made with a loader that is not determined.pytorch.DataLoader, so what was seen "
                "of the epoch is unknown; this one goes on as if it had always been there.",
            )
            self._seek(state_dict["batches"])
            return
        if state_dict["seed"] != self._seed:
            self._use_seed(state_dict["seed"])  # finish the epoch in the order in which it began
        position = state_dict["position"]
        saved, now = (state_dict["unit"], state_dict["length"]), (self._unit(), self._length())
        if saved != now and position:
            logger.warning(
                "The checkpoint stopped at %d of %s %s, and an epoch now has %s %s: it goes on at about the same "
                "place, but records may be repeated or missed until the next epoch.",
                position,
                saved[1],
                saved[0],
                now[1],
                now[0],
            )
            if saved[1] and now[1]:
                position = position * now[1] // saved[1]
        self._shift = state_dict.get("shift") if state_dict.get("layout") == self._layout() else None
        self._go_to(state_dict["epoch"], position)

    def _unit(self) -> str:
        return "batches" if self._cut is None else self._cut.order.unit

    def _length(self) -> int | None:
        return None if self._cut is None else self._cut.order.expected_length()

    def close(self) -> None:
        self._batches = None
        self._read_ahead.clear()


class ForeignStream(TrainingStream):
    """Batches of a loader that is not ours, as it yields them. At its end it is started again."""

    def __init__(self, loader: Any, seed: int, rank: int, batches_trained: int, length: int) -> None:
        if length == 0:
            raise _no_batch(loader)
        self.epoch_length = length
        self._loader = loader
        self._reader = reader_of(loader, seed=seed, rank=rank, epoch_length=length)
        self._is_endless = is_endless(loader)
        self._batches_trained = batches_trained
        self._pass = batches_trained // length
        self._is_open = False
        self._is_fresh = self._is_late = False
        self._is_placed = batches_trained == 0

    def __next__(self) -> Any:
        if not self._is_open:
            self._warn_if_misplaced()
            self._start()
        while True:
            try:
                batch = self._reader.read()
            except StopIteration:
                if self._is_fresh:
                    raise _no_batch(self._loader) from None
                self._start()
                continue
            self._is_fresh = self._is_late = False
            self.epoch_idx, place = divmod(self._batches_trained, self.epoch_length)
            self.starts_epoch, self.ends_epoch = place == 0, place == self.epoch_length - 1
            self._batches_trained += 1
            return batch

    def _start(self) -> None:
        begun = self._is_open
        if begun and self._reader.is_used_up:
            raise RuntimeError(
                f"{TRAINING}() returned a {type(self._loader).__name__}, which ended after {self._batches_trained} "
                f"batches and cannot be started again. Return a loader, a list or an endless generator."
            )
        if begun and not self._is_late:
            self._pass += 1
        # A loader that was resumed at the end of a pass may have one empty pass, which does not count.
        self._is_late = not begun and self._batches_trained > 0 and self._batches_trained % self.epoch_length == 0
        self._reader.start(self._pass, self._batches_trained)
        self._is_open = True
        self._is_fresh = begun or self._batches_trained == 0

    def _warn_if_misplaced(self) -> None:
        if not self._is_placed and self._batches_trained % self.epoch_length:
            logger.warning(
                "%s has no state_dict() and load_state_dict(), so after batch %d training goes on with the first batch "
                "that it gives: some records of the epoch are seen twice, others not at all, unless %s() made it skip "
                "context.get_initial_batch() batches.",
                type(self._loader).__name__,
                self._batches_trained,
                TRAINING,
            )
        self._is_placed = True

    def state_dict(self) -> dict[str, Any]:
        # Whether the next batch is the first of a new pass is known without reading it.
        is_ended = self._batches_trained == (self._pass + 1) * self.epoch_length and not self._is_endless
        passes = self._pass + 1 if is_ended else self._pass
        state: dict[str, Any] = {"version": 1, "batches": self._batches_trained, "passes": passes}
        state |= self._reader.state_dict(ended=is_ended)
        if isinstance(self._loader, Stateful):
            state["loader"] = self._loader.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.close()
        self._batches_trained = state_dict.get("batches", self._batches_trained)
        self._pass = state_dict.get("passes", self._batches_trained // self.epoch_length)
        self._reader.load_state_dict(state_dict)
        self._is_placed = False
        if "loader" in state_dict and isinstance(self._loader, Stateful):
            self._loader.load_state_dict(state_dict["loader"])
            self._is_placed = True

    def epoch_shift(self, batches_trained: int) -> int:
        return self._batches_trained - batches_trained

    def step_back(self) -> None:
        # The loader itself cannot go back; after a resume it skips, or continues with the batch after this one.
        self._batches_trained = max(self._batches_trained - 1, 0)
        self._reader.step_back()

    def close(self) -> None:
        self._is_open = False
        self._reader.close()


def _no_batch(loader: Any) -> ValueError:
    return ValueError(
        f"{TRAINING}() returned a {type(loader).__name__} without a single batch, so there is nothing to train on."
    )


def _size_of(dataset: Any) -> str:
    try:
        return f"{type(dataset).__name__} of {len(dataset)} records"
    except TypeError:
        return type(dataset).__name__
