"""A torch loader that draws nothing from the process's random streams, seeds those of its workers per batch, and names
the record that failed. The caller decides which batches it reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

from determined.pytorch import _rng
from determined.pytorch.data.gather import Gather

Place = tuple[int, int, Any]
"""One batch to read: its epoch and position, which decide its random streams, and the indices in it."""

Passes = Callable[[int], Iterator[Place]]
"""The batches of pass number n."""


class SeededLoader(torch.utils.data.DataLoader[Any]):
    """What `DataLoader.get_data_loader` returns: a torch loader that shows the user's dataset, sampler and functions.

    Args:
        passes: The batches to read. The first `iter()` is pass 0, the next pass 1, and so on.
        seed: Random streams in workers are a function of (purpose, seed, epoch, position).
        purpose: Keeps the random streams of training and validation apart.
        options: Arguments for torch's loader, `dataset` and `batch_sampler` among them.
        numbered: Whether passes count up. Otherwise every pass is pass 0, and all are the same.
        seeds_here: Whether batches that are read in this process have random streams of their own too; the caller then
            restores those of the process.
    """

    def __init__(
        self,
        passes: Passes,
        *,
        seed: int,
        purpose: str,
        options: dict[str, Any],
        numbered: bool = True,
        seeds_here: bool = False,
    ) -> None:
        super().__init__(**options)
        self._passes = passes
        self._seed = seed
        self._purpose = purpose
        self._options = options
        self._numbered = numbered
        self.passes_begun = 0
        self.seeds_here = seeds_here
        self._index = _PassIndex(passes)
        self._reading: torch.utils.data.DataLoader[Any] | None = None

    def __iter__(self) -> Any:
        self._index.number = self.passes_begun if self._numbered else 0
        self.passes_begun += 1
        if not self.num_workers and not self.pin_memory and self.generator is None:
            # torch would only add a profiler's mark, which costs as much as gathering a small batch.
            return map(self._reader().read, self._index)
        # Keep the loader if its workers are persistent.
        if self._reading is None or not self.persistent_workers:
            self._reading = self._make()
        return iter(self._reading)

    def close(self) -> None:
        """Release persistent workers."""
        self._reading = None

    def _make(self) -> torch.utils.data.DataLoader[Any]:
        generator = self.generator
        if generator is None:  # else torch draws the seeds of workers from the global stream
            generator = torch.Generator()
            generator.manual_seed(_rng.derive_seed("workers", self._purpose, self._seed, self._index.number))
        options = {
            **self._options,
            "dataset": self._reader(),
            "batch_sampler": self._index,
            "collate_fn": _as_is,
            "worker_init_fn": _WorkerStart(self.worker_init_fn),
            "generator": generator,
        }
        return torch.utils.data.DataLoader(**options)

    def _reader(self) -> _BatchReader:
        return _BatchReader(self.dataset, self.collate_fn, self._purpose, self._seed, self.seeds_here)


class _PassIndex:
    """Given to torch as its batch sampler."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self.number = 0

    def __iter__(self) -> Iterator[Place]:
        return self._passes(self.number)


class _WorkerStart:
    """Runs first in a worker: shows the user's dataset in `get_worker_info()` and calls their `worker_init_fn`."""

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self._worker_init_fn = worker_init_fn

    def __call__(self, worker_id: int) -> None:
        info = get_worker_info()
        assert info is not None, "runs in a worker"
        reader: Any = info.dataset
        reader.seeds_streams = True
        object.__setattr__(info, "dataset", reader.dataset)  # it refuses ordinary assignment
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker_id)


class _BatchReader(Dataset[Any]):
    """Makes a batch of a `Place`: in a worker, or if `seeds_streams`, on random streams of the batch's own."""

    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any], purpose: str, seed: int, seeds_streams: bool
    ) -> None:
        self.dataset = dataset
        self.seeds_streams = seeds_streams
        self._reads_batches = bool(getattr(dataset, "__getitems__", None))
        self._gather = Gather(collate)
        self._collate = collate
        self._purpose = purpose
        self._seed = seed

    def read(self, place: Place) -> Any:
        """Make a batch in this process; with torch's mark if a profiler is on."""
        if not torch._C._autograd._profiler_enabled():
            return self.__getitems__(place)
        with torch.profiler.record_function("enumerate(DataLoader)#SeededLoader.__next__"):
            return self.__getitems__(place)

    def __getitems__(self, place: Place) -> Any:  # torch passes the whole batch here
        epoch, position, indices = place
        if self.seeds_streams:
            _rng.seed_streams("batch", self._purpose, self._seed, epoch, position)
        dataset = self.dataset
        if (batch := self._gather(dataset, indices)) is not None:
            return batch
        remaining: Iterator[Any] | None = None  # records not read yet
        try:
            if self._reads_batches:
                records = dataset.__getitems__(indices)
            else:
                remaining = iter(indices)
                records = [dataset[index] for index in remaining]
                remaining = None
            return self._collate(records)
        except StopIteration as error:  # torch would take it for the end of the epoch
            raise RuntimeError(f"StopIteration came out of {self._culprit(place, remaining)}.") from error
        except Exception as error:
            _add_note(error, f"This came out of {self._culprit(place, remaining)}.")
            raise

    def _culprit(self, place: Place, remaining: Iterator[Any] | None) -> str:
        """Return which record failed or, if that is unknown, which batch."""
        batch, indices = self._where(place), place[2]
        if remaining is None:
            return batch
        number = len(indices) - operator.length_hint(remaining, len(indices)) - 1
        if not 0 <= number < len(indices):
            return batch
        try:
            size = f", whose length is {len(self.dataset)}"
        except TypeError:
            size = ""
        return f"{type(self.dataset).__name__}[{indices[number]!r}]{size}, in {batch}"

    def _where(self, place: Place) -> str:
        epoch, position, indices = place
        records = repr(indices)
        if len(records) > 200:
            records = records[:200] + " ..."
        name = type(self.dataset).__name__
        return f"the batch of records {records} of {name} (epoch {epoch}, position {position})"


def _as_is(batch: Any) -> Any:
    return batch


def _add_note(error: Exception, note: str) -> None:
    """Add a note without changing the error's type, which the user's code may rely on."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):  # Python 3.10 has no notes
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])
