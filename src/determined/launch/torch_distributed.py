"""One process per slot: `python -m determined.launch.torch_distributed --nproc_per_node 2 -- python train.py`.

On a cluster the slots are those of the task; elsewhere they are `--nproc_per_node`, the GPUs, or one. This file builds
the command for torch.distributed.run; `_agent` runs it, and each worker runs inside `wrap_rank`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from determined import _info, errors
from determined.launch import _agent, _arguments

C10D_PORT = "29400"
HARNESS = "determined.pytorch._harness"
LOOPBACK_AGENT = "determined.launch._on_loopback"
MISUSED = 2

parse_args = _arguments.parse_args


class Misuse(errors.DeterminedError):
    """What the command line asks for cannot be started. The message is shown to the user."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A command for torch's launcher, and the environment of it and the workers."""

    command: list[str]
    environment: dict[str, str]
    keep_torch_logs: bool


@dataclasses.dataclass(frozen=True)
class Machines:
    """The machines of this run, by rank, and the rank and slots of this one."""

    addresses: Sequence[str]
    rank: int
    slots: int
    are_several: bool


def main(args: Sequence[str] | None = None, info: _info.ClusterInfo | None = None) -> int:
    """Start the workers, wait for them, and return the exit code. `info` describes the task on a cluster."""
    arguments = parse_args(sys.argv[1:] if args is None else args)
    try:
        planned = plan(arguments, info or _info.get_cluster_info(), os.environ)
    except Misuse as problem:
        sys.stderr.write(f"{_arguments.PROG}: {problem}\n")
        return MISUSED
    return _agent.run(planned.command, planned.environment, planned.keep_torch_logs)


def plan(
    arguments: _arguments.Arguments,
    info: _info.ClusterInfo | None,
    environment: Mapping[str, str],
    count_gpus: Callable[[], int] | None = None,
) -> Plan:
    """Build the command. Options that were given come after the automatic ones, so they win."""
    given = arguments.torch_options
    if given and not given[0].startswith("-"):
        raise Misuse(
            f"{given[0]!r} stands before --, where only options for torch.distributed.run can stand, "
            "and there is no program or file of that name either."
        )
    worker = worker_command(arguments)
    if arguments.trial is not None and info is None:
        raise Misuse(
            f"--trial {arguments.trial} is trained as the config of its experiment says, and this process belongs to "
            "none. Write a script with pytorch.init() and Trainer.fit(), and run it as: ... -- python train.py"
        )
    machines = _machines(arguments, info, count_gpus or _count_gpus)
    if arguments.torch_option("nproc-per-node") == "0":
        given = [*given, "--nproc_per_node", "1"]

    port = environment.get("C10D_PORT") or (C10D_PORT if machines.are_several else str(_free_port()))
    automatic = {
        "--nnodes": len(machines.addresses),
        "--nproc_per_node": machines.slots,
        "--node_rank": machines.rank,
        "--max_restarts": 0,
        "--master_addr": "localhost" if len(machines.addresses) == 1 else machines.addresses[0],
        "--master_port": port,
    }
    options = [word for name, value in automatic.items() for word in (name, str(value))]
    wrapped = ["--module", "determined.launch.wrap_rank", "RANK", *worker]
    own_meeting = not machines.are_several and not arguments.names_any(_arguments.MEETING_OPTIONS)
    agent = [LOOPBACK_AGENT, port] if own_meeting else ["torch.distributed.run"]

    added = {"USE_TORCH_DISTRIBUTED": "True", "DET_CHIEF_IP": machines.addresses[0]}
    # Ranks sign their messages with this secret. Several machines need the same one, so we cannot draw it here.
    if not machines.are_several and not environment.get("DET_JOB_SECRET"):
        added["DET_JOB_SECRET"] = secrets.token_hex(32)
    return Plan(
        command=[sys.executable, "-m", *agent, *options, *given, *wrapped],
        environment={**environment, **added},
        keep_torch_logs=any(
            arguments.torch_option(name) or environment.get(variable)
            for name, variable in {"log-dir": "PET_LOG_DIR", "redirects": "PET_REDIRECTS", "tee": "PET_TEE"}.items()
        ),
    )


def worker_command(arguments: _arguments.Arguments) -> list[str]:
    """Return the command that each worker runs."""
    if arguments.trial is not None:
        return [sys.executable, "-m", HARNESS, arguments.trial]
    program = arguments.script[0]
    if shutil.which(program) is not None:
        return arguments.script
    if program.endswith(".py") and Path(program).is_file():  # as torchrun takes it
        return [sys.executable, *arguments.script]
    raise Misuse(f"cannot run {program!r}: there is no such program. Check the name, or the directory you are in.")


def _machines(
    arguments: _arguments.Arguments, info: _info.ClusterInfo | None, count_gpus: Callable[[], int]
) -> Machines:
    nodes = _largest(arguments.torch_option("nnodes"))
    if info is not None:
        # A task without slots, for example on a machine without GPUs, still gets one process.
        slots = max(1, info.container_slot_counts[info.container_rank])
        are_several = max(nodes, len(info.container_addrs)) > 1
        return Machines(info.container_addrs, info.container_rank, slots, are_several)

    endpoint = arguments.torch_option("rdzv-endpoint")
    meeting = arguments.torch_option("master-addr") or (endpoint and re.sub(r":\d+$", "", endpoint).strip("[]"))
    if nodes > 1 and not meeting:
        raise Misuse(
            f"--nnodes {nodes} needs a machine where all can meet. Add --master_addr with the address of the first "
            "machine, and --node_rank with the number of this one, from 0."
        )
    slots = 1 if arguments.torch_option("nproc-per-node") else max(1, count_gpus())
    return Machines([meeting or "127.0.0.1"], 0, slots, nodes > 1)


def _largest(nnodes: str | None) -> int:
    """Return the largest number of machines that `2` or `1:4` allows; torch refuses what we cannot parse."""
    last = (nnodes or "1").rpartition(":")[2]
    return int(last) if last.isdecimal() else 1


def _free_port() -> int:
    if socket.has_dualstack_ipv6():
        server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        server = socket.create_server(("", 0))
    with server:
        return int(server.getsockname()[1])


def _count_gpus() -> int:
    import torch

    return torch.accelerator.device_count()


if __name__ == "__main__":
    sys.exit(main())
