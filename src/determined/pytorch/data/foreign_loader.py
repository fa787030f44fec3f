"""Reads a loader that is not ours on random streams of its own, which are seeded anew for each pass.

So reading draws nothing from the streams of training, and a loader that skips what was trained yields after a resume
what it would have yielded: the same order and, where that is possible, the same random numbers for each record.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import torch
from torch.utils.data import IterableDataset, Sampler

from determined._types import Stateful
from determined.pytorch import samplers
from determined.pytorch._rng import KeptStreams, OwnStreams, isolated_iterator
from determined.pytorch.data.seeded_loader import OPTIONS, Place, SeededLoader

_TorchLoader = torch.utils.data.DataLoader
_HELD = (list, tuple, range)
_LATER = object()


class Reader:
    """Reads one loader, pass after pass. This base class reads batches in memory, for which nothing is drawn.

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
        """Start pass `number`, whose first batch is number `first` of training."""
        self._number, self._first = number, first
        self._batches = self._open()

    def _open(self) -> Iterator[Any]:
        opened: Iterator[Any] = iter(self._loader)
        return opened

    def read(self) -> Any:
        """Return the next batch of the pass."""
        return next(self._batches)

    @property
    def is_used_up(self) -> bool:
        """Whether the loader is its own iterator, which cannot be started again."""
        return self._batches is self._loader

    def step_back(self) -> None:
        """Restore the loader's own streams to before the last batch."""

    def state_dict(self, *, ended: bool) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """Return what a resume needs to begin with the next batch; `ended` if that one belongs to a new pass."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next `start()` continue where the state was saved."""

    def close(self) -> None:
        """Release workers."""
        self._batches = iter(())


def reader_of(loader: Any, *, seed: int, rank: int, epoch_length: int) -> Reader:
    """Return the reader for this loader."""
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
    """Return whether its pass never ends, as far as its samplers show."""
    repeating = (samplers.RepeatSampler, samplers.RepeatBatchSampler)
    return any(isinstance(part, repeating) for part in _parts(loader))


class _Numbered(Reader):
    """Reads a torch loader that seeds each batch by itself."""

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
    """Reads torch's own loader of a map-style dataset.

    Its sampler runs on streams of the pass. Records are read on streams of the batch, here and in workers, so a resume
    can skip batches without reading them.
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
            # Samplers may draw once more at their end; after a checkpoint that draw would be missing from it.
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
            for generator, state_then in zip(self._generators, saved, strict=True):
                generator.set_state(state_then)


class _OneStream(Reader):
    """Reads anything else. What it draws, for the order and for each record, comes from one set of streams.

    After a resume, a loader that wraps a torch loader is assumed to read what it skips, so its streams begin with the
    pass. Another one that draws for each batch is assumed to skip without reading, so they continue where they were.
    """

    def __init__(self, loader: Any, seed: int) -> None:
        super().__init__(loader)
        self._seed = seed
        self._rereads = not isinstance(loader, Stateful) and _wraps(loader)
        self._streams: OwnStreams | None = None
        self._resumed_streams: Any = None
        self._reads = 0
        self._draws = False  # whether reading a batch draws
        self._is_sure = False  # a batch was read that is not the first of its pass, which may draw the order as well

    def _open(self) -> Iterator[Any]:
        self._reads = 0
        for part in _parts(self._loader) if self._rereads else ():
            if isinstance(part, _TorchLoader) and part.persistent_workers:
                part._iterator = None  # its workers keep random streams that a resume cannot restore: start new ones
        self._streams = OwnStreams("loader", self._seed, self._number)
        with self._streams:
            opened = super()._open()
        if self._resumed_streams is not None:
            self._streams.load_state_dict(self._resumed_streams)
            self._resumed_streams = None
        return opened

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
        self._resumed_streams = None if self._rereads else state.get("streams")


def _reads_records(loader: Any) -> bool:
    """Return whether this is torch's loader of a map-style dataset, with torch's own iteration."""
    kind = type(loader)
    return (
        isinstance(loader, _TorchLoader)
        and kind.__iter__ is _TorchLoader.__iter__
        and kind._get_iterator is _TorchLoader._get_iterator
        and not isinstance(loader.dataset, IterableDataset)
    )


def _options(loader: Any) -> dict[str, Any]:
    """Return the arguments with which torch makes such a loader again."""
    options = {name: getattr(loader, name) for name in (*OPTIONS, "in_order") if hasattr(loader, name)}
    if device := getattr(loader, "pin_memory_device", ""):
        options["pin_memory_device"] = device
    by_batch = loader.batch_sampler is not None
    options["batch_sampler"] = loader.batch_sampler if by_batch else loader.sampler
    options["collate_fn"] = loader.collate_fn if by_batch else functools.partial(_only, loader.collate_fn)
    return options


def _only(convert: Any, records: list[Any]) -> Any:
    """Collate the one item of a loader that does not make batches."""
    return convert(records[0])


def _wraps(loader: Any) -> bool:
    """Return whether it iterates over a torch loader, or is one of python's iterators, such as islice over one."""
    if isinstance(loader, _TorchLoader):
        return False
    if isinstance(loader, Iterator) and not hasattr(loader, "__dict__") and not isinstance(loader, GeneratorType):
        return True
    return any(isinstance(part, _TorchLoader) for part in _parts(loader))


def _parts(loader: Any, depth: int = 5) -> Iterator[Any]:
    """Yield the loader, and the loaders, samplers and generators inside of it."""
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
