from __future__ import annotations

import threading
import time

import pytest
import torch.distributed

from determined.core import DistributedContext
from determined.core.ranks.watch import (
    EXCHANGES,
    WAITS,
    WORKS,
    Status,
    Suspects,
    describe_wait,
    exchanges_tensors,
    find_stuck,
    find_suspects,
    stack_of,
)
from determined.errors import CollectiveTimeout
from tests.ranks import join_in_memory, places, run_threads, try_threads

PATIENCE = 30.0


def status(state: str, still: float = 40.0, needs: list[int] | None = None, batches: int = 5) -> Status:
    return Status(100.0, still, state, "allgather(), call 7", needs or [], batches)


def suspects(*statuses: Status, silent: set[int] | None = None) -> Suspects:
    return find_suspects(dict(enumerate(statuses)), silent or set(), PATIENCE)


def test_nobody_is_suspected_while_nobody_waits_long() -> None:
    """A slow batch on all ranks, or a wait that has just begun, is nobody's fault."""
    assert suspects(status(WORKS), status(WORKS)) == Suspects()
    assert suspects(status(WAITS, 10, [1]), status(WORKS)) == Suspects()
    assert suspects(status(EXCHANGES), status(EXCHANGES)) == Suspects()  # all in backward
    assert suspects(status(EXCHANGES), status(WORKS, 5)) == Suspects()  # it gets on


def test_a_call_of_ours_says_for_whom_it_waits() -> None:
    """Rank 2 waits for the chief, which waits for rank 1: it is rank 1, whatever rank 3 does."""
    waits = status(WAITS, needs=[1]), status(WORKS), status(WAITS, needs=[0]), status(WORKS)
    assert suspects(*waits) == Suspects([1], [0, 2])
    assert suspects(status(WAITS, needs=[1]), status(WORKS, 1)) == Suspects([1], [0])  # needed, though it gets on


def test_an_exchange_of_tensors_waits_for_all() -> None:
    """Who does something else and does not move, or reports nothing any more, is suspected."""
    assert suspects(status(EXCHANGES), status(WORKS), status(EXCHANGES)) == Suspects([1], [0, 2])
    assert suspects(status(EXCHANGES), status(EXCHANGES, 1), silent={1}) == Suspects([1], [0])
    assert suspects(status(WAITS, needs=[1]), status(EXCHANGES)) == Suspects([1], [0])  # two that wait for each other


def test_who_is_batches_behind_keeps_others_waiting() -> None:
    """Where torch waits out of sight, as on GPUs, the numbers of batches tell."""
    assert suspects(status(WORKS, batches=6), status(WORKS)) == Suspects([1], [0])
    assert suspects(status(WORKS, 1, batches=6), status(WORKS)) == Suspects()


def test_who_has_left_training_is_not_behind() -> None:
    """A rank that has given up has no number of batches any more; who has given up finds the one that did not move."""
    after = status(WORKS, 50, batches=-1), status(WORKS, 80)
    assert suspects(*after) == Suspects()
    statuses = dict(
        enumerate([status(WORKS, 0, batches=-1), status(WORKS, 80), status(EXCHANGES, 80), status(WAITS, 80)])
    )
    assert find_stuck(statuses, set(), PATIENCE) == {1}
    assert find_stuck(statuses, {2}, PATIENCE) == {1, 2}


def test_the_sentence_for_who_waits() -> None:
    """It names the ranks that wait, where, and for how long."""
    statuses = {0: status(WAITS, 41.4, [1]), 1: status(WORKS), 2: status(EXCHANGES, 33)}
    assert (
        describe_wait(Suspects([1], [0, 2]), statuses) == "keeps ranks 0 and 2 waiting in allgather(), call 7, for 41 s"
    )
    assert describe_wait(Suspects([1], [2]), statuses) == "keeps rank 2 waiting in an exchange of tensors, for 33 s"


def test_where_torch_waits_for_others() -> None:
    """The innermost frame tells an exchange from work, user code inside of backward included."""
    backward = 'File "/site-packages/torch/autograd/graph.py", line 1 in _engine_run_backward'
    assert exchanges_tensors([backward, 'File "train.py", line 3 in train_batch'])
    assert exchanges_tensors(['File "/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce'])
    assert not exchanges_tensors(['File "train.py", line 3 in hook', backward])
    assert not exchanges_tensors(['File "/site-packages/torch/nn/functional.py", line 3 in linear'])
    assert not exchanges_tensors([])


def test_the_stack_of_a_thread_that_is_asleep() -> None:
    """A thread can be looked at while it is in a C call, without disturbing it."""
    woken = threading.Event()

    def sleep_here() -> None:
        woken.wait(60)

    thread = threading.Thread(target=sleep_here)
    thread.start()
    try:
        assert thread.ident is not None
        while " in sleep_here" not in "".join(found := stack_of(thread.ident)):
            time.sleep(0.01)
        assert found[0].startswith("File ")
        assert "threading.py" in found[0]  # innermost first
    finally:
        woken.set()
        thread.join()
    assert stack_of(1) == []


def test_who_is_late_is_named_before_and_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 11, 9: the warning and the error name rank, last call and stack; with 0 seconds there is no warning."""
    release = threading.Event()

    def dawdle(distributed: DistributedContext) -> None:
        distributed.allgather("once")
        try:
            if distributed.rank == 1:
                release.wait(60)
            else:
                distributed.allgather("again")
        finally:
            release.set()

    error = try_threads(2, dawdle, timeout=4)[0]
    assert isinstance(error, CollectiveTimeout)
    assert "rank 1 did not come to allgather(), call 2, within 4 s (seen by rank 0)." in str(error)
    assert "Rank 1 (pid " in str(error)
    assert "last called allgather(), call 1. It is at (most recent call first):" in str(error)
    assert " in dawdle" in str(error)
    (said,) = [record.getMessage() for record in caplog.records if "keeps rank" in record.getMessage()]
    assert said.startswith("rank 1 (pid ")
    assert "rank-1) keeps rank 0 waiting in allgather(), call 2, for " in said
    assert "It last called allgather(), call 1. It is at (most recent call first):" in said
    assert " in dawdle" in said

    caplog.clear()
    release.clear()
    monkeypatch.setenv("DET_SLOW_RANK_SECONDS", "0")
    assert isinstance(try_threads(2, dawdle, timeout=2)[0], CollectiveTimeout)
    assert not caplog.records


def test_others_wait_longer_for_what_the_chief_does_alone() -> None:
    """What one process does for all, as storing a checkpoint, may take six times as long."""

    def body(distributed: DistributedContext) -> str:
        return distributed.run_on_chief(lambda: time.sleep(1.5) or "stored")

    assert run_threads(2, body, timeout=1) == ["stored", "stored"]


def test_seconds_that_are_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt setting is a sentence that names it."""
    monkeypatch.setenv("DET_SLOW_RANK_SECONDS", "soon")
    with pytest.raises(ValueError, match=r"DET_SLOW_RANK_SECONDS is 'soon'; expected seconds, for example"):
        run_threads(2, lambda distributed: None)


def test_ranks_that_have_not_come_are_named_before_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 11, 9: a rank that hangs before the start is named by the chief, which waits for it."""
    monkeypatch.setenv("DET_SLOW_RANK_SECONDS", "0.2")
    with pytest.raises(CollectiveTimeout):
        join_in_memory(torch.distributed.HashStore(), places(2)[0], timeout=1)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "missing: rank 1 of 2" in said
