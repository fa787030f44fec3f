"""Training windows: what train_batch returns becomes averages over batches and ranks."""

from __future__ import annotations

import gc
import math
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import pytorch
from determined.core import DistributedContext
from determined.core.recording.values import BatchColumns, plain_batches
from determined.pytorch.metrics import rank_metrics, reduction
from determined.pytorch.metrics.reducer import _PyTorchReducerContext
from determined.pytorch.metrics.reduction import TrainingWindow
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
        combined(DistributedContext(), series[0])


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


def test_a_metric_of_some_ranks_is_an_error_on_all():
    """Issue 11, 9, W58: nobody hangs; names that differ between ranks are named, with the ranks, on every rank."""
    for answer in windows([[{"x": 1.0}], [{"x": 3.0, "extra": 5.0}], [{"x": 1.0}]]):
        assert isinstance(answer, ValueError)
        assert "train_batch() returned 'extra' on ranks [1] but not on ranks [0, 2]." in str(answer)


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
    *tensors, number = (values[0] for values in window._mine._waiting.values())
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
    monkeypatch.setattr(rank_metrics, "_ELEMENTS", 1000)
    window = TrainingWindow()
    for i in range(50):
        window.add({"big": torch.full((100,), float(i)), "small": i})
        assert len(window._mine._waiting["big"]) <= 10
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
    held = sum(len(run) for history in window._mine._history.values() for run in history)
    assert held < 3 * (reduction.KEPT_BATCHES + 256)


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
    st.lists(st.tuples(st.integers(-(2**48), 2**48), st.floats(-1e9, 1e9, width=32)), min_size=1, max_size=24),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_sharding_averages_like_one_process(values: list[tuple[int, float]], size: int, tensors: bool):
    """Issue 3: however batches are dealt to ranks, averages are those of one process: exactly for integers
    whose sum stays below 2**53 (docs/decisions/metric-averages.md)."""
    rows = [{"i": torch.tensor(i) if tensors else i, "f": torch.tensor(f) if tensors else f} for i, f in values]
    for answer in windows([rows[rank::size] for rank in range(size)]):
        assert answer.metrics["i"] == sum(i for i, _ in values) / len(values)
        exact = math.fsum(f for _, f in values) / len(values)
        assert answer.metrics["f"] == pytest.approx(exact, rel=1e-12, abs=1e-9)


def test_sums_are_float64():
    """Issue 3: float32 metrics are added in float64, so the error of a long window stays far below one of float32."""
    window = TrainingWindow()
    tenth, naive = torch.tensor(0.1), torch.tensor(0.0)
    for _ in range(50_000):
        window.add({"x": tenth, "v": tenth.expand(2), "y": 0.1})
        naive += tenth
    assert naive.item() / 50_000 != pytest.approx(0.1, rel=1e-5, abs=0)
    expected = {"x": tenth.item(), "v": tenth.item(), "y": 0.1}
    assert window.close().metrics == pytest.approx(expected, rel=1e-12, abs=0)


def test_a_device_without_float64_is_asked_every_256_batches_only():
    """docs/decisions/metric-averages.md: on MPS sums are float64 too, on the host; no batch waits for the device."""
    copies: list[int] = []

    class Mps(torch.Tensor):
        device = torch.device("mps")
        is_cpu = False

        def cpu(self) -> torch.Tensor:  # type: ignore[override]
            copies.append(self.numel())
            return self.as_subclass(torch.Tensor)

    window = TrainingWindow(kept_batches=0)
    for i in range(300):
        window.add({"x": torch.tensor(float(i)).as_subclass(Mps), "y": torch.tensor(0.1).as_subclass(Mps)})
    assert copies == [256, 256]
    assert window.close().metrics == {"x": 149.5, "y": pytest.approx(torch.tensor(0.1).item(), rel=1e-12, abs=0)}
    assert copies == [256, 256, 44, 44]


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
