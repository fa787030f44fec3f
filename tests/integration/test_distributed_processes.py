"""Ranks that are real processes, under torchrun or its variables."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from determined.core import DistributedContext
from determined.errors import CollectiveError
from tests.forks import Nursery
from tests.ranks import ROOT, free_port, places, run_processes


def rounds(distributed: DistributedContext, count: int) -> int:
    """The number of calls that returned values of their own round."""
    pace, size, right = random.Random(distributed.rank), distributed.size, 0
    for turn in range(count):
        if pace.random() < 0.02 * distributed.rank:
            time.sleep(0.002)
        right += distributed.allgather((distributed.rank, turn)) == [(rank, turn) for rank in range(size)]
        right += distributed.broadcast(turn + distributed.rank) == turn
    return right


def group_sum(rank: int) -> float:
    """Sum the ranks through a process group of gloo's, made and destroyed here."""
    import torch
    import torch.distributed as dist

    value = torch.tensor([float(rank)])
    dist.all_reduce(value)
    return float(value.item())


def rounds_and_a_group(distributed: DistributedContext) -> list[Any]:
    import torch.distributed as dist

    table = [getattr(distributed, call)(distributed.rank) for call in ("gather", "allgather_local", "broadcast_local")]
    found: list[Any] = [rounds(distributed, 1000), table]
    dist.init_process_group("gloo")  # after our context
    found.append(group_sum(distributed.rank))
    with DistributedContext.from_torch_distributed(timeout=90) as second:  # in the group's own store
        found.append(second.allgather(second.rank))
        assert "default process group" in second._channel.session.connection.place
        found.append(distributed.allgather(distributed.rank))  # the first goes on
    dist.destroy_process_group()
    return [*found, distributed.broadcast("done")]


@pytest.mark.parametrize(("size", "torchrun"), [(3, False), (2, True)])
def test_a_thousand_rounds_and_a_group_at_the_same_address(size: int, torchrun: bool, nursery: Nursery) -> None:
    """C-16, C-10: a thousand rounds of gather, allgather and broadcast in real processes all give the right values;
    init_process_group() works after our context, and ours on its store.
    """
    everyone = list(range(size))
    if torchrun:
        ends = run_processes(size, rounds_and_a_group, torchrun=True)
    else:
        ends = nursery.run(size, rounds_and_a_group, joined=True)
    for rank, found in enumerate(ends):
        table = [None if rank else everyone, everyone, 0]
        assert found == [2000, table, float(sum(everyone)), everyone, everyone, "done"]


def group_after_close() -> list[Any]:
    import torch.distributed as dist

    found: list[Any] = []
    for _ in range(2):
        with DistributedContext.from_torch_distributed(timeout=90) as distributed:
            found.append(distributed.allgather(distributed.rank))
    dist.init_process_group("gloo")  # after close(): whoever is first must not meet a server that is going away
    found.append(group_sum(distributed.rank))
    dist.destroy_process_group()
    return found


def test_two_jobs_at_once_and_a_group_after_closing(nursery: Nursery) -> None:
    """Contract 2.5 Better: two jobs on one host do not collide; a process group may come after close() too."""
    jobs = [nursery.start(2, group_after_close) for _ in range(2)]
    for outcome in [outcome for job in jobs for outcome in job.wait()]:
        assert outcome.exit_code == 0, outcome.output
        assert outcome.returned == [[0, 1], [0, 1], 1.0]


def wait_for_the_killed(victim: int) -> str:
    """Every rank but one waits in a collective; that one is killed."""
    context = DistributedContext.from_torch_distributed(timeout=120)
    context.allgather("all here")
    if context.rank == victim:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(CollectiveError) as caught:
        context.allgather("never")
    text = str(caught.value)
    context.close()
    context.close()
    return text


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_is_named_at_once(victim: int, nursery: Nursery) -> None:
    """Contract 2.5 Better: a rank killed while others wait is named; also if it hosted the store."""
    outcomes = nursery.start(2 + victim, wait_for_the_killed, [victim]).wait()
    assert outcomes[victim].exit_code == -signal.SIGKILL
    for rank, outcome in enumerate(outcomes):
        if rank != victim:
            assert outcome.exit_code == 0, outcome.output
            assert f"rank {victim} (pid " in outcome.returned
            assert "is gone: its process has ended" in outcome.returned  # rather than late
            assert "Traceback" not in outcome.output


def exit_without_closing(port: int) -> Any:
    """The explicit constructor, unequal machines, a forked child, a chief that ends right after its last broadcast."""
    place = places(3, [2, 1])[int(os.environ["RANK"])]
    distributed = DistributedContext(**place, chief_ip="127.0.0.1", pub_port=port, timeout=90)
    assert rounds(distributed, 100) == 200
    assert distributed.allgather_local(distributed.rank) == ([0, 1] if distributed.rank < 2 else [2])
    if distributed.rank == 0:
        fork_and_wait()
    else:
        time.sleep(1.5)
    return distributed.broadcast("last words")


def fork_and_wait() -> None:
    """Have a child, like a loader's worker, that ends in the ordinary way."""
    child = os.fork()
    if child == 0:
        sys.exit(0)  # runs what is registered for exit
    deadline = time.monotonic() + 90
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.02)


def test_a_chief_that_exits_is_still_heard(nursery: Nursery) -> None:
    """C-17: machines of 2 and 1; a forked child leaves the context alone; a chief that ends unclosed is still read."""
    with free_port() as port:
        assert nursery.run(3, exit_without_closing, [port], machines=[2, 1]) == ["last words"] * 3


def fail_the_first_time(distributed: DistributedContext) -> Any:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        distributed.allgather("before the failure")
        if distributed.rank == 1:
            os._exit(3)
        distributed.allgather("never")
    return distributed.allgather(distributed.rank)


@pytest.mark.slow
def test_a_restarted_attempt_does_not_meet_the_one_before() -> None:
    """torchrun keeps its store over a restart; the second attempt starts afresh in it."""
    assert run_processes(2, fail_the_first_time, torchrun=["--max-restarts=1"]) == [[0, 1], [0, 1]]


def test_a_single_process_loads_no_torch() -> None:
    """Decision 8: a context of one process costs no import of torch."""
    script = (
        "import sys; from determined.core import DistributedContext as D; d = D(); d.allgather(1); d.close(); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=90)
