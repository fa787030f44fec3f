"""Ways to start one training on several ranks, those that are refused, and a quiet end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from determined import core, pytorch
from determined.pytorch import Batch
from determined.pytorch.parallel.ddp import distribute
from determined.pytorch.parallel.process_group import process_group
from tests.ddp_trials import FEATURES, elsewhere, result_of
from tests.forks import Nursery
from tests.ranks import free_port, run_processes
from tests.trials import OneWeight, OneWeightTrial


@contextlib.contextmanager
def variables(**changed: str | None) -> Iterator[None]:
    before = dict(os.environ)
    for name, value in changed.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def train_with(distributed: Any = None) -> list[Any]:
    with pytorch.init(seed=3, distributed=distributed) as context:
        trial = OneWeightTrial(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(2), checkpoint_policy="none")
        return [context.distributed.size, trial.weight, type(trial.model).__name__]


def listens_everywhere(distributed: Any = None) -> list[Any]:
    """The addresses on which this process listens for everybody, once it trains."""
    with pytorch.init(seed=3, distributed=distributed):
        lines = psutil.Process().net_connections("tcp")
        return [line.laddr for line in lines if line.status == "LISTEN" and line.laddr.ip in ("0.0.0.0", "::")]


def ways_to_meet(port: int) -> list[Any]:
    elsewhere()
    rank = int(os.environ["RANK"])
    place = {"rank": rank, "size": 2, "local_rank": rank, "local_size": 2, "cross_rank": 0, "cross_size": 1}
    found = [listens_everywhere(core.DistributedContext(**place, pub_port=port))]  # torch meets at MASTER_PORT
    with variables(MASTER_ADDR=None, MASTER_PORT=None):
        found.append(listens_everywhere(core.DistributedContext(**place, pub_port=port)))
    return found


def test_ranks_of_one_machine_meet_on_loopback(nursery: Nursery) -> None:
    """Issue 11, 10: a store that we start for one machine listens on loopback only, the process group's too."""
    with free_port() as port:
        assert nursery.run(2, ways_to_meet, [port]) == [[[], []], [[], []]]


def ways_to_start(port: int, another_port: int) -> dict[str, Any]:
    elsewhere()
    rank = int(os.environ["RANK"])
    place = {"rank": rank, "size": 2, "local_rank": rank, "local_size": 2, "cross_rank": 0, "cross_size": 1}
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"]
    unset = dict.fromkeys([*names, "MASTER_ADDR", "MASTER_PORT"])
    said: dict[str, Any] = {"bare": train_with(), "again": train_with()}
    said["given"] = train_with(core.DistributedContext.from_torch_distributed())
    with variables(**unset):
        said["no launcher"] = train_with(core.DistributedContext(**place, pub_port=port))
        said["rank alone"] = result_of(lambda: _with(train_with, RANK="0"))
        said["size alone"] = result_of(lambda: _with(train_with, WORLD_SIZE="2"))
    with variables(USE_TORCH_DISTRIBUTED="False", USE_HOROVOD="0"):
        said["flags off"] = train_with()
    with variables(USE_HOROVOD="1"):
        said["horovod"] = result_of(train_with)
    torch.distributed.init_process_group("gloo")
    said["own group"] = train_with()
    said["own group stays"] = torch.distributed.is_initialized()
    with variables(**unset):
        said["own group, no launcher"] = result_of(train_with)
        swapped = {**place, "rank": 1 - rank, "local_rank": 1 - rank}
        said["other ranks"] = result_of(lambda: train_with(core.DistributedContext(**swapped, pub_port=another_port)))
    torch.distributed.destroy_process_group()
    return said


def _with(work: Callable[[], Any], **changed: str) -> Any:
    with variables(**changed):
        return work()


def test_ways_to_start(nursery: Nursery) -> None:
    """W2, decision 3: with or without `distributed=`, with a process group of the script's own: one model, two ranks.

    What is half said is refused with one sentence.
    """
    with free_port() as port, free_port() as another_port:
        ranks = nursery.run(2, ways_to_start, [port, another_port])
    ways = ["bare", "again", "given", "no launcher", "flags off", "own group"]
    for said in ranks:
        for way in ways:  # mean of 1, 2 and 3, 4; then of 5, 6 and 7, 8
            assert said[way] == [2, -9.0, "DistributedModel"], way
        assert said["own group stays"]
        assert said["horovod"][0] == "RuntimeError"
        for way, missing in {"rank alone": "WORLD_SIZE", "size alone": "RANK"}.items():
            assert said[way][0] == "LauncherError", way
            assert said[way][1].startswith(f"{missing} is not set. torchrun sets it"), way
        assert said["own group, no launcher"][0] == "RuntimeError"
        assert "RANK and WORLD_SIZE are not set" in said["own group, no launcher"][1]
        assert said["other ranks"][0] == "RuntimeError"
        assert "Leave init_process_group() out" in said["other ranks"][1]


def alone_of_two() -> Any:
    elsewhere()
    return result_of(train_with)


def test_a_rank_that_never_comes(nursery: Nursery) -> None:
    """Decision 3: one process of two does not train by itself; it says who is missing."""
    (said,) = nursery.run(
        1, alone_of_two, env={"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "DET_COLLECTIVE_TIMEOUT": "2"}
    )
    assert said[0] == "CollectiveTimeout"
    assert "rank 1" in said[1]


def bare() -> list[Any]:
    elsewhere()
    return train_with()


@pytest.mark.slow
def test_torchrun_with_a_bare_init() -> None:
    """Decision 3: `torchrun --nproc_per_node 2 train.py` trains one model."""
    assert run_processes(2, bare, bare=True, torchrun=True) == [[2, -9.0, "DistributedModel"]] * 2


kept: list[torch.nn.Module] = []


def threads_of_gloo() -> int:
    """How many threads of this process exchange tensors."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo" in name for name in names)


def keep_the_model(distributed: core.DistributedContext) -> list[Any]:
    inputs = torch.ones(1, FEATURES)
    with process_group(distributed):
        model = distribute(nn.Linear(FEATURES, 1), torch.device("cpu"))
        kept.append(model)
        model(inputs).sum().backward()
        busy = threads_of_gloo()
    left = threads_of_gloo()
    return [busy > 0, left, torch.equal(model(inputs), model.module(inputs)), model(inputs).requires_grad]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells the names of threads")
def test_a_rank_ends_in_peace() -> None:
    """4.8: a rank that has trained exits with 0, though its script keeps the model: torch's threads end before it does.

    One that still held a tensor when the interpreter ended would abort the process. The model stays usable alone.
    """
    assert run_processes(2, keep_the_model) == [[True, 0, True, True]] * 2


def without_group() -> Any:
    elsewhere()
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed) as services:
        context = pytorch.PyTorchTrialContext(services, 1, {}, 2, 0, None, 1, 0, True, False, False)
        return result_of(lambda: context.wrap_model(OneWeight()))


def test_a_model_without_a_process_group(nursery: Nursery) -> None:
    """Two ranks never train two models: without a process group, `wrap_model` refuses."""
    for said in nursery.run(2, without_group):
        assert said[0] == "InvalidExperimentException"
        assert "each would train a model of its own" in said[1]
