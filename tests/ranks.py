"""Run a function on several ranks: as threads of this process, or as real processes under a launcher's variables.

assert run_threads(2, lambda distributed: distributed.allgather(distributed.rank)) == [[0, 1], [0, 1]]
assert run_processes(2, body) == [...]     # `body` is a function at the top of a test module; results go through JSON
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from determined.core import DistributedContext
from determined.core.ranks.connection import Connection
from determined.core.ranks.members import Ranks
from determined.errors import CollectiveError

ROOT = Path(__file__).resolve().parents[1]
Body = Callable[[DistributedContext], Any]


@contextmanager
def free_port() -> Iterator[int]:
    """A port that nobody else is given meanwhile: bound, but not listened on, so that rank 0 can still take it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def places(size: int, machines: Sequence[int] | None = None) -> list[dict[str, int]]:
    """The six numbers of every rank, for machines of these sizes (one machine unless told)."""
    machines = machines or [size]
    assert sum(machines) == size
    found = [(cross, local, count) for cross, count in enumerate(machines) for local in range(count)]
    return [
        {
            "rank": rank,
            "size": size,
            "local_rank": local,
            "local_size": count,
            "cross_rank": cross,
            "cross_size": len(machines),
        }
        for rank, (cross, local, count) in enumerate(found)
    ]


def _secret_of(machines: Sequence[int] | None) -> dict[str, str]:
    """What ranks on several machines have to be given; on one they have a key file."""
    return {"DET_JOB_SECRET": "the same on every machine"} if machines and len(machines) > 1 else {}


# Threads.


def run_threads(size: int, body: Body, **options: Any) -> list[Any]:
    """What `body(distributed)` returned on each rank; raises what one raised, a cause rather than its consequence."""
    outcomes = try_threads(size, body, **options)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, CollectiveError)):
        raise error
    return outcomes


def try_threads(
    size: int, body: Body, *, machines: Sequence[int] | None = None, timeout: float = 90, over_tcp: bool = False
) -> list[Any]:
    """What `body(distributed)` returned or raised on each rank. Each context is closed as its `body` ends.

    Ranks meet in memory, so no port is needed; `over_tcp`, at a port of this machine, where the store ends with rank 0.
    """
    import torch.distributed as dist

    memory = dist.HashStore()
    with ExitStack() as stack:
        port = stack.enter_context(free_port()) if over_tcp else None
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in _secret_of(machines).items():
            patch.setenv(name, value)

        def one(rank: int) -> Any:
            place = places(size, machines)[rank]
            if over_tcp:
                context = DistributedContext(**place, chief_ip="127.0.0.1", pub_port=port, timeout=timeout)
            else:
                context = join_in_memory(memory, place, timeout)
            with context as distributed:
                return body(distributed)

        return each_in_a_thread([lambda rank=rank: one(rank) for rank in range(size)], timeout + 15)


class InMemory(Connection):
    """A store in memory. Its calls are short: unless they let other threads run, a rank that looks again stops them."""

    def _call(self, method: str, *args: Any) -> Any:
        time.sleep(0)
        return super()._call(method, *args)


def join_in_memory(memory: Any, place: Mapping[str, int], timeout: float) -> DistributedContext:
    """A rank that meets the others in this `torch.distributed.HashStore`."""
    context = DistributedContext.__new__(DistributedContext)
    return context._join(Ranks(**place), lambda deadline: InMemory(memory, "a store in memory"), timeout)


def each_in_a_thread(works: Sequence[Callable[[], Any]], patience: float) -> list[Any]:
    """What each returned or raised, all run at the same time."""
    outcomes: list[Any] = [TimeoutError(f"still running after {patience} s")] * len(works)

    def run(index: int) -> None:
        try:
            outcomes[index] = works[index]()
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(i,), name=f"rank-{i}", daemon=True) for i in range(len(works))]
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return outcomes


# Processes.


@dataclass(frozen=True)
class Outcome:
    """How one process ended."""

    exit_code: int
    returned: Any
    error: str | None  # the name of the type
    text: str  # of the error
    output: str


def run_processes(size: int, body: Callable[..., Any], **options: Any) -> list[Any]:
    """What `body(distributed)` returned on each rank, as JSON has it. All of them must succeed."""
    outcomes = try_processes(size, body, **options)
    for rank, outcome in enumerate(outcomes):
        assert outcome.exit_code == 0, f"rank {rank} ended with {outcome.exit_code}:\n{outcome.output}"
    return [outcome.returned for outcome in outcomes]


def try_processes(
    size: int,
    body: Callable[..., Any],
    *,
    machines: Sequence[int] | None = None,
    env: Mapping[str, str] | None = None,
    env_of_rank: Mapping[int, Mapping[str, str]] | None = None,
    torchrun: bool | Sequence[str] = False,
    bare: bool = False,
    arguments: Sequence[Any] = (),
    timeout: float = 180,
) -> list[Outcome]:
    """How each of `size` processes ended that ran `body(distributed, *arguments)`.

    Args:
        size: Number of ranks.
        body: A function at the top of an importable module.
        machines: Their sizes; one machine unless told.
        env: More variables for all of them.
        env_of_rank: More variables for some of them.
        torchrun: Start them with torch's launcher, perhaps with more options, instead of with its variables.
        bare: Call `body(*arguments)`, which makes its own context.
        arguments: More arguments, which go through JSON.
        timeout: Seconds after which they are killed.
    """
    with ExitStack() as stack:
        results = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ranks-")))
        command = [sys.executable, "-m", "tests.ranks"]
        call = json.dumps([body.__module__, body.__qualname__, bare, list(arguments)])
        common = {
            **os.environ,
            **_secret_of(machines),
            **(env or {}),
            "RANKS_RESULTS": str(results),
            "RANKS_CALL": call,
            "OMP_NUM_THREADS": "1",
        }
        if torchrun:
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
            options = [] if torchrun is True else torchrun
            command = [*launcher, *options, *command[1:]]
            variables = [common]
        else:
            port = stack.enter_context(free_port())
            variables = [
                {**common, **_torch_variables(place, port), **(env_of_rank or {}).get(place["rank"], {})}
                for place in places(size, machines)
            ]
        ended = _run_all(command, variables, timeout)
        if torchrun:
            ended = ended * size
        return [_outcome(results / f"{rank}.json", *ended[rank]) for rank in range(size)]


def _torch_variables(place: Mapping[str, int], port: int) -> dict[str, str]:
    names = {
        "RANK": "rank",
        "WORLD_SIZE": "size",
        "LOCAL_RANK": "local_rank",
        "LOCAL_WORLD_SIZE": "local_size",
        "GROUP_RANK": "cross_rank",
        "GROUP_WORLD_SIZE": "cross_size",
    }
    found = {name: str(place[field]) for name, field in names.items()}
    return {**found, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _run_all(command: list[str], variables: list[dict[str, str]], timeout: float) -> list[tuple[int, str]]:
    running, logs = [], []
    try:
        for env in variables:
            log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed below
            logs.append(log)
            running.append(subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True))
        deadline = time.monotonic() + timeout
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        return [(_end(process), _text(log)) for process, log in zip(running, logs, strict=True)]
    finally:
        for process in running:
            _end(process)
        for log in logs:
            log.close()


def _end(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, after a kill of it and its children if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _text(log: Any) -> str:
    log.seek(0)
    return str(log.read())


def _outcome(path: Path, exit_code: int, output: str) -> Outcome:
    said = json.loads(path.read_text()) if path.exists() else {}
    return Outcome(exit_code, said.get("returned"), said.get("error"), said.get("text", ""), output)


def main() -> None:
    """One rank, started by `try_processes`."""
    module, name, bare, arguments = json.loads(os.environ["RANKS_CALL"])
    body = getattr(importlib.import_module(module), name)
    result = Path(os.environ["RANKS_RESULTS"]) / f"{os.environ['RANK']}.json"
    try:
        if bare:
            said = {"returned": body(*arguments)}
        else:
            with DistributedContext.from_torch_distributed(timeout=90) as distributed:
                said = {"returned": body(distributed, *arguments)}
    except BaseException as error:
        result.write_text(json.dumps({"error": type(error).__name__, "text": str(error)}))
        raise
    result.write_text(json.dumps(said))


if __name__ == "__main__":
    main()
