"""The loaders that `tests.fuzz` draws from: ours, and those of others, each made to skip in the way its user would."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

from determined import pytorch
from determined.pytorch import samplers

RECORDS = 14  # no batch size leaves a single one, which batch norm refuses
TorchLoader = torch.utils.data.DataLoader
DATA = torch.rand(RECORDS, 3, generator=torch.Generator().manual_seed(5))


def noisy(record: torch.Tensor, noise: str) -> torch.Tensor:
    """The record as it is read: with random numbers of one stream, of all, or of none."""
    if noise == "none":
        return record
    drawn = torch.rand(3)
    if noise == "all":
        drawn = drawn + random.random() + float(np.random.randn())
    return record + drawn / 10


class Records(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, noise: str, on_read: Callable[[], None] | None = None) -> None:
        self.noise, self.on_read = noise, on_read

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn = noisy(DATA[index], self.noise)
        if self.on_read is not None:
            self.on_read()
        return drawn


class Blocks(Records):
    """Whole batches by number, as datasets of files have them."""

    def __init__(self, noise: str, batch_size: int) -> None:
        super().__init__(noise)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return RECORDS // self.batch_size

    def __getitem__(self, index: int) -> torch.Tensor:
        return noisy(DATA[index * self.batch_size : (index + 1) * self.batch_size], self.noise)


class FirstPassSkips(torch.utils.data.Sampler[Any]):
    """What a user writes to skip: batches (or records) of the first pass only."""

    def __init__(self, source: Any, skip: int) -> None:
        self.source, self.skip = source, skip % len(source)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        skip, self.skip = self.skip, 0
        return itertools.islice(iter(self.source), skip, None)


class Rereading:
    """A wrapper that reads what it skips, and throws it away."""

    def __init__(self, loader: Any, skip: int) -> None:
        self.loader, self.skip = loader, skip % len(loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        skip, self.skip = self.skip, 0
        return itertools.islice(iter(self.loader), skip, None)


class Stream(IterableDataset[torch.Tensor]):
    """Records one after another. Jumps over what was trained; with workers, each has every second batch."""

    def __init__(self, noise: str, batch_size: int, skip: int, shuffles: bool) -> None:
        self.noise, self.batch_size, self.shuffles = noise, batch_size, shuffles
        self.batches = -(-RECORDS // batch_size)
        self.skip = skip % self.batches

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        order = torch.randperm(RECORDS).tolist() if self.shuffles else list(range(RECORDS))
        skip, self.skip = self.skip, 0
        for batch in range(skip + worker, self.batches, workers):
            for index in order[batch * self.batch_size : (batch + 1) * self.batch_size]:
                yield noisy(DATA[index], self.noise)


class Own:
    """An iterable of a user's own that makes batches."""

    def __init__(self, noise: str, batch_size: int, skip: int, shuffles: bool) -> None:
        self.stream = (noise, batch_size, skip, shuffles)
        self.batches = -(-RECORDS // batch_size)
        self.skip = skip % self.batches

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        noise, batch_size, _, shuffles = self.stream
        order = torch.randperm(RECORDS).tolist() if shuffles else list(range(RECORDS))
        skip, self.skip = self.skip, 0
        for batch in range(skip, self.batches):
            yield noisy(DATA[order[batch * batch_size : (batch + 1) * batch_size]], noise)


def endless(noise: str, batch_size: int, skip: int) -> Iterator[torch.Tensor]:
    for number in itertools.count(skip):
        yield noisy(DATA[[(number + i) % RECORDS for i in range(batch_size)]], noise)


def islice_of(loader: Any, skip: int) -> Iterator[Any]:
    """Passes over a torch loader without end, the first batches thrown away."""
    passes = itertools.chain.from_iterable(itertools.repeat(loader))
    return itertools.islice(passes, skip, None)


def make_loader(
    kind: str,
    *,
    noise: str,
    workers: int,
    persistent: bool,
    batch_size: int,
    skip: int,
    rank: int,
    size: int,
    on_read: Callable[[], None] | None,
) -> Any:
    """A loader of this kind for one rank, which leaves out what was trained."""
    data = Records(noise, on_read)
    more: dict[str, Any] = {"num_workers": workers, "persistent_workers": persistent}

    def shard(batches: Any) -> Any:
        return samplers.DistributedBatchSampler(batches, size, rank) if size > 1 else batches

    shuffled = BatchSampler(RandomSampler(data), batch_size, drop_last=False)
    if kind == "ours":
        return pytorch.DataLoader(data, batch_size, **more)
    if kind == "ours, shuffled":
        return pytorch.DataLoader(data, batch_size, shuffle=True, **more)
    if kind == "ours, sampler":
        return pytorch.DataLoader(data, batch_size, sampler=RandomSampler(data), **more)
    if kind == "ours, batch sampler":
        return pytorch.DataLoader(data, batch_sampler=shuffled, **more)
    if kind == "torch, in order":
        plain = BatchSampler(SequentialSampler(data), batch_size, drop_last=False)
        return TorchLoader(data, batch_sampler=FirstPassSkips(shard(plain), skip), **more)
    if kind == "torch, shuffled batches":
        return TorchLoader(data, batch_sampler=FirstPassSkips(shard(shuffled), skip), **more)
    if kind == "torch, shuffled records":
        sampler = FirstPassSkips(RandomSampler(data), skip % len(shuffled) * batch_size)
        return TorchLoader(data, batch_size, sampler=sampler, **more)
    if kind == "torch, generator":
        generator = torch.Generator().manual_seed(11)
        batches = BatchSampler(RandomSampler(data, generator=generator), batch_size, drop_last=False)
        return TorchLoader(data, batch_sampler=FirstPassSkips(batches, skip), generator=generator, **more)
    if kind == "torch, repeated":  # as the guide says: shuffle, repeat, shard, skip
        batches = samplers.SkipBatchSampler(shard(samplers.RepeatBatchSampler(shuffled)), skip)
        return TorchLoader(data, batch_sampler=batches, **more)
    if kind == "torch, our shuffle":
        order = samplers.ReproducibleShuffleSampler(SequentialSampler(data), 4)
        batches = BatchSampler(samplers.RepeatSampler(order), batch_size, drop_last=False)
        return TorchLoader(data, batch_sampler=samplers.SkipBatchSampler(shard(batches), skip), **more)
    if kind == "torch, without batching":
        blocks = Blocks(noise, batch_size)
        return TorchLoader(blocks, batch_size=None, sampler=FirstPassSkips(RandomSampler(blocks), skip), **more)
    if kind == "torch, reread":
        return Rereading(TorchLoader(data, batch_size, shuffle=True, **more), skip)
    if kind == "torch, islice":
        return islice_of(TorchLoader(data, batch_size, shuffle=True, **more), skip)
    if kind == "iterable":  # workers go on from where each of them stood, so records that draw are read here
        stream = Stream(noise if workers == 0 else "none", batch_size, skip, shuffles=False)
        return TorchLoader(stream, batch_size, **more)
    if kind == "iterable, shuffled":
        return TorchLoader(Stream("none", batch_size, skip, shuffles=True), batch_size)
    if kind == "iterable, reread":
        return Rereading(TorchLoader(Stream(noise, batch_size, 0, shuffles=True), batch_size, **more), skip)
    if kind == "own":
        return Own(noise, batch_size, skip, shuffles=False)
    if kind == "own, shuffled":
        return Own("none", batch_size, skip, shuffles=True)
    if kind == "generator":
        return endless(noise, batch_size, skip)
    if kind == "our torch loader":
        whole_loader = pytorch.DataLoader(data, batch_size, shuffle=True, **more)
        return whole_loader.get_data_loader(repeat=True, skip=skip, num_replicas=size, rank=rank)
    assert kind == "list"
    batches = [DATA[:batch_size], DATA[batch_size : 2 * batch_size]]
    return batches if skip % 2 == 0 else [batches[1], batches[0]]


OURS = ["ours", "ours, shuffled", "ours, sampler", "ours, batch sampler"]
FOREIGN = [
    "torch, in order", "torch, shuffled batches", "torch, shuffled records", "torch, generator", "torch, repeated",
    "torch, our shuffle", "torch, without batching", "torch, reread", "torch, islice", "iterable", "iterable, shuffled",
    "iterable, reread", "own", "own, shuffled", "generator", "our torch loader", "list",
]  # fmt: skip
LOADERS = [*OURS, *OURS, *FOREIGN]
