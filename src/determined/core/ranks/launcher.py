"""What launchers and users set in the environment: the numbers of this process, the port, and how long to wait."""

from __future__ import annotations

import json
import os

from determined.core.ranks.members import NUMBERS, Ranks
from determined.errors import LauncherError

PORT_VARIABLE = "INTER_TRAIN_PROCESS_COMM_PORT_1"
DEFAULT_PORT = 12360


def ranks_from_environment(launcher: str, *names: str) -> Ranks:
    """Return the six numbers from variables of these names, in the order of `NUMBERS`."""
    return Ranks.checked(**{field: number(name, launcher) for field, name in zip(NUMBERS, names, strict=True)})


def torch_ranks() -> Ranks:
    """Return the numbers that torchrun has set. Ray Train sets NODE_RANK, and does not say how many machines there are:
    at least as many as this one's number asks for.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if "GROUP_RANK" in os.environ or "NODE_RANK" not in os.environ:
        return ranks_from_environment("torchrun", *names, "GROUP_RANK", "GROUP_WORLD_SIZE")
    machine = number("NODE_RANK")
    numbers = (*(number(name) for name in names), machine, machine + 1)
    return Ranks.checked(**dict(zip(NUMBERS, numbers, strict=True)))


def variable(name: str, launcher: str = "torchrun") -> str:
    """Return a variable that the launcher sets."""
    value = os.environ.get(name)
    if value is None:
        start = "Start this script with `torchrun --nproc_per_node 2 train.py`"
        use = start if launcher == "torchrun" else "Under torchrun use DistributedContext.from_torch_distributed()"
        raise LauncherError(
            f"{name} is not set. {launcher} sets it for every process it starts. {use}; a single process needs no more "
            "than DistributedContext()."
        )
    return value


def number(name: str, launcher: str = "torchrun") -> int:
    """Return a variable that the launcher sets to a number."""
    value = variable(name, launcher)
    try:
        return int(value)
    except ValueError:
        raise LauncherError(f"{name}={value!r} is not a number; {launcher} sets it to one.") from None


def has_master() -> bool:
    """Whether the launcher has said at which address the ranks meet."""
    return "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ


def agent_hosts_store() -> bool:
    """Whether torchrun's agent, which outlives the ranks, hosts the store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def parse_tf_config(text: str) -> tuple[Ranks, str | None]:
    """Return the numbers and the chief's address from TF_CONFIG; a single process if it names less than two workers."""
    config = json.loads(text) if text.strip() else {}
    workers = config.get("cluster", {}).get("worker", [])
    if len(workers) < 2:
        return Ranks(), None
    task = config.get("task", {})
    if task.get("type") != "worker":
        raise RuntimeError(f"TF_CONFIG gives this process the task {task.get('type')!r}; only 'worker' is supported.")
    index, size = int(task["index"]), len(workers)
    ranks = Ranks.checked(rank=index, size=size, local_rank=0, local_size=1, cross_rank=index, cross_size=size)
    return ranks, workers[0].rpartition(":")[0].strip("[]")


def port() -> int:
    """Return the port at which rank 0 listens if no other is given."""
    return int(os.environ.get(PORT_VARIABLE) or DEFAULT_PORT)


def timeout_seconds() -> float:
    """Return how long ranks wait for each other."""
    return _seconds("DET_COLLECTIVE_TIMEOUT", 600)


def notice_seconds() -> float:
    """Return after how long a rank that keeps others waiting is named; 0 for never."""
    return _seconds("DET_SLOW_RANK_SECONDS", 60)


def _seconds(name: str, default: float) -> float:
    value = os.environ.get(name)
    try:
        return float(value) if value else default
    except ValueError:
        raise ValueError(f"{name} is {value!r}; expected seconds, for example {name}={default:g}.") from None
