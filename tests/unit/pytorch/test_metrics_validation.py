"""Validations: what evaluate_batch returns becomes one number per metric, over batches and ranks."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import errors, pytorch
from determined.pytorch import Reducer
from determined.pytorch.metrics.reducer import _PyTorchReducerContext
from determined.pytorch.metrics.reduction import TrainingWindow, ValidationPass, reduce_full_dataset
from tests.unit.pytorch.thread_ranks import ThreadRank, on_ranks


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
    """Contract 4.2: one reducer is used for every metric."""
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
    """FIX W5: anything but a dict from evaluate_batch is a TypeError that names the method and the type."""
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
    st.lists(st.tuples(st.integers(-(2**48), 2**48), st.integers(1, 99)), min_size=1, max_size=24),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_sharding_validates_like_one_process(values: list[tuple[int, int]], size: int, tensors: bool):
    """Issue 3: SUM, MAX, MIN and AVG of integers are exact however batches are dealt, while the sum stays below 2**53
    (docs/decisions/metric-averages.md); RECORD_AVG to float tolerance."""
    names = {"sum": Reducer.SUM, "max": Reducer.MAX, "min": Reducer.MIN, "avg": Reducer.AVG, "rec": Reducer.RECORD_AVG}
    rows = [(dict.fromkeys(names, torch.tensor(v) if tensors else v), weight) for v, weight in values]
    numbers = [v for v, _ in values]
    for answer in validations([rows[rank::size] for rank in range(size)], names):
        assert answer.metrics["sum"] == sum(numbers)
        assert (answer.metrics["max"], answer.metrics["min"]) == (max(numbers), min(numbers))
        assert answer.metrics["avg"] == sum(numbers) / len(numbers)
        exact = sum(v * w for v, w in values) / sum(w for _, w in values)
        assert answer.metrics["rec"] == pytest.approx(exact, rel=1e-9, abs=1e4)


@pytest.mark.parametrize("tensors", [False, True])
def test_integers_stay_integers_below_2_to_the_53(tensors: bool):
    """docs/decisions/metric-averages.md: SUM, MAX and MIN of integers are integers while float64 holds them exactly."""
    for reducer, expected in ((Reducer.SUM, 2**53 - 1), (Reducer.MAX, 2**53 - 2), (Reducer.MIN, 1)):
        for values in ([2**53 - 2], [1]), ([2**53 - 2, 1], []):
            rows = [[{"x": torch.tensor(v) if tensors else v} for v in part] for part in values]
            for answer in validations(rows, reducer):
                assert answer.metrics == {"x": expected}
                assert isinstance(answer.metrics["x"], np.int64)


def test_large_integers_are_floats():
    """docs/decisions/metric-averages.md: from 2**53 on, uint64 and Python integers beyond 64 bits are float64."""
    assert validate([{"x": torch.tensor([2**64 - 1], dtype=torch.uint64)}], Reducer.MAX) == {"x": 2.0**64}
    assert validate([{"x": 10**30}, {"x": 1}], Reducer.SUM) == {"x": 1e30}
    large = torch.tensor([2**63, 2**63 + 5], dtype=torch.uint64)
    found = validate([{"x": large}], Reducer.SUM)["x"]
    assert (type(found), found) == (np.float64, 2.0**64)
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
