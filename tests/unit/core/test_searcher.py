"""SearcherContext: one operation, for scripts that iterate over them."""

from __future__ import annotations

import pytest

from determined import core
from determined.core._searcher import _parse_searcher_max_length, _parse_searcher_units
from tests.ranks import run_threads


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_ranks_iterate_together_and_the_chief_reports() -> None:
    """C-61: with 2 ranks both iterate once with the length, and only the chief may report."""

    def body(distributed: core.DistributedContext) -> list[int]:
        lengths = []
        for operation in core.SearcherContext(distributed, length=5).operations():
            lengths.append(operation.length)
            if distributed.rank == 0:
                operation.report_completed(0.5)
            else:
                with pytest.raises(RuntimeError, match="chief"):
                    operation.report_completed(0.5)
        return lengths

    assert run_threads(2, body) == [[5], [5]]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_operation_must_be_completed() -> None:
    """C-62: going on without report_completed is a RuntimeError, on every rank."""

    def body(distributed: core.DistributedContext) -> str:
        with pytest.raises(RuntimeError, match="report_completed") as caught:
            list(core.SearcherContext(distributed, length=5).operations())
        return type(caught.value).__name__

    assert run_threads(2, body) == ["RuntimeError"] * 2


@pytest.mark.parametrize(
    ("searcher", "length", "unit"),
    [
        ({"max_length": {"epochs": 3}}, 3, core.Unit.EPOCHS),
        ({"max_length": 3}, 3, None),
        ({"max_length": 3, "unit": "records"}, 3, core.Unit.RECORDS),
        ({"unit": "records"}, None, core.Unit.RECORDS),
        ({}, None, None),
    ],
)
def test_lengths_and_units_of_a_config(searcher: dict[str, object], length: object, unit: object) -> None:
    """C-63: an int or a one-entry mapping; the unit from either place."""
    assert _parse_searcher_max_length(searcher) == length
    assert _parse_searcher_units(searcher) == unit


@pytest.mark.parametrize("searcher", [{"max_length": {"epochs": 1, "batches": 2}}, {"unit": "parsecs"}])
def test_a_length_that_makes_no_sense_is_refused(searcher: dict[str, object]) -> None:
    """A config that cannot be read says what would be right."""
    with pytest.raises(ValueError, match="expected"):
        _parse_searcher_max_length(searcher)
        _parse_searcher_units(searcher)


def test_progress_is_clamped() -> None:
    """C-64: report_progress(20) of length 10 sends 1.0."""
    sent: list[float] = []
    operation = core.SearcherOperation(10, is_chief=True, report_progress=sent.append)
    operation.report_progress(20)
    operation.report_progress(5)
    operation.report_progress(-1)
    assert sent == [1.0, 0.5, 0.0]


def test_an_operation_ends_once() -> None:
    """Contract 7: completing twice, or progress after completion, is a RuntimeError; the full length is not."""
    operation = core.SearcherOperation(10, is_chief=True, report_progress=lambda _: None)
    operation.report_completed(1.0)
    operation.report_progress(10)
    with pytest.raises(RuntimeError, match="already"):
        operation.report_completed(1.0)
    with pytest.raises(RuntimeError, match="has ended"):
        operation.report_progress(5)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_chief_only_is_for_the_chief() -> None:
    """Contract 7: other ranks in ChiefOnly mode get a RuntimeError; nothing is exchanged."""

    def body(distributed: core.DistributedContext) -> int:
        searcher = core.SearcherContext(distributed)
        if distributed.rank == 0:
            for operation in searcher.operations(core.SearcherMode.ChiefOnly):
                operation.report_completed(1.0)
                return operation.length
        with pytest.raises(RuntimeError, match="rank 1"):
            list(searcher.operations(core.SearcherMode.ChiefOnly))
        return -1

    assert run_threads(2, body) == [1, -1]


def test_a_local_run_has_one_epoch() -> None:
    """Contract 7: the local operation has length 1, in epochs, with a warning; the misspelt mode stays readable."""
    searcher = core.SearcherContext()
    with pytest.warns(FutureWarning, match="deprecated"):
        assert next(searcher.operations()).length == 1
    assert searcher.get_configured_units() is core.Unit.EPOCHS
    assert core.SearcherMode("CHEIF_ONLY") is core.SearcherMode.ChiefOnly
    searcher.acknowledge_out_of_ops()


def test_progress_by_keyword() -> None:
    """Scripts name the argument `length` or `progress`; without either it is a TypeError."""
    sent: list[float] = []
    operation = core.SearcherOperation(10, is_chief=True, report_progress=sent.append)
    operation.report_progress(length=2)
    operation.report_progress(progress=5)
    assert sent == [0.2, 0.5]
    with pytest.raises(TypeError, match="needs a length"):
        operation.report_progress()
