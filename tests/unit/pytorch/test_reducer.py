"""Metric reducers: registration, reduction over ranks, and what happens when a user's code fails."""

from __future__ import annotations

import functools
import logging
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import errors, pytorch
from determined.pytorch.metrics.reducer import ReducerFailed, _PyTorchReducerContext, _SimpleReducer
from tests.unit.pytorch.thread_ranks import ThreadRank, on_ranks


class Recorder(pytorch.MetricReducer):
    """Sums values and writes down its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.total = 0

    def reset(self) -> None:
        self.calls.append("reset")
        self.total = 0

    def update(self, value: int) -> None:
        self.total += value

    def per_slot_reduce(self) -> int:
        self.calls.append("per_slot")
        return self.total

    def cross_slot_reduce(self, per_slot_metrics: Any) -> int:
        self.calls.append(("cross_slot", per_slot_metrics))
        return sum(per_slot_metrics)


def context_of(rank: ThreadRank) -> _PyTorchReducerContext:
    return _PyTorchReducerContext(rank.allgather, rank=rank.rank, size=rank.size)


def test_the_enum_has_its_old_values():
    """Contract 4.1: the numbers of the four old reducers do not change."""
    old = {"AVG": 1, "SUM": 2, "MAX": 3, "MIN": 4}
    assert {r.name: r.value for r in pytorch.Reducer if r.name in old} == old


@pytest.mark.parametrize("missing", ["reset", "per_slot_reduce", "cross_slot_reduce"])
def test_all_three_methods_are_required(missing: str):
    """Contract 5.1: a MetricReducer without one of its methods cannot be made."""
    methods = {"reset", "per_slot_reduce", "cross_slot_reduce"} - {missing}
    incomplete = type("Incomplete", (pytorch.MetricReducer,), {name: lambda self: None for name in methods})
    with pytest.raises(TypeError, match=missing):
        incomplete()


@pytest.mark.parametrize("batches", [10, 9, 2])
def test_a_function_receives_values_in_dataset_order_on_every_rank(batches: int):
    """D-39: 3 ranks update with batch indices round-robin; `fn` receives 0..n-1 in order on every rank."""

    def work(rank: ThreadRank) -> tuple[list[int], dict[str, Any]]:
        received: list[int] = []

        def fn(values: list[int]) -> int:
            received.extend(values)
            return len(values)

        context = context_of(rank)
        reducer = context.wrap_reducer(fn, name="count")
        for batch_idx in range(rank.rank, batches, rank.size):
            reducer.update(batch_idx)
        return received, context.reduce_metrics(for_training=True)

    assert on_ranks(3, work) == [(list(range(batches)), {"count": batches})] * 3


def test_interleaving_keeps_none_and_shorter_lists_end():
    """Contract 5.3: `[0,3,6] [1,4] [2,5]` becomes 0..6, and None is a value. T81."""
    reducer = _SimpleReducer(list)
    assert reducer.cross_slot_reduce([[0, 3, 6], [1, 4], [2, 5]]) == list(range(7))
    assert reducer.cross_slot_reduce([[None, 1], [None]]) == [None, None, 1]
    assert reducer.cross_slot_reduce([[1, 3], [2]]) == [1, 2, 3]


def test_a_metric_reducer_comes_back_itself_and_only_once():
    """D-40: `wrap_reducer(obj)` returns `obj`, and refuses it the second time."""
    context = _PyTorchReducerContext()
    reducer = Recorder()
    assert context.wrap_reducer(reducer, "avg") is reducer
    with pytest.raises(AssertionError, match="Make a second one") as caught:
        context.wrap_reducer(reducer, "again")
    assert isinstance(caught.value, ValueError)


def test_a_function_may_be_wrapped_twice():
    """Contract 5.2: each call makes a new simple reducer."""
    context = _PyTorchReducerContext()
    first, second = context.wrap_reducer(sum, "a"), context.wrap_reducer(sum, "b")
    assert first is not second
    assert first.fn is sum
    first.update(1)
    second.update(2)
    assert context.reduce_metrics(for_training=False) == {"a": 1, "b": 2}


def test_for_training_false_is_not_asked_in_training_and_nobody_communicates():
    """D-41, T83, D-73: a reducer of the other phase is neither called nor listed, and alone causes no exchange."""
    exchanges = []

    def allgather(value: Any) -> list[Any]:
        exchanges.append(value)
        return [value]

    context = _PyTorchReducerContext(allgather)
    reducer = context.wrap_reducer(Recorder(), "total", for_training=False)
    assert context.reduce_metrics(for_training=True) == {}
    assert (reducer.calls, exchanges) == ([], [])
    assert context.reduce_metrics(for_training=False) == {"total": 0}
    assert len(exchanges) == 1
    other = _PyTorchReducerContext()
    other.wrap_reducer(Recorder(), "total", for_validation=False)
    assert other.reduce_metrics(for_training=False) == {}


def test_all_reducers_share_one_exchange():
    """Contract 5.2: all values go in a single allgather, results come in the order of wrapping."""

    def work(rank: ThreadRank) -> tuple[int, dict[str, Any]]:
        context = context_of(rank)
        reducers = [context.wrap_reducer(Recorder(), name) for name in "abc"]
        for i, reducer in enumerate(reducers):
            reducer.update(10**i)
        return rank.exchanges, context.reduce_metrics(for_training=True), rank.exchanges

    assert on_ranks(2, work) == [(0, {"a": 2, "b": 20, "c": 200}, 1)] * 2


@pytest.mark.parametrize(("name", "result"), [(None, 5), ("score", {"a": 1})])
def test_name_and_result_have_to_fit(name: str | None, result: Any):
    """D-42, T82: no name and no dict, or a name and a dict, is an AssertionError that names the reducer."""

    def my_metric(values: list[Any]) -> Any:
        return result

    context = _PyTorchReducerContext()
    context.wrap_reducer(my_metric, name)
    with pytest.raises(AssertionError, match="my_metric") as caught:
        context.reduce_metrics(for_training=True)
    assert isinstance(caught.value, TypeError)


def test_without_a_name_a_dict_is_merged():
    """Contract 5.2: a dict of metrics needs no name."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda values: {"low": min(values), "high": max(values)}).update(3)
    assert context.reduce_metrics(for_training=True) == {"low": 3, "high": 3}


def test_a_dict_of_names_renames():
    """Issue 3: `name` may be a dictionary of names; what it does not mention keeps its name."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda values: {"p": 1, "r": 2, "f1": 3}, name={"p": "precision", "r": "recall"})
    assert context.reduce_metrics(for_training=True) == {"precision": 1, "recall": 2, "f1": 3}
    context.wrap_reducer(lambda values: {"p": 1}, name={"q": "quality"})
    with pytest.raises(TypeError, match=r"was to rename \['q'\]"):
        context.reduce_metrics(for_training=True)
    with pytest.raises(TypeError, match="name=5"):
        context.wrap_reducer(sum, name=5)  # type: ignore[call-overload]


@pytest.mark.parametrize("method", ["reset", "per_slot_reduce", "cross_slot_reduce"])
def test_an_error_in_user_code_is_chained_and_named(method: str):
    """D-43: `ValueError` whose cause is the original error; it names the reducer's type and name."""

    def explode(*_: Any) -> None:
        raise KeyError("boom")

    reducer = Recorder()
    setattr(reducer, method, explode)
    context = _PyTorchReducerContext()
    context.wrap_reducer(reducer, "fragile")
    with pytest.raises(ValueError, match=r"Recorder \(name='fragile'\).*boom") as caught:
        context.reset_reducers() if method == "reset" else context.reduce_metrics(for_training=True)
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_cross_step_says_what_it_was_given():
    """Contract 5.2: the error text of the cross step has the values."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda values: 1 / 0, "ratio").update(41)
    with pytest.raises(ValueError, match=r"given \(\[41\],\)"):
        context.reduce_metrics(for_training=True)


def test_a_failure_on_one_rank_is_raised_on_all():
    """Issue 3: one rank's failing reducer stops every rank with the same sentence, and nobody waits for ever."""

    def work(rank: ThreadRank) -> Any:
        context = context_of(rank)
        reducer = context.wrap_reducer(Recorder(), "fragile")
        if rank.rank == 1:
            reducer.per_slot_reduce = lambda: 1 / 0  # type: ignore[method-assign]
        return context.reduce_metrics(for_training=True)

    answers = on_ranks(3, work)
    assert [type(answer) for answer in answers] == [ReducerFailed] * 3
    assert len({str(answer) for answer in answers}) == 1
    assert "on rank 1" in str(answers[0])
    assert isinstance(answers[1].__cause__, ZeroDivisionError)


def test_ranks_that_wrapped_different_reducers_say_so():
    """Issue 3: different numbers of reducers per rank are refused on every rank."""

    def work(rank: ThreadRank) -> Any:
        context = context_of(rank)
        for i in range(1 + rank.rank):
            context.wrap_reducer(Recorder(), str(i))
        return context.reduce_metrics(for_training=True)

    for answer in on_ranks(2, work):
        assert "wrapped [1, 2] reducers" in str(answer)


@pytest.mark.parametrize("wrong", [5, None, "mean"])
def test_anything_else_is_refused(wrong: Any):
    """D-44: `wrap_reducer(5)` is an AssertionError (and a TypeError) that says what would do."""
    with pytest.raises(AssertionError, match=r"pytorch\.MetricReducer") as caught:
        _PyTorchReducerContext().wrap_reducer(wrong)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, errors.DeterminedError)


def test_one_rank_still_takes_both_steps():
    """D-45: with one rank both steps are called, and the second gets a sequence of one."""
    context = _PyTorchReducerContext()
    reducer = context.wrap_reducer(Recorder(), "total")
    reducer.update(4)
    assert context.reduce_metrics(for_training=True) == {"total": 4}
    assert reducer.calls == ["per_slot", ("cross_slot", (4,))]


def test_reset_reaches_every_reducer():
    """D-46: every registered reducer is reset, whatever phase it is for."""
    context = _PyTorchReducerContext()
    wrapped = [
        context.wrap_reducer(Recorder(), "a", for_training=False),
        context.wrap_reducer(Recorder(), "b", for_validation=False),
    ]
    context.reset_reducers()
    assert [reducer.calls for reducer in wrapped] == [["reset"], ["reset"]]


def test_a_class_is_instantiated():
    """Issue 3: `wrap_reducer(MyReducer)` makes the instance and returns it; other classes are functions of values."""
    context = _PyTorchReducerContext()
    reducer = context.wrap_reducer(Recorder, "total")
    assert isinstance(reducer, Recorder)
    counts = context.wrap_reducer(Counter)
    assert isinstance(counts, _SimpleReducer)
    for value in "aab":
        counts.update(value)
    assert context.reduce_metrics(for_training=True) == {"total": 0, "a": 2, "b": 1}


def test_a_callable_without_a_name_can_be_shown():
    """Wart 5.5: an error about `functools.partial` does not fail itself."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(functools.partial(max, 1), "odd").update(1)
    with pytest.raises(ValueError, match="partial"):
        context.reduce_metrics(for_training=True)


def test_two_reducers_of_one_name_are_remarked_on(caplog: pytest.LogCaptureFixture):
    """Wart 5.5: the later registration wins, and a warning says so; different phases may share a name."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda values: 1, "acc", for_validation=False)
    context.wrap_reducer(lambda values: 2, "acc", for_training=False)
    assert not caplog.records
    context.wrap_reducer(lambda values: 3, "acc", for_training=False)
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "validation metrics will show" in caplog.text
    assert context.reduce_metrics(for_training=False) == {"acc": 3}
    assert context.reduce_metrics(for_training=True) == {"acc": 1}


def test_tensor_results_become_numpy():
    """Contract 5.2: tensors in a result, also inside a dict and of bfloat16, are numpy in the report."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda values: {"t": torch.tensor(2.0), "deep": {"x": torch.ones(2, dtype=torch.bfloat16)}})
    metrics = context.reduce_metrics(for_training=True)
    assert isinstance(metrics["t"], np.ndarray)
    assert metrics["deep"]["x"].tolist() == [1.0, 1.0]


def test_simple_reducers_let_go_of_graphs():
    """A value that requires grad is kept detached, so a window does not keep every batch's graph."""
    context = _PyTorchReducerContext()
    reducer = context.wrap_reducer(lambda values: [v.requires_grad for v in values], "grads")
    reducer.update(torch.ones((), requires_grad=True) * 2)
    assert context.reduce_metrics(for_training=True) == {"grads": [False]}


class Remembering(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.best = 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]


def test_reducers_with_state_are_saved():
    """Wart 5.5: a reducer with `state_dict` keeps its state over a restart; others have none."""
    first, second = _PyTorchReducerContext(), _PyTorchReducerContext()
    first.wrap_reducer(Recorder(), "plain")
    first.wrap_reducer(Remembering(), "best").best = 7
    second.wrap_reducer(Recorder(), "plain")
    restored = second.wrap_reducer(Remembering(), "best")
    assert first.state_dict() == {"1": {"best": 7}}
    second.load_state_dict(first.state_dict())
    assert restored.best == 7


# The ready-made ones.

whole = st.integers(min_value=-(2**48), max_value=2**48)
fraction = st.floats(-1e6, 1e6, width=32)


def sharded(values: list[Any], size: int, make: Any, feed: Any) -> list[Any]:
    def work(rank: ThreadRank) -> Any:
        context = context_of(rank)
        reducer = context.wrap_reducer(make(), "m")
        for i in range(rank.rank, len(values), size):
            feed(reducer, values[i])
        return context.reduce_metrics(for_training=True)["m"]

    return on_ranks(size, work)


@settings(max_examples=25, deadline=None)
@given(st.lists(whole, max_size=20), st.integers(1, 3))
def test_sums_of_integers_are_exact_on_any_number_of_ranks(values: list[int], size: int):
    """Issue 3: sums of integers below 2**53 are exact, as Python numbers and as tensors, however they are sharded."""
    as_tensors = sharded(values, size, pytorch.SumReducer, lambda r, v: r.update(torch.tensor(v)))
    as_numbers = sharded(values, size, pytorch.SumReducer, lambda r, v: r.update(v))
    assert as_tensors == as_numbers == [sum(values)] * size


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.integers(1, 64)), min_size=1, max_size=20), st.integers(1, 3)
)
def test_weighted_means_do_not_depend_on_sharding(values: list[tuple[float, int]], size: int):
    """Issue 3: the mean weighted by records is the single-process one, to float tolerance."""
    expected = np.average([v for v, _ in values], weights=[w for _, w in values])
    found = sharded(values, size, pytorch.MeanReducer, lambda r, v: r.update(torch.tensor(v[0]), weight=v[1]))
    assert found == pytest.approx([expected] * size, rel=1e-9, abs=1e-6)


def test_a_count_counts():
    """Wart 5.5: CountReducer is a ready-made reducer that counts."""
    context = _PyTorchReducerContext()
    counter = context.wrap_reducer(pytorch.CountReducer, "n")
    counter.update()
    counter.update(2)
    counter.update((torch.arange(4) > 1).sum())
    assert context.reduce_metrics(for_training=True) == {"n": 5}
    context.reset_reducers()
    assert context.reduce_metrics(for_training=True) == {"n": 0}


def test_keep_shape_reduces_over_batches_only():
    """Wart 4.7: a vector can keep its shape: a mean per element over batches and ranks."""
    values = [torch.tensor([1.0, 10.0]), torch.tensor([3.0, 30.0]), torch.tensor([5.0, 50.0])]
    make = functools.partial(pytorch.MeanReducer, keep_shape=True)
    for found in sharded(values, 2, make, lambda r, v: r.update(v)):
        assert found.tolist() == [3.0, 30.0]
    make = functools.partial(pytorch.SumReducer, keep_shape=True)
    for found in sharded([np.array([1, 2]), np.array([2**52, 3])], 2, make, lambda r, v: r.update(v)):
        assert (found.dtype, found.tolist()) == (np.int64, [2**52 + 1, 5])
    for found in sharded([np.array([2**62, 0])] * 4, 2, make, lambda r, v: r.update(v)):
        assert (found.dtype, found.tolist()) == (np.float64, [2.0**64, 0])


def test_a_mean_without_values_is_nan():
    """Empty shards add nothing; with no value at all there is no mean."""
    context = _PyTorchReducerContext()
    context.wrap_reducer(pytorch.MeanReducer(), "m")
    assert np.isnan(context.reduce_metrics(for_training=True)["m"])
    assert sharded([4.0], 3, pytorch.MeanReducer, lambda r, v: r.update(v)) == [4.0] * 3


def test_what_is_no_number_is_refused_at_once():
    """`update("x")` and a complex tensor raise where they were made."""
    with pytest.raises(TypeError, match="'x' is not made of numbers"):
        pytorch.SumReducer().update("x")
    with pytest.raises(TypeError, match="complex64"):
        pytorch.SumReducer().update(torch.tensor(1j))


def test_a_contribution_that_cannot_be_sent_is_said():
    """5.1: per_slot_reduce() gives something picklable; whatever pickle says otherwise comes with what to do."""
    reducers = _PyTorchReducerContext(lambda value: [pickle.loads(pickle.dumps(value))] * 2, size=2)
    reducers.wrap_reducer(len, "odd").update(lambda: None)
    with pytest.raises(ValueError, match=r"per_slot_reduce\(\)") as caught:
        reducers.reduce_metrics(for_training=True)
    assert caught.value.__cause__ is not None
