"""The computed shuffle is a permutation, fair, reachable anywhere, and never changes."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.pytorch.data import order as orders
from determined.pytorch.data.order import WHOLE_LIMIT, Permutation

LARGE = WHOLE_LIMIT + 1


@given(
    length=st.integers(0, 3_000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 10**9), whole=st.booleans()
)
@settings(deadline=None)
def test_every_record_once(length: int, seed: int, epoch: int, whole: bool) -> None:
    """Both ways of computing an order give each record exactly once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "WHOLE_LIMIT", length if whole else 1)
        order = Permutation(length, seed, epoch)
        assert sorted(order[0:length]) == list(range(length))


@given(
    st.lists(st.tuples(st.integers(0, LARGE), st.integers(0, 50)), max_size=20),
    st.sampled_from([1_000, LARGE]),
)
@settings(deadline=None)
def test_spans_equal_slices(starts: list[tuple[int, int]], length: int) -> None:
    """Reading many spans at once is reading them one by one."""
    order = Permutation(length, seed=3, epoch=2)
    spans = [(min(start, length), min(start + size, length)) for start, size in starts]
    assert order.spans(spans) == [order[start:stop] for start, stop in spans]


def test_a_large_order_is_a_permutation() -> None:
    """Just above the limit, and at the squares, where the network has no spare number."""
    for length in (LARGE, 600**2, 600**2 + 1):
        assert np.array_equal(np.sort(Permutation(length, 1, 0)[0:length]), np.arange(length))


def test_seed_and_epoch_decide() -> None:
    """Equal (seed, epoch) give equal orders; another seed or epoch gives another order."""
    for length in (100, LARGE):
        first = Permutation(length, 1, 0)[0:100]
        assert first == Permutation(length, 1, 0)[0:100]
        assert first != Permutation(length, 2, 0)[0:100]
        assert first != Permutation(length, 1, 1)[0:100]


def test_the_numbers_never_change() -> None:
    """Runs under way rely on these: if this test fails, their epochs would be reshuffled."""
    assert Permutation(10, seed=1, epoch=0)[0:10] == FROZEN_SMALL
    assert Permutation(100_000_000, seed=1, epoch=2)[5_000_000:5_000_005] == FROZEN_LARGE


def test_small_orders_are_uniform() -> None:
    """All 24 orders of 4 records come equally often, by the chi-squared test."""
    counts = Counter(tuple(Permutation(4, seed, 0)[0:4]) for seed in range(4_800))
    assert len(counts) == 24
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 50  # 99.9 % of fair ones are below 49.7


@pytest.mark.parametrize("epoch", range(4))
def test_large_orders_look_uniform(epoch: int) -> None:
    """Neither a record, nor its neighbour's distance, nor its last bits can be told from the position."""
    length, sample = 1_000_003, 100_000
    for start in (0, length // 2):
        found = np.array(Permutation(length, 7, epoch)[start : start + sample])
        fair = sample / 64
        for feature in (found * 64 // length, found % 64, np.diff(found) % length * 64 // length):
            counts = np.bincount(feature, minlength=64)
            assert ((counts - fair) ** 2 / fair).sum() < 130  # 63 degrees of freedom: beyond 130 is one in a million
        assert abs(np.corrcoef(np.arange(sample), found)[0, 1]) < 0.015


def test_a_hundred_million_records_cost_nothing() -> None:
    """A batch in the middle of 100 million shuffled records is read without making the others."""
    tracemalloc.start()
    batch = Permutation(100_000_000, 1, 1)[50_000_000:50_000_256]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(batch)) == 256
    assert peak < 2**20


FROZEN_SMALL = [4, 5, 6, 8, 0, 7, 2, 9, 3, 1]
FROZEN_LARGE = [62244749, 48243415, 70270381, 32774095, 52693006]
