"""A context of one process, and what launchers say about the ranks of many."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from determined.core import DistributedContext, DummyDistributedContext
from determined.core.ranks.launcher import parse_tf_config, torch_ranks
from determined.core.ranks.members import Ranks
from determined.errors import LauncherError
from tests.ranks import each_in_a_thread, join_in_memory, places

TORCH = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
}
DEEPSPEED = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_SIZE": "1",
    "CROSS_RANK": "0",
    "CROSS_SIZE": "1",
}


# One process.


@pytest.mark.parametrize("make_context", [DistributedContext, DummyDistributedContext])
def test_one_process_needs_nobody(make_context: Callable[[], DistributedContext]) -> None:
    """C-11: in one process every collective returns at once, what went in."""
    distributed = make_context()
    assert distributed.gather(1) == distributed.allgather(1) == [1]
    assert distributed.gather_local(1) == distributed.allgather_local(1) == [1]
    assert distributed.broadcast(1) == distributed.broadcast_local(1) == 1
    assert distributed.broadcast_local() is None
    assert distributed.run_on_chief(lambda: 2) == 2
    distributed.agree(None)
    with pytest.raises(KeyError, match="mine"):
        distributed.agree(KeyError("mine"))
    assert (distributed.get_rank(), distributed.get_local_rank()) == (0, 0)
    assert (distributed.get_size(), distributed.get_num_agents()) == (1, 1)
    assert (distributed.local_size, distributed.cross_rank, distributed.cross_size) == (1, 0, 1)
    assert distributed.is_chief
    assert distributed.is_local_chief
    distributed.close()
    distributed.close()


def test_all_numbers_or_none() -> None:
    """C-13: six Nones are a single process; five numbers and a None are an error that names the missing one."""
    names = list(places(1)[0])
    assert DistributedContext(**dict.fromkeys(names)).size == 1
    for name in names:
        with pytest.raises(ValueError, match=rf"^{name} missing"):
            DistributedContext(**{**places(1)[0], name: None})
    with pytest.raises(ValueError, match="rank=2 must be at least 0 and below size=2"):
        DistributedContext(**{**places(2)[0], "rank": 2})
    with pytest.raises(ValueError, match="local_rank=-1"):
        DistributedContext(**{**places(2)[0], "local_rank": -1})


def test_arguments_have_names() -> None:
    """Contract 2.2: positional arguments are a TypeError."""
    with pytest.raises(TypeError):
        DistributedContext(0, 1, 0, 1, 0, 1)  # type: ignore[misc]


def test_several_machines_need_the_address_of_the_chief() -> None:
    """C-14: two machines without a chief ip are an AssertionError that says what to pass."""
    with pytest.raises(AssertionError, match="chief_ip="):
        DistributedContext(**places(2, [1, 1])[0])


# Launchers.


def test_torchrun_says_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """C-15: with the torch variables of one process the size is 1; a missing one is a KeyError that names torchrun."""
    for name, value in TORCH.items():
        monkeypatch.setenv(name, value)
    assert DistributedContext.from_torch_distributed().size == 1
    for name in TORCH:
        with monkeypatch.context() as patch, pytest.raises(KeyError, match=f"^{name} is not set.*torchrun") as caught:
            patch.delenv(name)
            DistributedContext.from_torch_distributed()
        assert isinstance(caught.value, LauncherError)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(LauncherError, match="MASTER_ADDR"):
        DistributedContext.from_torch_distributed()
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(LauncherError, match="WORLD_SIZE='two' is not a number"):
        DistributedContext.from_torch_distributed()


def test_ray_train_says_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Platform 9.4: Ray Train says NODE_RANK, not GROUP_RANK; how many machines there are, the ranks find out."""
    for name, value in TORCH.items():
        monkeypatch.setenv(name.replace("GROUP", "NODE"), value)
    monkeypatch.delenv("NODE_WORLD_SIZE")
    assert DistributedContext.from_torch_distributed().size == 1
    told = {"RANK": "2", "WORLD_SIZE": "3", "NODE_RANK": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert torch_ranks() == Ranks(2, 3, 0, 1, 1, 2)

    memory, machines = torch.distributed.HashStore(), [2, 1]
    monkeypatch.setenv("DET_JOB_SECRET", "the same on every machine")

    def machines_seen_by(place: dict[str, int]) -> int:
        with join_in_memory(memory, {**place, "cross_size": place["cross_rank"] + 1}, timeout=90) as distributed:
            return distributed.allgather(distributed.cross_size)[0]

    ranks = [lambda place=place: machines_seen_by(place) for place in places(3, machines)]
    assert each_in_a_thread(ranks, patience=100) == [2, 2, 2]


def test_deepspeed_says_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.3: DeepSpeed's variables; a missing one is a KeyError that names its launcher."""
    for name, value in DEEPSPEED.items():
        monkeypatch.setenv(name, value)
    assert DistributedContext.from_deepspeed().size == 1
    monkeypatch.delenv("CROSS_RANK")
    with pytest.raises(KeyError, match=r"CROSS_RANK is not set.*DeepSpeed"):
        DistributedContext.from_deepspeed()


def test_tf_config_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.3: workers of TF_CONFIG become ranks, other tasks are refused; without tensorflow we say so."""
    cluster = {"cluster": {"worker": ["a:1", "[::1]:2"]}, "task": {"type": "worker", "index": 1}}
    ranks, chief_ip = parse_tf_config(json.dumps(cluster))
    assert (ranks.rank, ranks.size, ranks.local_size, ranks.cross_rank, chief_ip) == (1, 2, 1, 1, "a")
    for text in ("", "{}", json.dumps({"cluster": {"worker": ["a:1"]}})):
        assert parse_tf_config(text) == (Ranks(), None)
    with pytest.raises(RuntimeError, match="'ps'"):
        parse_tf_config(json.dumps({**cluster, "task": {"type": "ps", "index": 0}}))
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="from_torch_distributed"):
        DistributedContext.from_tf_config()
