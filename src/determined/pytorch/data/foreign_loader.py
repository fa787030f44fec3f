"""How a loader that is not ours is read: on random streams of its own, which begin anew with each pass.

So reading draws nothing from the streams of training, and a loader that is made to skip what was trained gives after a
resume what it would have given: the same order, and where it can be told, the same random numbers for each record.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import torch
from torch.utils.data import IterableDataset, Sampler

from determined._types import Stateful
from determined.pytorch import samplers
from determined.pytorch.data.seeded_loader import Place, SeededLoader
from determined.pytorch.rng.kept_streams import KeptStreams, OwnStreams, isolated_iterator

_TorchLoader = torch.utils.data.DataLoader
_HELD = (list, tuple, range)
_LATER = object()


class Reader:
    """Reads one loader, pass after pass; this one, batches that lie in memory, for which nothing is drawn.

    Example::

        reader = reader_of(loader, seed=seed, rank=rank, epoch_length=len(loader))
        reader.start(0, first=0)
        batch = reader.read()          # StopIteration at the end of the pass
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._number = self._first = 0
        self._batches: Iterator[Any] = iter(())

    def start(self, number: int, first: int) -> None:
        """Begin pass `number`, whose first batch is number `first` of training."""
        self._number, self._first = number, first
        self._batches = self._open()

    def _open(self) -> Iterator[Any]:
        opened: Iterator[Any] = iter(self._loader)
        return opened

    def read(self) -> Any:
        """The next batch of the pass."""
        return next(self._batches)

    @property
    def is_used_up(self) -> bool:
        """Whether the loader is its own iterator, which ends once and for all."""
        return self._batches is self._loader

    def step_back(self) -> None:
        """Put the loader's own streams where they were before the last batch."""

    def state_dict(self, *, ended: bool) -> dict[str, Any]:  # noqa: ARG002 - for those that draw
        """What a resume needs to begin with the next batch. `ended`: that one belongs to a new pass."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the first `start()` be what it would have been."""

    def close(self) -> None:
        """Let go of workers."""
        self._batches = iter(())


def reader_of(loader: Any, *, seed: int, rank: int, epoch_length: int) -> Reader:
    """The way to read this loader."""
    if type(loader) in _HELD:
        return Reader(loader)
    if isinstance(loader, Stateful):
        return _OneStream(loader, seed)
    if isinstance(loader, SeededLoader):
        loader.seeds_here = loader.num_workers == 0
        return _Numbered(loader)
    if _reads_records(loader):
        return _Records(loader, seed, rank, epoch_length)
    return _OneStream(loader, seed)


def is_endless(loader: Any) -> bool:
    """Whether its one pass never ends, as far as can be seen."""
    repeating = (samplers.RepeatSampler, samplers.RepeatBatchSampler)
    return any(isinstance(part, repeating) for part in _parts(loader))


class _Numbered(Reader):
    """A torch loader that seeds each batch by itself."""

    def __init__(self, loader: SeededLoader) -> None:
        super().__init__(loader)
        self._seeded = loader
        self._outer = KeptStreams()

    def _open(self) -> Iterator[Any]:
        self._seeded.passes_begun = self._number
        return super()._open()

    def close(self) -> None:
        super().close()
        self._seeded.close()

    def read(self) -> Any:
        if not self._seeded.seeds_here:
            return next(self._batches)
        self._outer.keep()
        try:
            return next(self._batches)
        finally:
            self._outer.put_back()


class _Records(_Numbered):
    """torch's own loader of a map-style dataset.

    Its sampler runs on streams of the pass. Records are read on streams of the batch, here and in workers, so it does
    not matter that a resume skips batches without reading them.
    """

    def __init__(self, loader: Any, seed: int, rank: int, epoch_length: int) -> None:
        self._user = loader
        self._seed = seed
        self._epoch_length = epoch_length
        self._generators = [part for part in _parts(loader) if isinstance(part, torch.Generator)]
        self._opened_with: list[torch.Tensor] = []
        self._sampling: OwnStreams | None = None
        seeded = SeededLoader(
            lambda _: self._places(),
            seed=seed,
            purpose=f"loader of rank {rank}",
            options=_options(loader),
            seeds_here=loader.num_workers == 0,
        )
        super().__init__(seeded)

    def _open(self) -> Iterator[Any]:
        self._sampling = OwnStreams("loader", self._seed, self._number)
        self._opened_with = [generator.get_state() for generator in self._generators]
        return super()._open()

    def _places(self) -> Iterator[Place]:
        loader, sampling = self._user, self._sampling
        assert sampling is not None, "started"
        found = isolated_iterator(loader.sampler if loader.batch_sampler is None else loader.batch_sampler, sampling)
        batch = next(found, None)
        number = self._first
        while batch is not None:
            epoch, position = divmod(number, self._epoch_length)
            # Samplers may draw once more at their end; if that comes after a checkpoint, it does not know.
            after = next(found, None) if position == self._epoch_length - 1 else _LATER
            yield epoch, position, [batch] if loader.batch_sampler is None else batch
            batch = next(found, None) if after is _LATER else after
            number += 1

    def state_dict(self, *, ended: bool) -> dict[str, Any]:
        if not self._generators:
            return {}
        now = [generator.get_state() for generator in self._generators]
        return {"generators": now if ended or not self._opened_with else self._opened_with}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = state.get("generators") or []
        if len(saved) == len(self._generators):
            for generator, stood in zip(self._generators, saved, strict=True):
                generator.set_state(stood)


class _OneStream(Reader):
    """Anything else. What it draws, for the order and for each record, comes from one set of streams.

    After a resume, a loader that wraps a torch loader is taken to read what it skips, so its streams begin with the
    pass. Another one that draws for each batch is taken to skip without reading, so they go on where they stood.
    """

    def __init__(self, loader: Any, seed: int) -> None:
        super().__init__(loader)
        self._seed = seed
        self._rereads = not isinstance(loader, Stateful) and _wraps(loader)
        self._streams: OwnStreams | None = None
        self._stood: Any = None
        self._reads = 0
        self._draws = False  # whether reading a batch draws
        self._is_sure = False  # a batch was seen that is not the first of its pass, which may draw the order as well

    def _open(self) -> Iterator[Any]:
        self._reads = 0
        if self._rereads:
            self._end_workers()
        self._streams = OwnStreams("loader", self._seed, self._number)
        with self._streams:
            opened = super()._open()
        if self._stood is not None:
            self._streams.load_state_dict(self._stood)
            self._stood = None
        return opened

    def _end_workers(self) -> None:
        """Have a wrapped loader with persistent workers start new ones: old ones go on with their random streams, and
        nobody knows after a resume where those stood."""
        for part in _parts(self._loader):
            if isinstance(part, _TorchLoader) and part.persistent_workers:
                part._iterator = None

    def read(self) -> Any:
        assert self._streams is not None, "started"
        with self._streams:
            batch = next(self._batches)
        if not self._is_sure or (self._reads and not self._draws):
            self._draws, self._is_sure = self._streams.have_moved(), self._reads > 0
        self._reads += 1
        return batch

    def step_back(self) -> None:
        if self._streams is not None:
            self._streams.step_back()

    def state_dict(self, *, ended: bool) -> dict[str, Any]:
        state: dict[str, Any] = {"draws": [self._draws, self._is_sure]}
        if self._draws and self._streams is not None and not ended and not self._rereads:
            state["streams"] = self._streams.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._draws, self._is_sure = state.get("draws", (False, False))
        self._stood = None if self._rereads else state.get("streams")


def _reads_records(loader: Any) -> bool:
    """Whether this is torch's loader of a map-style dataset, iterated in torch's way."""
    kind = type(loader)
    return (
        isinstance(loader, _TorchLoader)
        and kind.__iter__ is _TorchLoader.__iter__
        and kind._get_iterator is _TorchLoader._get_iterator
        and not isinstance(loader.dataset, IterableDataset)
    )


def _options(loader: Any) -> dict[str, Any]:
    """The arguments with which torch makes such a loader again."""
    names = ("dataset", "num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
             "generator", "prefetch_factor", "persistent_workers", "in_order")  # fmt: skip
    options = {name: getattr(loader, name) for name in names if hasattr(loader, name)}
    if device := getattr(loader, "pin_memory_device", ""):
        options["pin_memory_device"] = device
    by_batch = loader.batch_sampler is not None
    options["batch_sampler"] = loader.batch_sampler if by_batch else loader.sampler
    options["collate_fn"] = loader.collate_fn if by_batch else _Only(loader.collate_fn)
    return options


class _Only:
    """Converts the one item of a loader that does not make batches."""

    def __init__(self, convert: Any) -> None:
        self._convert = convert

    def __call__(self, records: list[Any]) -> Any:
        return self._convert(records[0])


def _wraps(loader: Any) -> bool:
    """Whether it iterates over a torch loader, or is one of python's iterators, such as islice over one."""
    if isinstance(loader, _TorchLoader):
        return False
    if isinstance(loader, Iterator) and not hasattr(loader, "__dict__") and not isinstance(loader, GeneratorType):
        return True
    return any(isinstance(part, _TorchLoader) for part in _parts(loader))


def _parts(loader: Any, depth: int = 5) -> Iterator[Any]:
    """The loader, and the loaders, samplers and generators inside of it."""
    yield loader
    if depth == 0 or isinstance(loader, torch.Generator):
        return
    frame = loader.gi_frame if isinstance(loader, GeneratorType) else None
    held = getattr(loader, "__dict__", {}) if frame is None else frame.f_locals
    seen: set[int] = set()
    for value in list(held.values()):
        if isinstance(value, (_TorchLoader, Sampler, torch.Generator, GeneratorType)) and id(value) not in seen:
            seen.add(id(value))
            yield from _parts(value, depth - 1)
