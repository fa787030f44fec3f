"""What is due after batch n: every mix of periods and schedules, from any start."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined import core
from determined.pytorch._plan import Batch, Due, Epoch, FitPlan, TrainUnit

values = st.one_of(
    st.integers(-2, 12),
    st.lists(st.integers(0, 40), max_size=5),
    st.sets(st.integers(0, 40), max_size=5),
    st.builds(range, st.integers(0, 20), st.integers(0, 40), st.integers(1, 7)),
)
units = st.none() | st.builds(Batch, values) | st.builds(Epoch, values)
plans = st.builds(
    FitPlan,
    st.builds(Batch, st.integers(0, 40)) | st.builds(Epoch, st.integers(0, 8)),
    units,
    units,
    units,
    st.booleans(),
)


@given(plans, st.integers(1, 7), st.integers(0, 40))
def test_jumping_to_the_next_stop_misses_nothing(plan: FitPlan, epoch_length: int, start: int) -> None:
    """4.5: asking only at next_stop() and at epoch ends finds exactly what asking after every batch finds."""

    def due_at(n: int) -> Due:
        return plan.due(n, n // epoch_length, n % epoch_length == 0)

    everything = {}
    n = start
    while not plan.complete(n, n // epoch_length):
        n += 1
        if due_at(n):
            everything[n] = due_at(n)

    found = {}
    n = start
    while not plan.complete(n, n // epoch_length):
        stop_at = plan.next_stop(n)
        while True:  # the loop's window
            n += 1
            if (n % epoch_length == 0 and plan.stops_at_epochs) or n >= stop_at:
                break
        if due_at(n):
            found[n] = due_at(n)
    assert found == everything


@given(values, st.integers(0, 50))
def test_next_after_is_the_next(value: object, count: int) -> None:
    """A period or schedule is never due between a count and its next_after()."""
    unit = Batch(value)  # type: ignore[arg-type]
    following = unit.next_after(count)
    assert following > count
    last = int(min(following, count + 60))
    assert not any(unit.should_stop(n) for n in range(count + 1, last))
    if following != math.inf:
        assert unit.should_stop(int(following))


@pytest.mark.parametrize(
    ("value", "due"),
    [
        (3, [3, 6]),
        (1, [1, 2, 3, 4, 5, 6]),
        (0, [0, 1, 2, 3, 4, 5, 6]),
        (-1, [0, 1, 2, 3, 4, 5, 6]),
        ([1, 5], [1, 5]),
        (range(2, 7, 2), [2, 4, 6]),
    ],
)
def test_should_stop(value: object, due: list[int]) -> None:
    """4.1: a period, every one, or a schedule of absolute counts."""
    assert [n for n in range(7) if Batch(value).should_stop(n)] == due  # type: ignore[arg-type]


def test_a_container_of_the_users_own() -> None:
    """4.1: anything with `__contains__` is a schedule; it is asked after every batch."""

    class Primes:
        def __contains__(self, n: object) -> bool:
            return n in (2, 3, 5)

    unit = Batch(Primes())  # type: ignore[arg-type]
    assert [n for n in range(7) if unit.should_stop(n)] == [2, 3, 5]
    assert unit.next_after(3) == 4


@pytest.mark.parametrize("value", [2.0, "3", None, True, b"1", ["3"], {None}, [[1]]])
def test_wrong_values_are_refused_at_once(value: object) -> None:
    """W21: a value that could never be reached is a TypeError in the constructor, with the value."""
    with pytest.raises(TypeError, match="expected a whole number"):
        Batch(value)  # type: ignore[arg-type]


def test_units_are_values() -> None:
    """W22: units compare, hash and print by their value."""
    assert Batch(3) == Batch(3) != Batch(4)
    assert Batch(3) != Epoch(3)
    assert len({Batch(3), Batch(3), Epoch(3)}) == 2
    assert repr(Batch(100)) == "Batch(100)"
    assert hash(Batch([1, 2])) == hash(Batch([1, 2]))
    assert len({Batch({0, 8}), Batch({8, 0})}) == 1  # they print apart: both numbers fall into one place


@pytest.mark.parametrize("length", [Batch([1]), TrainUnit(3), 3])
def test_a_length_is_a_number_of_batches_or_epochs(length: object) -> None:
    """T12: without max_length a ValueError; with a schedule, a bare unit or a bare number a TypeError."""
    with pytest.raises(TypeError, match="max_length is"):
        FitPlan(length)
    with pytest.raises(ValueError, match="max_length=pytorch"):
        FitPlan(None)


@pytest.mark.parametrize("period", [3, TrainUnit(3), "epoch"])
def test_a_period_is_counted_in_batches_or_epochs(period: object) -> None:
    """W21: a bare number or a bare unit is refused by the parameter's name."""
    with pytest.raises(TypeError, match="validation_period is"):
        FitPlan(Batch(1), checkpoint_period=Batch(1), validation_period=period)


def test_fractions() -> None:
    """4.6: progress is what is trained of the length, in its unit."""
    assert FitPlan(Batch(10)).fraction(5, 1) == 0.5
    assert FitPlan(Epoch(4)).fraction(5, 1) == 0.25
    assert FitPlan(Batch(10)).fraction(12, 1) == 1.0


def test_lengths_of_older_configs() -> None:
    """4.1: the conversions that legacy configs need."""
    from_searcher, from_values = TrainUnit._from_searcher_unit, TrainUnit._from_values
    assert from_searcher(3, core.Unit.EPOCHS) == Epoch(3)
    assert from_searcher(3, core.Unit.BATCHES) == Batch(3)
    assert from_searcher(6, core.Unit.RECORDS, 2) == Batch(3)
    assert from_searcher(1, core.Unit.RECORDS, 2) == Batch(1)
    for unit in (core.Unit.RECORDS, None):
        with pytest.raises(ValueError, match="records"):
            from_searcher(3, unit)
    assert from_values(batches=0) == Batch(sys.maxsize)
    assert from_values(epochs=2) == Epoch(2)
    assert from_values(records=10, global_batch_size=4) == Batch(2)
    for wrong in ({}, {"batches": 1, "epochs": 1}):
        with pytest.raises(ValueError, match="exactly one"):
            from_values(**wrong)
    assert (Batch(1)._to_searcher_unit(), Epoch(1)._to_searcher_unit()) == (core.Unit.BATCHES, core.Unit.EPOCHS)
