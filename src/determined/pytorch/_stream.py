"""From what a trial's `build_*_data_loader()` returned to the batches the loop trains on: endless, able to say and to
take up a position. Where a batch is, `_order` and `_deal` compute; `_seeded_loader` reads it.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from determined._types import Json, Stateful
from determined.pytorch import _batch_rng, _order, samplers
from determined.pytorch._data import GUIDE, DataLoader
from determined.pytorch._deal import Deal
from determined.pytorch._seeded_loader import Place

logger = logging.getLogger("determined.pytorch")

TRAINING = "build_training_data_loader"
VALIDATION = "build_validation_data_loader"


class Step(NamedTuple):
    """One batch of one rank, and where the epoch stands after it."""

    epoch: int
    start: int
    stop: int
    position_after: int
    starts_epoch: bool
    ends_epoch: bool
    is_stand_in: bool


class TrainingStream(ABC, Iterator[Any]):
    """Training batches of one rank, for ever. The properties tell of the batch that `next()` returned last.

    Example::

        stream = training_stream(loader, seed=seed, rank=rank, size=size)
        stream.load_state_dict(saved)      # on a resume; the number of ranks may have changed
        batch = next(stream)
        stream.epoch_idx, stream.ends_epoch
        saved = stream.state_dict()        # after any batch
    """

    epoch_length: int
    """Steps of a whole epoch, the same on every rank; `sys.maxsize` if unknown."""

    @abstractmethod
    def __next__(self) -> Any: ...

    @property
    @abstractmethod
    def epoch_idx(self) -> int:
        """The epoch that the last batch belongs to."""

    @property
    @abstractmethod
    def starts_epoch(self) -> bool:
        """The last batch was the first of its epoch."""

    @property
    @abstractmethod
    def ends_epoch(self) -> bool:
        """The last batch was the last of its epoch."""

    @property
    def is_stand_in(self) -> bool:
        """The last batch is another rank's: this one had none left, and takes part so that the others need not wait."""
        return False

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Where to go on after the last batch. The same on every rank, unless the user's own loader says otherwise."""

    @abstractmethod
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict()` was taken."""

    @abstractmethod
    def close(self) -> None:
        """Let go of workers. The position stays; `next()` would start them again."""


def epoch_length(loader: Any, size: int = 1) -> int:
    """Steps of an epoch that `size` ranks share; `sys.maxsize` if the loader does not say how long it is.

    Of loaders that are not ours, each rank has its own: the chief's length must be sent to all.
    """
    return _own_length(loader, size)


def _own_length(loader: Any, size: int) -> int:
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
    epoch_length: int | None = None,
    is_checked: bool = True,
) -> TrainingStream:
    """The stream of what `build_training_data_loader()` returned.

    Args:
        loader: Our `DataLoader`, or, unchecked, anything that can be iterated over.
        seed: The trial's seed; equal on every rank.
        rank: This process.
        size: How many processes train.
        batches_trained: Batches of this rank that were trained before. `load_state_dict` is more exact: it also allows
            for a change of `size`.
        epoch_length: What the chief's `epoch_length()` said, if several ranks train.
        is_checked: Refuse loaders other than ours, as training does unless the user opts out.

    Raises:
        RuntimeError: A loader that is not ours, while the check is on.
        ValueError: A loader without a single batch, or one that differs between ranks.
    """
    own = _own_length(loader, size)
    agreed = own if epoch_length is None else epoch_length
    if not isinstance(loader, DataLoader):
        _check_ours(loader, TRAINING, is_checked)
        return ForeignStream(loader, batches_trained, agreed)
    if own != agreed:
        raise ValueError(
            f"{TRAINING}() gives rank {rank} an epoch of {own} batches and the chief one of {agreed}. "
            f"Describe the same dataset, batch size and sampler on every rank; training shards it."
        )
    return OrderedStream(loader, loader.seed_for(seed), rank, size, batches_trained)


def validation_loader(loader: Any, *, seed: int, rank: int = 0, size: int = 1, is_checked: bool = True) -> Any:
    """What one rank iterates over in each validation.

    That is its share of our `DataLoader`, in the same order every time, or, unchecked, the user's loader itself. A
    share may be empty. For `evaluate_full_dataset`, ask for rank 0 of 1.

    Raises:
        RuntimeError: A loader that is not ours, while the check is on.
        TypeError: One that is used up after the first validation.
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


def _dataset_repro_warning(fn: str, data_obj: Any, is_deepspeed_trial: bool = False) -> str:
    """Why a loader of the user's own is refused, and what to do."""
    where = "context" if is_deepspeed_trial else "context.experimental"
    return (
        f"{fn}() returned a {type(data_obj).__name__}, which cannot be sharded, nor resumed at the right batch. "
        f"Return a determined.pytorch.DataLoader, which takes the same arguments as torch's. Or call "
        f"{where}.disable_dataset_reproducibility_checks() in the trial's __init__, and shuffle, repeat, shard and "
        f"skip yourself, in this order. See {GUIDE}."
    )


class OrderedStream(TrainingStream):
    """Batches of our `DataLoader`.

    The position is kept in records of the epoch over all ranks (in batches, if the user cut them), so another number of
    ranks can go on from it.
    """

    def __init__(self, loader: DataLoader[Any], seed: int, rank: int, size: int, batches_trained: int) -> None:
        self.epoch_length = epoch_length(loader, size)
        self._loader = loader
        self._rank = rank
        self._size = size
        self._batches: Iterator[Any] | None = None
        self._read_ahead: deque[Step] = deque()  # what workers are loading
        self._use_seed(seed)
        self._check_batches()
        self._seek(batches_trained)
        if size > 1 and _order.is_sharded(loader.batch_sampler):
            logger.warning(
                "%s() returned a DataLoader whose sampler already deals records to ranks; training deals them once "
                "more, so each rank sees only a part of its part. Leave the distributed sampler out.",
                TRAINING,
            )
        if loader.num_workers > 1 and getattr(loader, "in_order", True) is False:
            logger.warning("in_order=False: batches come as workers finish them, so a resume may repeat or miss a few.")

    def _use_seed(self, seed: int) -> None:
        self._seed = seed
        self._cut = _order.batching(self._loader.batch_sampler, seed)
        if self._cut is not None:
            may_cut = self._cut.order.unit == "records"
            self._deal = Deal(self._cut.batch_size, self._size, self._cut.drop_last, may_cut)

    def _check_batches(self) -> None:
        if self.epoch_length == 0:
            loader = self._loader
            raise ValueError(
                f"{TRAINING}() returned a DataLoader without a single batch ({_size_of(loader.dataset)}, "
                f"batch_size={loader.batch_size}, drop_last={loader.drop_last}), so there is nothing to train on."
            )

    def _seek(self, batches_trained: int) -> None:
        self._epoch, step = divmod(batches_trained, self.epoch_length)
        if self._cut is None:
            self._position = batches_trained * self._size
        else:
            self._position = self._deal.taken_by(step, self._cut.order.expected_length())
        self._forget()

    def _forget(self) -> None:
        self.close()
        self._last = Step(self._epoch, 0, 0, self._position, False, False, False)

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = iter(self._loader.open(lambda _: self._places(), seed=self._seed))
        batch = next(self._batches)
        self._last = step = self._read_ahead.popleft()
        if step.ends_epoch:
            self._epoch, self._position = step.epoch + 1, 0
        else:
            self._epoch, self._position = step.epoch, step.position_after
        return batch

    def _places(self) -> Iterator[Place]:
        for step, indices in self._unmeasured() if self._cut is None else self._measured(self._cut):
            self._read_ahead.append(step)
            yield Place(step.epoch, step.start, indices)

    def _measured(self, cut: _order.Batching) -> Iterator[tuple[Step, Any]]:
        epoch, position = self._epoch, self._position
        per_block = max(1, _order.BLOCK // cut.batch_size)
        empty = 0
        while empty < 2:  # one may be: a smaller world or batch size can find an epoch at its end
            length = cut.order.length(epoch)
            steps = self._steps(epoch, position, length)
            empty += 1
            while block := list(islice(steps, per_block)):
                empty = 0
                yield from zip(block, cut.order.read(epoch, [(step.start, step.stop) for step in block]), strict=True)
            epoch, position = epoch + 1, 0
        raise ValueError(f"{TRAINING}() returned a DataLoader whose epoch {epoch - 1} has no batch.")

    def _steps(self, epoch: int, position: int, length: int) -> Iterator[Step]:
        deal = self._deal
        while deal.usable(length - position) > 0:
            left = length - position
            part = deal.part(self._rank, left)
            after = position + deal.taken(left)
            yield Step(
                epoch,
                position + part.start,
                position + part.stop,
                after,
                position == 0,
                deal.usable(length - after) == 0,
                part.is_stand_in,
            )
            position = after

    def _unmeasured(self) -> Iterator[tuple[Step, Any]]:
        """A batch sampler without a length: one epoch that never ends, read forward from its beginning."""
        batches = _batch_rng.isolated_iterator(
            samplers.RepeatBatchSampler(self._loader.batch_sampler), "sampler", self._seed
        )
        first = self._position + self._rank
        for number, indices in islice(enumerate(batches), first, None, self._size):
            after = number - self._rank + self._size
            yield Step(0, number, number + 1, after, number < self._size, False, False), indices

    @property
    def epoch_idx(self) -> int:
        return self._last.epoch

    @property
    def starts_epoch(self) -> bool:
        return self._last.starts_epoch

    @property
    def ends_epoch(self) -> bool:
        return self._last.ends_epoch

    @property
    def is_stand_in(self) -> bool:
        return self._last.is_stand_in

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Json] = {
            "version": 1,
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "unit": self._unit(),
            "length": self._length(),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "position" not in state_dict:
            logger.warning(
                "The checkpoint was made with a loader that is not determined.pytorch.DataLoader, so what was seen "
                "of the epoch is unknown; this one goes on as if it had always been there.",
            )
            self._seek(state_dict["batches"])
            return
        if state_dict["seed"] != self._seed:
            self._use_seed(state_dict["seed"])  # the order that was begun is finished
        self._epoch, self._position = state_dict["epoch"], state_dict["position"]
        saved, now = (state_dict["unit"], state_dict["length"]), (self._unit(), self._length())
        if saved != now and self._position:
            logger.warning(
                "The checkpoint stopped at %d of %s %s, and an epoch now has %s %s: it goes on at about the same "
                "place, but records may be repeated or missed until the next epoch.",
                self._position,
                saved[1],
                saved[0],
                now[1],
                now[0],
            )
            if saved[1] and now[1]:
                self._position = self._position * now[1] // saved[1]
        self._forget()

    def _unit(self) -> str:
        return "batches" if self._cut is None else self._cut.order.unit

    def _length(self) -> int | None:
        return None if self._cut is None else self._cut.order.expected_length()

    def close(self) -> None:
        self._batches = None
        self._read_ahead.clear()


class ForeignStream(TrainingStream):
    """Batches of a loader that is not ours, as it gives them. At its end it is started again."""

    def __init__(self, loader: Any, batches_trained: int, length: int) -> None:
        self.epoch_length = length
        self._loader = loader
        self._batches_trained = batches_trained
        self._batches: Iterator[Any] | None = None
        self._is_fresh = False
        self._is_placed = batches_trained == 0
        if length == 0:
            raise _no_batch(loader)

    def __next__(self) -> Any:
        if self._batches is None:
            self._say_if_misplaced()
            self._start()
        assert self._batches is not None, "just started"
        while True:
            try:
                batch = next(self._batches)
            except StopIteration:
                if self._is_fresh:
                    raise _no_batch(self._loader) from None
                self._start()
                continue
            self._is_fresh = False
            self._batches_trained += 1
            return batch

    def _start(self) -> None:
        begun = self._batches is not None
        if begun and self._batches is self._loader:
            raise RuntimeError(
                f"{TRAINING}() returned a {type(self._loader).__name__}, which ended after {self._batches_trained} "
                f"batches and cannot be started again. Return a loader, a list or an endless generator."
            )
        self._batches = iter(self._loader)
        # A loader that was just put at its end is allowed one empty pass.
        self._is_fresh = begun or self._batches_trained == 0

    def _say_if_misplaced(self) -> None:
        if not self._is_placed and self._batches_trained % self.epoch_length:
            logger.warning(
                "%s has no state_dict() and load_state_dict(), so after batch %d training goes on at its beginning, "
                "and some records of the epoch may be seen twice, others not at all.",
                type(self._loader).__name__,
                self._batches_trained,
            )
        self._is_placed = True

    @property
    def epoch_idx(self) -> int:
        return max(self._batches_trained - 1, 0) // self.epoch_length

    @property
    def starts_epoch(self) -> bool:
        return self._batches_trained % self.epoch_length == 1 % self.epoch_length and self._batches_trained > 0

    @property
    def ends_epoch(self) -> bool:
        return self._batches_trained % self.epoch_length == 0 and self._batches_trained > 0

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"version": 1, "batches": self._batches_trained}
        if isinstance(self._loader, Stateful):
            state["loader"] = self._loader.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.close()
        self._batches_trained = state_dict.get("batches", self._batches_trained)
        self._is_placed = False
        if "loader" in state_dict and isinstance(self._loader, Stateful):
            self._loader.load_state_dict(state_dict["loader"])
            self._is_placed = True

    def close(self) -> None:
        self._batches = None


def _no_batch(loader: Any) -> ValueError:
    return ValueError(
        f"{TRAINING}() returned a {type(loader).__name__} without a single batch, so there is nothing to train on."
    )


def _size_of(dataset: Any) -> str:
    try:
        return f"{type(dataset).__name__} of {len(dataset)} records"
    except TypeError:
        return type(dataset).__name__
