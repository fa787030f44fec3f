"""Training windows and validations: what batches return becomes averages over batches and ranks."""

from __future__ import annotations

import gc
import logging
import math
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import errors, pytorch
from determined.core._values import BatchColumns, plain_batches
from determined.pytorch import Reducer, _columns, _compat, _metrics
from determined.pytorch._metrics import TrainingWindow, ValidationPass, reduce_full_dataset
from determined.pytorch._reducer import _PyTorchReducerContext
from tests.unit.pytorch.thread_ranks import ThreadRank, on_ranks


def kind(value: Any) -> str:
    return type(value).__name__


def windows(per_rank: list[list[Any]], **settings: Any) -> list[Any]:
    """Each rank trains its batches and closes its window."""

    def work(rank: ThreadRank) -> Any:
        window = TrainingWindow(rank, **settings)
        for metrics in per_rank[rank.rank]:
            window.add(metrics)
        return window.close()

    return on_ranks(len(per_rank), work)


def validations(per_rank: list[list[Any]], reducer: Any, records: int | None = None) -> list[Any]:
    """Each rank evaluates its batches; a batch is a dict, or a dict and its record count."""

    def work(rank: ThreadRank) -> Any:
        validation = ValidationPass(rank)
        for batch in per_rank[rank.rank]:
            metrics, count = batch if isinstance(batch, tuple) else (batch, records)
            validation.add(metrics, count)
        return validation.reduce(reducer)

    return on_ranks(len(per_rank), work)


def validate(batches: list[Any], reducer: Any = Reducer.AVG) -> dict[str, Any]:
    (answer,) = validations([batches], reducer)
    if isinstance(answer, Exception):
        raise answer
    return answer.metrics


# Training windows.


def test_a_tensor_becomes_loss_and_keeps_its_array_per_batch():
    """T77: `train_batch` returned tensor [1, 3]: averaged `loss` 2.0, the batch metric is the array."""
    window = TrainingWindow()
    window.add(torch.tensor([1.0, 3.0], requires_grad=True) * 1)
    result = window.close()
    assert result.metrics == {"loss": 2.0}
    assert type(result.metrics["loss"]) is float
    assert result.batch_metrics[0]["loss"].tolist() == [1.0, 3.0]


def test_scalars_become_arrays_without_dimension():
    """D-36: 0-d values are 0-d arrays in `batch_metrics`, of their own dtype; numbers stay numbers."""
    window = TrainingWindow()
    window.add({"t": torch.tensor(2.0), "i": torch.tensor(3), "half": torch.tensor(1.5).half(), "n": 1.5})
    (batch,) = window.close().batch_metrics
    assert [(type(batch[k]), batch[k].shape, str(batch[k].dtype)) for k in ("t", "i", "half")] == [
        (np.ndarray, (), "float32"),
        (np.ndarray, (), "int64"),
        (np.ndarray, (), "float16"),
    ]
    assert batch["n"] == 1.5


def test_bfloat16_is_averaged_and_shown():
    """FIX W6: numpy has no bfloat16; the batch value is float32."""
    window = TrainingWindow()
    window.add({"loss": torch.tensor(1.5, dtype=torch.bfloat16)})
    result = window.close()
    assert result.metrics == {"loss": 1.5}
    assert result.batch_metrics[0]["loss"].dtype == np.float32


@pytest.mark.parametrize("size", [1, 2])
def test_what_cannot_be_averaged_is_none_with_the_key_kept(size: int, caplog: pytest.LogCaptureFixture):
    """T78, T109, FIX W36, W58: numbers mixed with None average; strings, dicts and ragged values are None, on any
    number of ranks, and one warning names metric, batch and rank."""
    batches = [
        {"some": None, "never": None, "text": "a", "nest": {"x": 1}, "list": [1, 2], "ragged": [1], "fine": [1, 3]},
        {
            "some": 1.0,
            "never": None,
            "text": "b",
            "nest": {"x": 2},
            "list": [[1], [2, 3]],
            "ragged": [1, 2],
            "fine": [5, 7],
        },
    ]
    for answer in windows([batches] * size):
        assert answer.metrics == {
            "some": 1.0, "never": None, "text": None, "nest": None, "list": None, "ragged": None, "fine": 4.0,
        }  # fmt: skip
    assert "'text'" in caplog.text
    assert "batch 0 (rank 0)" in caplog.text
    assert len([r for r in caplog.records if "'text'" in r.message]) == 1
    assert not [r for r in caplog.records if "'never'" in r.message]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("odd", [1j, torch.tensor(1j), {1}, object(), Decimal("1.5"), b"\xff", [1j]], ids=kind)
def test_what_cannot_be_reported_is_none_in_its_batch_too(odd: Any, size: int):
    """FIX W58: a value that no report can hold ends training no more than a string does, on any number of ranks."""
    for answer in windows([[{"odd": odd, "loss": 1.0}, {"odd": odd, "loss": 2.0}]] * size):
        assert answer.metrics == {"odd": None, "loss": 1.5}
        assert plain_batches(answer.batch_metrics) == [{"odd": None, "loss": 1.0}, {"odd": None, "loss": 2.0}]


def test_a_tensor_of_another_size_is_ragged():
    """Per-record losses with a short last batch have no mean over batches; it is said once, not crashed on."""
    window = TrainingWindow()
    window.add({"losses": torch.ones(4)})
    window.add({"losses": torch.ones(3)})
    result = window.close()
    assert result.metrics == {"losses": None}
    assert [batch["losses"].shape for batch in result.batch_metrics] == [(4,), (3,)]


@pytest.mark.parametrize("wrong", [None, 1.5, [1], "loss"])
def test_another_type_is_refused_by_name(wrong: Any):
    """FIX W5: `TypeError` naming method and type; on every rank when there are several."""
    with pytest.raises(TypeError, match=r"train_batch\(\) returned .*for batch 0 \(rank 0\)"):
        TrainingWindow().add(wrong)
    for answer in windows([[{"loss": 1.0}, wrong], [{"loss": 1.0}, {"loss": 1.0}]]):
        assert isinstance(answer, TypeError)
        assert "for batch 1 (rank 0)" in str(answer)


def test_a_batch_is_called_by_its_index(caplog: pytest.LogCaptureFixture):
    """T70, T78: messages say the `batch_idx` that `train_batch` was called with, in later windows and runs too."""
    window = TrainingWindow(first_batch=10)
    for loss in (1.0, 2.0):
        window.add({"loss": loss})
    window.close()
    window.add({"loss": 3.0, "name": "a"})
    window.close()
    assert "'a' in batch 12 (rank 0)" in caplog.text
    with pytest.raises(TypeError, match=r"for batch 13 \(rank 0\)"):
        window.add(None)


@pytest.mark.parametrize("other", [{"loss": 1.0, "more": 2.0}, {"other": 1.0}, {}])
def test_names_have_to_be_the_same_within_a_window(other: dict[str, Any]):
    """T70: differing key sets between batches of a window are a ValueError, on every rank, naming batch and rank."""
    for answer in windows([[{"loss": 1.0}] * 2, [{"loss": 1.0}, other]]):
        assert isinstance(answer, ValueError)
        assert "for batch 1 (rank 1)" in str(answer)
    window = TrainingWindow()
    window.add({"loss": 1.0})
    with pytest.raises(ValueError, match="Return the same names always"):
        window.add(other)


def test_after_a_problem_nothing_piles_up():
    """What comes after a result that will be refused at the stop is not collected, and the first problem is told."""

    def work(rank: ThreadRank) -> Any:
        window = TrainingWindow(rank)
        for batch_idx in range(5):
            window.add({"loss": 1.0} if batch_idx != 1 else {"lost": 1.0})
        held = window.batches
        with pytest.raises(ValueError, match="batch 1"):
            window.close()
        return held

    assert on_ranks(2, work) == [1, 1]


def test_no_average_is_said_once(caplog: pytest.LogCaptureFixture):
    """One warning per metric, not one per window."""
    window = TrainingWindow()
    for _ in range(2):
        window.add({"word": "x"})
        window.close()
    assert len(caplog.records) == 1


def test_the_next_window_may_have_other_names():
    """A window begins afresh: nothing of the one before is left."""
    window = TrainingWindow()
    window.add({"a": 1.0}, records=4)
    assert (window.batches, window.close().records, window.batches) == (1, 4, 0)
    window.add({"b": 3.0})
    assert window.close().metrics == {"b": 3.0}
    empty = window.close()
    assert (empty.metrics, empty.batch_metrics, empty.batches) == ({}, [], 0)


def test_batches_are_averaged_over_ranks():
    """T80: 2 ranks with per-batch values (1,2), (3,4): batch metrics 1.5, 3.5 and the average 2.5."""
    for answer in windows([[{"x": 1.0}, {"x": 3.0}], [{"x": 2.0}, {"x": 4.0}]]):
        assert answer.batch_metrics == [{"x": 1.5}, {"x": 3.5}]
        assert answer.metrics == {"x": 2.5}
        assert answer.batches == 2


def test_the_series_of_two_ranks():
    """D-35: per-rank series [1,2] and [3,4] give [2,3]; the chief gets it, others their own list back."""
    series = [[{"x": 1.0}, {"x": 2.0}], [{"x": 3.0}, {"x": 4.0}]]
    combined = pytorch._combine_and_average_training_metrics
    chief, other = on_ranks(2, lambda rank: combined(rank, series[rank.rank]))
    assert chief == [{"x": 2.0}, {"x": 3.0}]
    assert other == series[1]
    with pytest.raises(AssertionError):
        combined(_metrics._Alone(), series[0])


def test_arrays_stay_arrays_over_ranks():
    """D-36: averaged 0-d arrays are arrays again; elements of a vector are averaged too (pytorch.md 8.1)."""
    rows = [{"x": np.array(1.0), "v": torch.tensor([1.0, 3.0])}], [{"x": np.array(2.0), "v": torch.tensor([5.0, 7.0])}]
    for answer in windows(list(rows)):
        (batch,) = answer.batch_metrics
        assert isinstance(batch["x"], np.ndarray)
        assert (batch["x"].shape, batch["x"].item(), batch["v"].item()) == ((), 1.5, 4.0)


def test_none_is_ignored_over_ranks():
    """Contract 4.4: `None` entries are ignored, and a batch that is None everywhere stays None."""
    for answer in windows([[{"x": None}, {"x": None}], [{"x": 3.0}, {"x": None}]]):
        assert answer.batch_metrics == [{"x": 3.0}, {"x": None}]
        assert answer.metrics == {"x": 3.0}


def test_a_metric_of_some_ranks_is_averaged_over_those():
    """FIX W58: a rank-dependent training metric does not hang or crash."""
    for answer in windows([[{"x": 1.0}], [{"x": 3.0, "extra": 5.0}]]):
        assert answer.metrics == {"x": 2.0, "extra": 5.0}
        assert answer.batch_metrics == [{"x": 2.0, "extra": 5.0}]


def test_empty_dicts_and_empty_ranks_are_allowed():
    """T90, FIX W4: `{}` on 2 ranks trains on; a rank without a batch adds nothing."""
    for answer in windows([[{}, {}], [{}, {}]]):
        assert (answer.metrics, answer.batches, answer.batch_metrics) == ({}, 2, [{}, {}])  # as with one process
    for answer in windows([[], [{"x": 4.0}]]):
        assert answer.metrics == {"x": 4.0}
        assert answer.batch_metrics == [{"x": 4.0}]


def test_nan_stays_nan():
    """NaN is a value: it shows in its batch and in the average. Infinities of both signs make NaN, not an exception."""
    for answer in windows([[{"x": math.nan, "y": math.inf}], [{"x": 1.0, "y": torch.tensor(-math.inf)}]]):
        assert math.isnan(answer.metrics["x"])
        assert math.isnan(answer.metrics["y"])
        assert math.isnan(answer.batch_metrics[0]["x"])
    window = TrainingWindow()
    for value in (math.inf, 1.0):
        window.add({"x": torch.tensor(value)})
    assert window.close().metrics == {"x": math.inf}
    for value in (math.inf, torch.tensor(1.0), 1.0):
        window.add({"x": value})
    assert window.close().metrics == {"x": math.inf}


def test_reducers_overwrite_averages():
    """D-47: a reducer named like a batch metric wins in the average, and `batch_metrics` keeps the batch's value."""
    for size in (1, 2):

        def work(rank: ThreadRank) -> Any:
            reducers = _PyTorchReducerContext(rank.allgather, rank=rank.rank, size=rank.size)
            reducer = reducers.wrap_reducer(sum, "loss")
            reducers.wrap_reducer(sum, "not_now", for_training=False)
            window = TrainingWindow(rank)
            window.add({"loss": 1.0})
            reducer.update(50)
            result = window.close(reducers)
            return result.metrics, result.batch_metrics, rank.exchanges

        expected = {"loss": 50 * size}, [{"loss": 1.0}]
        assert on_ranks(size, work) == [(*expected, 1)] * size


def test_a_failing_reducer_is_raised_on_every_rank_in_the_same_exchange():
    """Issue 3: one exchange carries sums, reducers and errors."""

    def work(rank: ThreadRank) -> Any:
        reducers = _PyTorchReducerContext(rank.allgather, rank=rank.rank, size=rank.size)
        reducer = reducers.wrap_reducer(pytorch.SumReducer(), "s")
        if rank.rank == 0:
            reducer.per_slot_reduce = None  # type: ignore[method-assign, assignment]
        window = TrainingWindow(rank)
        window.add({"loss": 1.0})
        return window.close(reducers)

    for answer in on_ranks(2, work):
        assert isinstance(answer, ValueError)
        assert "SumReducer (name='s') failed on rank 0" in str(answer)


def test_values_are_those_of_their_batch():
    """FIX W46: the user's dict is not touched, and what the user changes later does not change what was reported."""
    window = TrainingWindow()
    running, array, mine = torch.zeros(()), np.zeros(1), {}
    for i in range(3):
        running += i
        array += i
        mine.update(tensor=running, array=array, listed=[i], view=torch.arange(3.0)[i])
        window.add(mine)
    assert mine["tensor"] is running
    result = window.close()
    assert [batch["tensor"].item() for batch in result.batch_metrics] == [0, 1, 3]
    assert [batch["array"].item() for batch in result.batch_metrics] == [0, 1, 3]
    assert result.metrics == pytest.approx({"tensor": 4 / 3, "array": 4 / 3, "listed": 1.0, "view": 1.0})


def test_graphs_and_bases_are_let_go():
    """A kept loss keeps neither its graph nor the tensor it is a view of."""
    window = TrainingWindow()
    weight = torch.ones(3, requires_grad=True)
    window.add({"loss": (weight * 2).sum(0, keepdim=True), "first": (weight * 2)[:1], "number": (weight * 2).sum()})
    *tensors, number = (values[0] for values in window._rows._waiting.values())
    for tensor in tensors:
        assert tensor.grad_fn is None
        assert tensor.untyped_storage().nbytes() == 4
    assert type(number) is float


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
def test_single_numbers_of_any_type_are_shown_as_what_they_were(dtype: torch.dtype):
    """Issue 3: what is kept of a batch is a numpy value of the tensor's type, and the average is that of the values."""
    window = TrainingWindow()
    values = [torch.tensor(value).to(dtype) for value in (1, 0, 1, 1)]
    for value in values:
        window.add({"metric": value})
    result = window.close()
    assert result.metrics == {"metric": 0.75}
    shown = torch.tensor([], dtype=torch.float32 if dtype is torch.bfloat16 else dtype).numpy().dtype
    assert [(row["metric"].dtype, row["metric"].shape) for row in result.batch_metrics] == [(shown, ())] * 4


def test_a_metric_that_changes_its_kind_is_still_averaged():
    """Issue 3: a tensor first, then a Python number, another type or a larger tensor: every value counts as it is."""
    window = TrainingWindow()
    for value in (torch.tensor(1), 0.5, torch.tensor(0.25), 2, torch.tensor([3.0])):
        window.add({"metric": value})
    result = window.close()
    assert result.metrics == {"metric": 6.75 / 5}
    assert [float(np.ravel(row["metric"])[0]) for row in result.batch_metrics] == [1, 0.5, 0.25, 2, 3]


def test_a_long_window_keeps_the_last_batches_and_averages_all():
    """Issue 3: `batch_metrics` is bounded; its last entry is the last batch, and averages cover every batch."""
    count = 2500
    window = TrainingWindow()
    for i in range(count):
        window.add({"i": torch.tensor(float(i)), "n": i})
    result = window.close()
    assert result.batches == count
    assert result.metrics == {"i": (count - 1) / 2, "n": (count - 1) / 2}
    assert [batch["n"] for batch in result.batch_metrics] == list(range(count - 1000, count))
    assert [batch["i"].item() for batch in result.batch_metrics] == list(range(count - 1000, count))


@pytest.mark.parametrize("kept", [0, 1, 3, 300])
def test_kept_batches_is_a_choice(kept: int):
    """The bound is an argument; ranks agree on the batches they show."""
    rows = [{"x": float(i)} for i in range(400)]
    for answer in windows([rows, rows], kept_batches=kept):
        assert [batch["x"] for batch in answer.batch_metrics] == list(range(400 - kept, 400))
    window = TrainingWindow(kept_batches=kept)
    for row in rows:
        window.add(row)
    assert len(window.close().batch_metrics) == kept


def test_large_metrics_fold_sooner_and_show_fewer_batches(monkeypatch: pytest.MonkeyPatch):
    """Metric tensors with many elements do not pile up: what waits and what is kept is bounded in elements."""
    monkeypatch.setattr(_columns, "_ELEMENTS", 1000)
    window = TrainingWindow()
    for i in range(50):
        window.add({"big": torch.full((100,), float(i)), "small": i})
        assert len(window._rows._waiting["big"]) <= 10
    result = window.close()
    assert result.metrics == {"big": 24.5, "small": 24.5}
    assert [batch["small"] for batch in result.batch_metrics] == list(range(41, 50))


def test_memory_is_flat_however_many_batches():
    """Issue 3: the memory of a window does not grow with its batches."""

    def train(window: TrainingWindow, batches: int) -> int:
        for _ in range(batches):
            window.add({"loss": torch.tensor(0.5), "n": 1, "word": "x"})
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    window = TrainingWindow()
    tracemalloc.start()
    try:
        early = train(window, 2048)
        late = train(window, 20480)
    finally:
        tracemalloc.stop()
    assert late - early < 50_000
    held = sum(len(chunk.values) for column in window._rows._columns.values() for chunk in column.history)
    assert held < 3 * (_metrics.KEPT_BATCHES + 256)


def test_one_transfer_per_window(monkeypatch: pytest.MonkeyPatch):
    """decisions.md 7: everything a window holds leaves the device in one copy, and nothing before the stop."""
    copies: list[int] = []
    cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copies.append(self.numel()) or cpu(self))
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("a value was asked for"))
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)  # as if there were a device to wait for
    window = TrainingWindow()
    for i in range(600):
        window.add({"loss": torch.tensor(float(i)), "count": torch.tensor(i), "vector": torch.ones(3)})
    assert copies == []
    result = window.close()
    assert len(copies) == 1
    assert result.metrics == {"loss": 299.5, "count": 299.5, "vector": 1.0}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**62), 2**62), st.floats(-1e9, 1e9, width=32)), min_size=1, max_size=24),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_sharding_averages_like_one_process(values: list[tuple[int, float]], size: int, tensors: bool):
    """Issue 3: however batches are dealt to ranks, averages are those of one process: exactly for integers."""
    rows = [{"i": torch.tensor(i) if tensors else i, "f": torch.tensor(f) if tensors else f} for i, f in values]
    for answer in windows([rows[rank::size] for rank in range(size)]):
        assert answer.metrics["i"] == sum(i for i, _ in values) / len(values)
        exact = math.fsum(f for _, f in values) / len(values)
        assert answer.metrics["f"] == pytest.approx(exact, rel=1e-12, abs=1e-9)


def test_float_sums_do_not_drift():
    """Issue 3: sums are stable for floats: the error does not grow with the number of batches."""
    window = TrainingWindow()
    tenth, naive = torch.tensor(0.1, dtype=torch.float64), 0.0
    for _ in range(50_000):
        window.add({"x": tenth, "y": 0.1})
        naive += 0.1
    assert naive / 50_000 != pytest.approx(0.1, rel=1e-13, abs=0)
    assert window.close().metrics == pytest.approx({"x": 0.1, "y": 0.1}, rel=3e-16, abs=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.bool, torch.uint64, torch.float8_e4m3fn])
def test_every_dtype_is_averaged(dtype: torch.dtype):
    """Odd dtypes are numbers too."""
    window = TrainingWindow()
    window.add({"x": torch.tensor([0, 1]).to(dtype)})
    assert window.close().metrics == {"x": 0.5}


def test_odd_tensors_are_handled_or_named():
    """Sparse tensors average; complex ones and those without data are None, with a sentence."""
    window = TrainingWindow()
    for _ in range(2):
        window.add(
            {"sparse": torch.eye(2).to_sparse(), "complex": torch.tensor(1j), "meta": torch.ones(2, device="meta")}
        )
    result = window.close()
    assert result.metrics == {"sparse": 0.5, "complex": None, "meta": None}
    assert result.batch_metrics[0]["meta"] is None
    assert result.batch_metrics[0]["sparse"].tolist() == [[1, 0], [0, 1]]


def test_tensors_inside_lists_and_dicts_become_numpy():
    """A list of tensors is a list of numbers; what a batch shows holds no tensor."""
    window = TrainingWindow()
    window.add({"pair": [torch.tensor(1.0), torch.tensor(3.0)], "deep": {"x": torch.ones(1)}})
    result = window.close()
    assert result.metrics == {"pair": 2.0, "deep": None}
    assert [type(v) for v in (*result.batch_metrics[0]["pair"], result.batch_metrics[0]["deep"]["x"])] == [
        np.ndarray
    ] * 3


def test_types_may_change_between_batches():
    """A number, then a tensor, then an array of one element: all are the same metric."""
    window = TrainingWindow()
    for value in (1, torch.tensor(2.0), np.float32(3), np.array([4]), torch.tensor([5], dtype=torch.int8), True):
        window.add({"x": value})
    assert window.close().metrics == {"x": 16 / 6}


# Validations.


@pytest.mark.parametrize(
    ("reducer", "expected"), [("AVG", 1.5), ("SUM", 3), ("MAX", 2), ("MIN", 1), ("RECORD_AVG", 1.5)]
)
@pytest.mark.parametrize("as_value", [float, torch.tensor, np.float32])
def test_batches_of_one_rank(reducer: str, expected: float, as_value: Any):
    """T71: batch values 1 and 2 under AVG/SUM/MAX/MIN are 1.5/3/2/1, as numpy scalars."""
    batches = [({"x": as_value(1)}, 8), ({"x": as_value(2)}, 8)]
    found = validate(batches, Reducer[reducer])["x"]
    assert found == expected
    assert isinstance(found, np.generic)


@pytest.mark.parametrize("reducer", [Reducer.AVG, Reducer.RECORD_AVG])
def test_ranks_weigh_by_their_batches(reducer: Reducer):
    """T72, D-32: rank 0 with 1, 3 and rank 1 with 2 is 2.0; means 1.0 (1 batch) and 3.0 (3 batches) are 2.5."""
    for answer in validations([[{"x": 1.0}, {"x": 3.0}], [{"x": 2.0}]], reducer, records=4):
        assert answer.metrics == {"x": 2.0}
    for answer in validations([[{"x": 1.0}], [{"x": 3.0}] * 3], reducer, records=4):
        assert answer.metrics == {"x": 2.5}
        assert (answer.batches, answer.records) == (4, 16)


def test_the_measured_example():
    """Contract 4.3: ranks with 4, 3, 3 batches and a = 10*rank + i: AVG 10.2, SUM 10, MAX 22, MIN 0."""
    counts = (4, 3, 3)
    rows = [
        [{"avg": 10 * r + i, "sum": 1, "max": 10 * r + i, "min": 10 * r + i} for i in range(n)]
        for r, n in enumerate(counts)
    ]
    plan = {"avg": Reducer.AVG, "sum": Reducer.SUM, "max": Reducer.MAX, "min": Reducer.MIN}
    for answer in validations(rows, plan):
        assert answer.metrics == {"avg": 10.2, "sum": 10, "max": 22, "min": 0}
    chief, *others = on_ranks(3, lambda rank: pytorch._reduce_metrics(rank, rows[rank.rank], plan.keys(), plan))
    assert chief == {"avg": 10.2, "sum": 10, "max": 22, "min": 0}
    assert others == [{}, {}]


def test_avg_weighs_batches_and_record_avg_weighs_records(caplog: pytest.LogCaptureFixture):
    """FIX W37, wart 4.7: AVG stays as it was; RECORD_AVG gives a short batch its share; a note says so once."""
    caplog.set_level(logging.INFO, "determined.pytorch")
    batches = [({"x": 1.0}, 30), ({"x": torch.tensor(4.0)}, 10)]
    assert validate(batches, Reducer.AVG) == {"x": 2.5}
    assert "10 to 30 records" in caplog.text
    assert validate(batches, Reducer.RECORD_AVG) == {"x": 1.75}
    for answer in validations([batches[:1], batches[1:]], Reducer.RECORD_AVG):
        assert answer.metrics == {"x": 1.75}
    with pytest.raises(ValueError, match=r"get_batch_length\(\)"):
        validate([({"x": 1.0}, 3), ({"x": 1.0}, None)], Reducer.RECORD_AVG)


def test_vectors_become_one_number_with_a_note(caplog: pytest.LogCaptureFixture):
    """T73: [1,2] and [2,4] under AVG is 2.25. Wart 4.7: no longer without notice."""
    caplog.set_level(logging.INFO, "determined.pytorch")
    validation = ValidationPass()
    for _ in range(2):
        validation.add({"v": torch.tensor([1.0, 2.0])})
        validation.add({"v": np.array([2.0, 4.0])})
        assert validation.reduce(Reducer.AVG).metrics == {"v": 2.25}
    assert len([r for r in caplog.records if "MeanReducer(keep_shape=True)" in r.message]) == 1


WRONG_PLANS = [
    {"a": Reducer.AVG},
    {"a": Reducer.AVG, "b": "mean"},
    {"a": Reducer.AVG, "b": lambda values: 0},
    {"a": Reducer.AVG, "c": Reducer.SUM},
    "mean",
    None,
]


@pytest.mark.parametrize("plan", WRONG_PLANS)
def test_reducers_have_to_cover_the_metrics(plan: Any):
    """D-33, T74: a reducer dict that misses a metric or holds something else is refused, on every rank."""
    for answer in validations([[{"a": 1, "b": 2}]] * 2, plan):
        assert isinstance(answer, errors.InvalidExperimentException)
        assert plan is not None or "returned None. Return a pytorch.Reducer" in str(answer)
    with pytest.raises(errors.InvalidExperimentException):
        pytorch._prepare_metrics_reducers(plan, ["a", "b"])


def test_one_reducer_is_for_all():
    """Contract 4.2: one reducer per key."""
    assert pytorch._prepare_metrics_reducers(Reducer.MAX, ["a", "b"]) == {"a": Reducer.MAX, "b": Reducer.MAX}
    plan = {"a": Reducer.MAX, "b": Reducer.SUM}
    assert pytorch._prepare_metrics_reducers(plan, ["b", "a"]) == plan


@pytest.mark.parametrize("per_rank", [[[{"x": 3.0}], []], [[], [{"x": 3.0}]]])
def test_an_empty_shard_adds_nothing(per_rank: list[list[Any]]):
    """T76, FIX W9, wart 4.7: one batch and 2 ranks completes, also when the chief is the empty one."""
    for answer in validations(per_rank, Reducer.AVG):
        assert (answer.metrics, answer.batches) == ({"x": 3.0}, 1)


@pytest.mark.parametrize("size", [1, 2])
def test_no_batch_anywhere_is_an_error(size: int):
    """T75: an empty validation loader is a RuntimeError, on every rank."""
    for answer in validations([[]] * size, Reducer.AVG):
        assert type(answer) is RuntimeError
        assert "no batch on any rank" in str(answer)


def test_a_name_missing_on_one_rank_is_named_everywhere():
    """Wart 4.7: key and ranks are named; all ranks raise."""
    for answer in validations([[{"a": 1, "b": 1}], [{"a": 1}], [{"a": 1, "b": 2}]], Reducer.AVG):
        assert isinstance(answer, ValueError)
        assert "'b' on ranks [0, 2] but not on ranks [1]" in str(answer)


def test_names_differ_between_batches():
    """T70: differing keys between validation batches are a ValueError; on every rank when there are several."""
    with pytest.raises(ValueError, match=r"\['accuracy'\] for batch 1 \(rank 0\)"):
        validate([{"accuracy": 1, "loss": 1}, {"accuracy": 1}])
    for answer in validations([[{"a": 1}, {"a": 1}], [{"a": 1}, {"b": 1}]], Reducer.AVG):
        assert isinstance(answer, ValueError)
        assert "batch 1 (rank 1)" in str(answer)


@pytest.mark.parametrize("wrong", ["high", None, {"deep": 1}, [[1], [2, 3]], torch.tensor(1j)])
def test_what_is_no_number_is_refused_on_every_rank(wrong: Any):
    """Contract 8.3: strings or None are a TypeError; metric, batch and rank are named."""
    for answer in validations([[{"x": 1.0}] * 3, [{"x": 1.0}, {"x": wrong}]], Reducer.AVG):
        assert isinstance(answer, TypeError)
        assert "'x'" in str(answer)
        assert "batch 1 (rank 1)" in str(answer)


def test_evaluate_batch_has_to_return_a_dict():
    """FIX W5: TypeError naming method and type."""
    with pytest.raises(TypeError, match=r"evaluate_batch\(\) returned None for batch 0"):
        ValidationPass().add(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Return a dict from name to value"):
        ValidationPass().add(torch.tensor(1.0))  # type: ignore[arg-type]


def test_sizes_have_to_match_for_an_average_only():
    """Contract 8.3: shapes must match to be averaged, over batches and ranks; a sum needs none of that."""
    rows = [{"x": torch.ones(4)}, {"x": torch.ones(3)}]
    with pytest.raises(ValueError, match=r"4 elements in batch 0 \(rank 0\) but 3 in batch 1 \(rank 0\)"):
        validate(rows)
    for answer in validations([rows[:1], rows[1:]], Reducer.AVG):
        assert "3 elements in batch 0 (rank 1)" in str(answer)
    for answer in validations([rows[:1], rows[1:]], Reducer.SUM):
        assert answer.metrics == {"x": 7.0}


def test_empty_arrays():
    """No elements: an average is NaN, a sum 0, and an extreme is refused."""
    rows = [{"x": torch.ones(0)}]
    assert math.isnan(validate(rows)["x"])
    assert validate(rows, Reducer.SUM) == {"x": 0}
    with pytest.raises(ValueError, match="empty in every batch"):
        validate(rows, Reducer.MAX)


def test_nan_is_not_hidden_by_max():
    """NaN is contagious for MAX and MIN over batches and ranks, as numpy has it."""
    for reducer in (Reducer.MAX, Reducer.MIN):
        for nan in (math.nan, torch.tensor(math.nan)):
            for answer in validations([[{"x": 1.0}], [{"x": 2.0}, {"x": nan}, {"x": 0.0}]], reducer):
                assert math.isnan(answer.metrics["x"])


def test_empty_dicts_leave_only_reducers():
    """T84, T83: `evaluate_batch` returned `{}` and a validation reducer: only the reducer's metric."""

    def work(rank: ThreadRank) -> Any:
        reducers = _PyTorchReducerContext(rank.allgather, rank=rank.rank, size=rank.size)
        reducers.wrap_reducer(sum, "total").update(rank.rank + 1)
        reducers.wrap_reducer(sum, "training_only", for_validation=False)
        validation = ValidationPass(rank)
        validation.add({})
        return validation.reduce(Reducer.AVG, reducers).metrics, rank.exchanges

    assert on_ranks(2, work) == [({"total": 3}, 1)] * 2


def test_outputs_are_this_ranks_batches():
    """pytorch.md 5.1: `on_validation_epoch_end(outputs)` gets this rank's results, tensors as numpy."""
    validation = ValidationPass(keep_outputs=True)
    for i in range(600):
        validation.add({"x": torch.tensor(i), "pair": [i, i]})
    outputs = validation.outputs()
    assert len(outputs) == 600
    assert isinstance(outputs[599]["x"], np.ndarray)
    assert (outputs[599]["x"].item(), outputs[599]["pair"]) == (599, [599, 599])
    assert validation.reduce(Reducer.MAX).metrics == {"x": 599, "pair": 599}
    assert validation.batches == 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(1, 99)), min_size=1, max_size=24),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_sharding_validates_like_one_process(values: list[tuple[int, int]], size: int, tensors: bool):
    """Issue 3: SUM, MAX, MIN and AVG of integers are exact however batches are dealt; RECORD_AVG to float tolerance."""
    names = {"sum": Reducer.SUM, "max": Reducer.MAX, "min": Reducer.MIN, "avg": Reducer.AVG, "rec": Reducer.RECORD_AVG}
    rows = [(dict.fromkeys(names, torch.tensor(v) if tensors else v), weight) for v, weight in values]
    numbers = [v for v, _ in values]
    for answer in validations([rows[rank::size] for rank in range(size)], names):
        assert answer.metrics["sum"] == sum(numbers)
        assert (answer.metrics["max"], answer.metrics["min"]) == (max(numbers), min(numbers))
        assert answer.metrics["avg"] == sum(numbers) / len(numbers)
        exact = sum(v * w for v, w in values) / sum(w for _, w in values)
        assert answer.metrics["rec"] == pytest.approx(exact, rel=1e-9, abs=1e4)


def test_large_integers_beside_the_device_types():
    """uint64 and Python integers beyond 64 bits keep their value."""
    assert validate([{"x": torch.tensor([2**64 - 1], dtype=torch.uint64)}], Reducer.MAX) == {"x": 2**64 - 1}
    assert validate([{"x": 10**30}, {"x": 1}], Reducer.SUM) == {"x": 10**30 + 1}
    large = torch.tensor([2**63, 2**63 + 5], dtype=torch.uint64)
    assert validate([{"x": large}], Reducer.SUM) == {"x": 2**64 + 5}
    window = TrainingWindow()
    window.add({"beyond": 10**400, "below": -(10**400)})
    assert window.close().metrics == {"beyond": math.inf, "below": -math.inf}


# evaluate_full_dataset.


@pytest.mark.parametrize("size", [1, 3])
def test_full_dataset_metrics_reach_every_rank(size: int):
    """Contract 8.3: the chief's dict is used as is, tensors as numpy, reducers on top; every rank gets it."""

    def work(rank: ThreadRank) -> Any:
        reducers = _PyTorchReducerContext(rank.allgather, rank=rank.rank, size=rank.size)
        reducers.wrap_reducer(sum, "total").update(1)
        mine = {"x": torch.ones(2), "word": "w"} if rank.rank == 0 else None
        return reduce_full_dataset(mine, rank, reducers).metrics

    for metrics in on_ranks(size, work):
        assert metrics["x"].tolist() == [1.0, 1.0]
        assert (metrics["word"], metrics["total"]) == ("w", size)


@pytest.mark.parametrize(("wrong", "kind"), [(None, TypeError), (5, TypeError), (KeyError("k"), RuntimeError)])
def test_a_failing_full_evaluation_is_raised_on_every_rank(wrong: Any, kind: type):
    """Contract 2.5, FIX W9: not a dict is a TypeError; what the chief raised stops the others too."""
    chief, other = on_ranks(2, lambda rank: reduce_full_dataset(wrong if rank.rank == 0 else None, rank))
    assert isinstance(other, kind)
    assert chief is wrong if isinstance(wrong, Exception) else isinstance(chief, kind)


# The underscore functions.


def test_simple_reductions():
    """D-31: AVG 4.98, SUM 29.9, MIN 0.25, MAX 25.5; weighted AVG 6.43."""
    values = np.array([0.25, 0.5, 0.75, 1, 25.5, 1.9])
    reduce = pytorch._simple_reduce_metrics
    assert reduce(Reducer.AVG, values) == pytest.approx(4.98, abs=0.005)
    assert reduce(Reducer.SUM, values) == pytest.approx(29.9)
    assert (reduce(Reducer.MIN, values), reduce(Reducer.MAX, values)) == (0.25, 25.5)
    assert reduce(Reducer.AVG, values, [1, 2, 5, 4, 5, 6]) == pytest.approx(6.43, abs=0.005)
    assert reduce(Reducer.AVG, np.array([1.0, 3.0]), [1, 3]) == 2.5
    with pytest.raises(RuntimeError):
        reduce(Reducer.AVG, values, [1, 2])
    with pytest.raises(NotImplementedError):
        reduce("AVG", values)  # type: ignore[arg-type]


def test_entries_without_batches_are_ignored():
    """D-34: `[({},0), ({"l":[1,2]},2), ({"l":[3,4]},2)]` is `{"l": [[1,2],[3,4]]}` and counts [2,2]."""
    combined = _compat._combine_metrics([({}, 0), ({"l": [1, 2]}, 2), ({"l": [3, 4]}, 2)])
    assert combined == ({"l": [[1, 2], [3, 4]]}, [2, 2])


def test_conversion_is_in_place():
    """D-37: the same dict object with a numpy value; bfloat16 works, a tensor that requires grad is torch's error."""
    metrics = {"a": torch.tensor(2), "b": torch.tensor(1.0, dtype=torch.bfloat16), "c": "text"}
    assert pytorch._convert_metrics_to_numpy(metrics) is metrics
    assert isinstance(metrics["a"], np.ndarray)
    assert (metrics["a"].item(), metrics["b"].item(), metrics["c"]) == (2, 1.0, "text")
    with pytest.raises(RuntimeError, match="requires grad"):
        pytorch._convert_metrics_to_numpy({"a": torch.ones((), requires_grad=True)})


def test_batches_of_plain_numbers_stay_columns_until_somebody_looks() -> None:
    """Decision 7: a window of scalar metrics is kept as one array per name, and reads as the list of dicts it was."""
    window = TrainingWindow(kept_batches=3)
    for i in range(5):
        window.add({"loss": torch.tensor(float(i)), "step": torch.tensor(i)})
    batches = window.close().batch_metrics
    assert isinstance(batches, BatchColumns)
    assert {name: column.tolist() for name, column in batches.columns.items()} == {"loss": [2, 3, 4], "step": [2, 3, 4]}
    assert list(batches) == batches == [{"loss": float(i), "step": i} for i in (2, 3, 4)]
    assert (len(batches), batches[-1], batches[:1]) == (3, {"loss": 4.0, "step": 4}, [{"loss": 2.0, "step": 2}])


@pytest.mark.parametrize("odd", ["text", None, torch.ones(2), {"a": 1}])
def test_other_batches_are_lists(odd: object) -> None:
    """A metric that is not one number per batch keeps all of them as dicts."""
    window = TrainingWindow()
    window.add({"loss": torch.tensor(1.0), "odd": odd})
    assert type(window.close().batch_metrics) is list
