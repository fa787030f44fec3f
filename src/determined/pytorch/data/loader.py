"""`DataLoader`: describes the data, and makes torch loaders of it for any rank, from any batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, Union

import numpy as np
import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler, default_collate

from determined.pytorch import samplers
from determined.pytorch._rng import OwnStreams, isolated_iterator
from determined.pytorch.data import order
from determined.pytorch.data.seeded_loader import OPTIONS, Passes, Place, SeededLoader

T_co = TypeVar("T_co", covariant=True)

# Spelled with Union and typing's generics, because users' code looks inside at run time.
TorchData = Union[dict[str, torch.Tensor], Sequence[torch.Tensor], torch.Tensor]  # noqa: UP007
_Array = Union[np.ndarray[Any, Any], torch.Tensor]  # noqa: UP007
_Data = Union[dict[str, _Array], Sequence[_Array], _Array]  # noqa: UP007

GUIDE = "docs/guides/data.md"
DEFAULT_SEED = 0
"""Decides the order if no seed is given. torch's global seed may differ between ranks, so it cannot."""


class DataLoader(Generic[T_co]):
    """Describes how data is read; training adds sharding, repeating, and starting at the right batch.

    It takes torch's arguments, in torch's order; those not listed here are handed on to the installed torch. It is not
    itself a torch loader: it makes them. The order of data, and random numbers drawn in workers, are functions of
    (seed, epoch, position), so training goes on from any batch as if it had never stopped. Iterating draws nothing
    from the global random streams.

    Args:
        dataset: Map-style: `dataset[i]`, `len(dataset)`.
        batch_size: Records in a batch of one rank.
        shuffle: Read in a new order in each epoch.
        sampler: Which records, in which order, instead of `shuffle`. If it has a length, an epoch of it is read at
            once.
        batch_sampler: Which batches, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: Processes that load; 0 loads in this one, where random numbers come from its own streams.
        collate_fn: Makes a batch of a list of records.
        pin_memory: Page-lock batches, so that they move to the device in the background.
        drop_last: Leave an incomplete last batch out.
        timeout: Seconds to wait for a batch of a worker; 0 is for ever.
        worker_init_fn: Called in each worker with its number.
        multiprocessing_context: How workers are started.
        generator: Its `initial_seed()` decides the order instead of the trial's seed; give all ranks the same.
        prefetch_factor: Batches each worker loads ahead; 2 if there are workers.
        persistent_workers: Keep workers between passes. (Workers of training live on in any case.)

    Example::

        loader = DataLoader(list(range(10)), batch_size=2)
        list(loader.get_data_loader(num_replicas=2, rank=1))   # [tensor([2, 3]), tensor([6, 7])]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        **torch_options: Any,
    ) -> None:
        _check_known_to_torch(torch_options)
        _check_dataset(dataset)
        if batch_sampler is None and batch_size is None:
            raise ValueError(
                "batch_size=None, so nothing would say what a batch is. Give a batch_size or a batch_sampler; "
                "torch's mode without batches has no place here."
            )
        prefetch_factor = _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle=True both decide the order of records. Leave one of them out.")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    f"batch_sampler decides all that batch_size={batch_size}, shuffle={shuffle}, sampler={sampler} and "
                    f"drop_last={drop_last} would. Leave those out."
                )
            batch_size, drop_last = None, False

        self._seed = DEFAULT_SEED if generator is None else generator.initial_seed()
        if sampler is None:
            sampler = order.EpochShuffle(dataset, self._seed, generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None:
            assert batch_size is not None, "checked above"
            batch_sampler = order.EpochBatches(sampler, batch_size, drop_last)

        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self.persistent_workers = persistent_workers
        for name, value in torch_options.items():
            setattr(self, name, value)
        self._torch_options = torch_options
        self._whole: torch.utils.data.DataLoader[Any] | None = None

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> torch.utils.data.DataLoader[Any]:
        """Return a torch loader of the batches of one rank: repeated, then divided among ranks in turn, then skipped.

        `len()` of it is the number of batches of this rank in one epoch, whatever `repeat` and `skip` are. Skipped
        batches are not read. Where batches do not divide by ranks, passes over the data and epochs drift apart;
        training does better, see the guide on data.

        Args:
            repeat: Go on for ever, epoch after epoch.
            skip: Batches of this rank to leave out at the start.
            num_replicas: How many ranks share the batches.
            rank: Which of them this is; ignored if there is only one.
        """
        batch_sampler = adapt_batch_sampler(self.batch_sampler, repeat, skip, num_replicas, rank)
        rank, stride = (rank, num_replicas) if num_replicas > 1 else (0, 1)
        passes = self._passes(self._seed, rank + max(skip, 0) * stride, stride, repeat)
        return self.open(passes, batch_sampler=batch_sampler)

    def open(
        self,
        passes: Passes,
        *,
        seed: int | None = None,
        purpose: str = "training",
        batch_sampler: Any = None,
        numbered: bool = True,
    ) -> SeededLoader:
        """Return a torch loader of the batches in `passes`, with these settings. For training, not for users."""
        return SeededLoader(
            passes,
            seed=self._seed if seed is None else seed,
            purpose=purpose,
            options=self._options(self.batch_sampler if batch_sampler is None else batch_sampler),
            numbered=numbered,
        )

    def seed_for(self, trial_seed: int) -> int:
        """Return the seed that decides the order in a trial: that of the user's generator, else the trial's."""
        return trial_seed if self.generator is None else self._seed

    def shard(self, *, seed: int, num_replicas: int, rank: int) -> SeededLoader:
        """Return what a validation of one rank reads: the same pass each time. For training, not for users."""
        batch_sampler = adapt_batch_sampler(self.batch_sampler, num_replicas=num_replicas, rank=rank)
        seed = self.seed_for(seed)
        passes = self._passes(seed, rank, num_replicas, repeat=False)
        return self.open(passes, seed=seed, purpose="validation", batch_sampler=batch_sampler, numbered=False)

    def __iter__(self) -> Iterator[Any]:
        if self._whole is None:
            self._whole = self.get_data_loader()  # kept, because it counts passes and may have workers
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def _passes(self, seed: int, start: int, stride: int, repeat: bool) -> Passes:
        """Return batches start, start + stride, ... of each pass or, repeated, of all epochs one after another."""
        cut = order.batching(self.batch_sampler, seed)
        if cut is None:
            return lambda _: read_unmeasured(self.batch_sampler, seed, start, stride, repeat)
        if repeat:
            return lambda _: _repeated(cut, start, stride)
        return lambda number: ((number, *batch) for batch in order.read_batches(cut, number, start, stride))

    def _options(self, batch_sampler: Any) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in OPTIONS}
        return {**options, "batch_sampler": batch_sampler, "collate_fn": self.collate_fn, **self._torch_options}


def adapt_batch_sampler(
    batch_sampler: Any, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
) -> BatchSampler:
    """Wrap a batch sampler for training: repeat it, then divide it among ranks, then skip.

    Args:
        batch_sampler: The batches of one epoch.
        repeat: Go on for ever, epoch after epoch.
        skip: Batches of this rank to leave out at the start.
        num_replicas: How many ranks share the batches.
        rank: Which of them this is; ignored if there is only one.
    """
    if repeat:
        batch_sampler = samplers.RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = samplers.DistributedBatchSampler(batch_sampler, num_replicas, rank)
    if skip > 0:
        batch_sampler = samplers.SkipBatchSampler(batch_sampler, skip)
    adapted: BatchSampler = batch_sampler
    return adapted


def _repeated(cut: order.Batching, start: int, stride: int) -> Iterator[Place]:
    """Yield batches start, start + stride, ... of epoch after epoch."""
    epoch = 0
    if cut.order.is_steady and (batches := cut.count(cut.order.expected_length())):
        epoch, start = divmod(start, batches)
    while True:
        batches = cut.count(cut.order.length(epoch))
        if not batches:
            raise ValueError(
                f"Epoch {epoch} has no batch, so repeating would never yield anything. Is the dataset empty?"
            )
        for position, indices in order.read_batches(cut, epoch, start, stride):
            yield epoch, position, indices
        taken = len(range(start, batches, stride))
        start += taken * stride - batches
        epoch += 1


def read_unmeasured(batch_sampler: Any, seed: int, start: int, stride: int, repeat: bool = True) -> Iterator[Place]:
    """Yield the same of a batch sampler without a length: it is read forward, on random streams of its own."""
    source = samplers.RepeatBatchSampler(batch_sampler) if repeat else batch_sampler
    batches = isolated_iterator(source, OwnStreams("sampler", seed))
    for number, indices in islice(enumerate(batches), start, None, stride):
        yield 0, number, indices


def _check_known_to_torch(options: dict[str, Any]) -> None:
    known = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    if unknown := sorted(options.keys() - known.keys()):
        raise TypeError(f"DataLoader got {unknown}, which torch {torch.__version__} does not know either.")


def _check_dataset(dataset: Any) -> None:
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"{type(dataset).__name__} is an IterableDataset, which is unsupported here: it has no record number i "
            f"to start from. Return a torch.utils.data.DataLoader over it, call "
            f"context.experimental.disable_dataset_reproducibility_checks(), and do shuffling, sharding, repeating and "
            f"skipping yourself. See {GUIDE}."
        )


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> int | None:
    """Check these settings, and return the prefetch factor."""
    if num_workers < 0:
        raise ValueError(f"num_workers={num_workers}. Use 0 to load in the training process.")
    if timeout < 0:
        raise ValueError(f"timeout={timeout}. Use 0 to wait for ever.")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            f"prefetch_factor={prefetch_factor}, but without workers nothing is fetched ahead. Set num_workers."
        )
    if num_workers > 0 and prefetch_factor is None:
        prefetch_factor = 2
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError(f"prefetch_factor={prefetch_factor} is negative. Leave it out for 2 batches per worker.")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers=True, but there are no workers. Set num_workers.")
    return prefetch_factor
