"""Forty drawn cases of stop and resume, every eighth on two ranks, and each kind of foreign loader: all bit for bit.

`python -m tests.fuzz --seed N` repeats one of them, and `--minutes N` looks for more.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests import fuzz
from tests.fuzz_loaders import FOREIGN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*use of fork\\(\\) may lead to deadlocks:DeprecationWarning"),
]
WITH_WORKERS = [  # two of them, persistent or not
    ("torch, in order", True),
    ("torch, shuffled batches", False),
    ("torch, reread", True),
    ("torch, reread", False),
    ("iterable", True),  # others begin each pass with a new copy of the dataset, which would skip again
]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", range(40))
def test_stopped_and_resumed_equals_never_stopped(seed: int, nursery: Any) -> None:
    """Decision 5: whatever is trained, read, drawn and however it is stopped, all states are equal in every bit."""
    assert fuzz.run(seed, nursery) == []


@pytest.mark.parametrize(
    ("kind", "workers", "persistent"),
    [*((kind, 0, False) for kind in FOREIGN), *((kind, 2, persistent) for kind, persistent in WITH_WORKERS)],
)
def test_foreign_loaders_resume_exactly(kind: str, workers: int, persistent: bool) -> None:
    """Decision 5: a loader of others that skips what was trained goes on in every bit, in the middle of an epoch and
    into the next; with records that draw when they are read, and dropout that draws beside them.
    """
    case = dataclasses.replace(
        fuzz.Case.of(1),
        loader=kind,
        workers=workers,
        persistent=persistent,
        noise="all",
        batch_size=4,  # an epoch has four of them
        dropout=True,
        validation=3,
        length=9,
        stops=[("signal", 2), ("exit after forward", 6)],
    )
    with fuzz.own_place():
        assert fuzz.compare(case) == []
