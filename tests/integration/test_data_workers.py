"""Real loader workers: their random streams, their errors, and the user's own settings."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset, default_collate, get_worker_info

from determined.pytorch import DataLoader
from determined.pytorch.data.stream import training_stream, validation_loader
from tests.unit.pytorch.loaders import streams


class Drawing:
    """Each record is what three random streams say."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> list[float]:
        return [float(index), random.random(), float(np.random.rand()), torch.rand(()).item()]


class Failing:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 7:
            raise FileNotFoundError("image 7 is gone")
        return index


class Opened:
    """A dataset that a worker has to open first."""

    handle: str | None = None

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> str:
        return f"{self.handle}:{index}"


def open_in_worker(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert type(info.dataset) is Opened
    info.dataset.handle = f"worker{worker_id}"


def rows(loader: Any) -> list[list[list[float]]]:
    return [torch.stack(batch, 1).tolist() for batch in loader]


def test_workers_leave_the_process_alone() -> None:
    """W59 Starting workers and reading through them draws nothing from the global streams."""
    before = streams()
    loader = DataLoader(Drawing(), 4, shuffle=True, num_workers=2)
    rows(loader)
    rows(validation_loader(loader, seed=1, rank=0, size=2))
    source = training_stream(loader, seed=1)
    next(source)
    source.close()
    assert streams() == before


def test_passes_draw_anew_and_alike() -> None:
    """Each pass of a loader has other random numbers; the same pass of another loader has the same ones."""
    loader, again = (DataLoader(Drawing(), 4, num_workers=workers) for workers in (1, 2))
    first, second = rows(loader), rows(loader)
    assert first != second
    assert [rows(again), rows(again)] == [first, second]


def test_validation_draws_the_same_every_time() -> None:
    """So that a metric changes because the model did."""
    loader = validation_loader(DataLoader(Drawing(), 4, num_workers=1), seed=1, rank=0, size=1)
    assert rows(loader) == rows(loader)


def test_persistent_workers_stay() -> None:
    """The same processes serve pass after pass, with other random numbers, as fresh ones would draw them."""
    persistent = DataLoader(Drawing(), 6, num_workers=1, persistent_workers=True)
    fresh = DataLoader(Drawing(), 6, num_workers=1)
    passes, processes = [], []
    for _ in range(2):
        passes.append(rows(persistent))
        whole: Any = persistent._whole
        processes.append([worker.pid for worker in whole._reading._iterator._workers])
    assert passes == [rows(fresh), rows(fresh)]
    assert processes[0] == processes[1]


def test_an_error_in_a_worker_names_the_record() -> None:
    """Its type survives, and the text tells the record, the dataset and the batch."""
    with pytest.raises(FileNotFoundError, match="image 7 is gone") as caught:
        list(DataLoader(Failing(), 3, num_workers=1))
    text = str(caught.value)
    del caught
    gc.collect()  # the traceback holds the loader, and so its worker
    assert "Failing[7], whose length is 12" in text
    assert "[6, 7, 8]" in text


def test_worker_init_fn_sees_the_users_dataset() -> None:
    """It is called once in each worker, and what it opens is what records are read from."""
    batches = list(DataLoader(Opened(), 1, num_workers=2, worker_init_fn=open_in_worker))
    assert batches == [["worker0:0"], ["worker1:1"], ["worker0:2"], ["worker1:3"]]


def test_spawned_workers() -> None:
    """Everything that travels to a spawned worker can be pickled, and draws what a forked one draws."""
    spawned = DataLoader(Drawing(), 6, num_workers=1, multiprocessing_context="spawn")
    assert rows(spawned) == rows(DataLoader(Drawing(), 6, num_workers=1))
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    tracker._stop()  # the process that Python starts along with the first spawned one


def test_a_generator_seeds_the_workers() -> None:
    """Augmentation follows the user's generator."""

    def drawn(seed: int) -> list[list[list[float]]]:
        return rows(DataLoader(Drawing(), 6, num_workers=1, generator=torch.Generator().manual_seed(seed)))

    assert drawn(1) == drawn(1) != drawn(2)


def test_workers_live_on_over_epochs() -> None:
    """Training does not start workers anew for each epoch."""
    source = training_stream(DataLoader(Drawing(), 6, num_workers=1), seed=1)
    pids = set()
    for _ in range(6):
        next(source)
        iterator: Any = source._batches  # type: ignore[attr-defined]
        pids.add(iterator._workers[0].pid)
    source.close()
    assert len(pids) == 1


class Stream(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_foreign_loaders_with_workers() -> None:
    """A torch loader over an iterable dataset is started again at its end."""
    source = training_stream(torch.utils.data.DataLoader(Stream(), 2, num_workers=1), seed=1, is_checked=False)
    assert [next(source).tolist() for _ in range(3)] == [[0, 1], [2, 3], [0, 1]]
    source.close()


def test_tensors_are_gathered_in_workers() -> None:
    """A worker gives the batches that torch collates from records, in shared memory, without reading records."""
    features = torch.randn(9, 3)
    dataset = Subset(TensorDataset(features, torch.arange(9), features.double()), range(8, -1, -1))
    batches = list(DataLoader(dataset, batch_size=4, num_workers=2, worker_init_fn=forbid_records))
    expected = [default_collate([dataset[index] for index in part]) for part in ([0, 1, 2, 3], [4, 5, 6, 7], [8])]
    assert len(batches) == len(expected)
    for batch, its in zip(batches, expected, strict=True):
        assert type(batch) is list
        for mine, other in zip(batch, its, strict=True):
            assert torch.equal(mine, other)
            assert (mine.dtype, mine.stride(), mine.is_shared()) == (other.dtype, other.stride(), True)


def forbid_records(_: int) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a single record was read")

    TensorDataset.__getitem__ = refuse  # type: ignore[method-assign]  # in this worker, which has nothing else to do
