"""Ranks as real processes, without waiting seconds for each to import torch: they are forked from one that has.

def test_something(nursery):                              # one per session (and per xdist worker)
    ends = nursery.run(2, body, [argument])               # like `tests.ranks.run_processes(bare=True)`
    job = nursery.start(2, body, [argument])              # ... or send signals to job.pids, then
    outcomes = job.wait(timeout=30)
    done = nursery.run_script(path, "--epochs", "3")      # like subprocess.run([sys.executable, path, "--epochs", "3"])
    job = nursery.start_script(path, "--epochs", "3")     # like subprocess.Popen, with stderr and stdout in one
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from determined.core import DistributedContext
from tests.ranks import ROOT, Outcome, _outcome, _secret_of, _torch_variables, free_port, places


class Job:
    """Ranks at work.

    Args:
        pids: Their processes, by rank.
        directory: Where they write what they say and return.
        ended: Exit codes by pid, filled in while somebody reads from the nursery.
        look: Reads from the nursery for so many seconds.
    """

    def __init__(self, pids: list[int], directory: Path, ended: dict[int, int], look: Callable[[float], None]) -> None:
        self.pids, self.directory = pids, directory
        self._ended, self._look = ended, look

    def output(self, rank: int) -> str:
        return (self.directory / f"{rank}.log").read_text(errors="replace")

    def wait_for(self, text: str, rank: int = 0, seconds: float = 120) -> None:
        """Until this rank has said it."""
        deadline = time.monotonic() + seconds
        while text not in self.output(rank):
            assert self.pids[rank] not in self._ended, self.output(rank)
            assert time.monotonic() < deadline, f"{text!r} was not said: {self.output(rank)}"
            self._look(0.01)

    def wait(self, timeout: float = 120) -> list[Outcome]:
        """How each ended; those that have not by then are killed."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not all(pid in self._ended for pid in self.pids):
            self._look(0.02)
        self.kill()
        return [
            _outcome(self.directory / f"{rank}.json", self._ended[pid], self.output(rank))
            for rank, pid in enumerate(self.pids)
        ]

    def kill(self) -> None:
        while left := [pid for pid in self.pids if pid not in self._ended]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):  # one just forked leads no group yet
                    os.killpg(pid, signal.SIGKILL)
            self._look(0.02)


class Nursery:
    """A process that has imported torch, and forks ranks."""

    def __enter__(self) -> Nursery:
        self._files = tempfile.TemporaryDirectory(prefix="forks-")
        self._stack = contextlib.ExitStack()
        self._jobs = 0
        self._ended: dict[int, int] = {}
        self._pids: list[int] = []
        self._said = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._stack.close()
        self._files.cleanup()

    def start(
        self,
        size: int,
        body: Callable[..., Any],
        arguments: Sequence[Any] = (),
        env: Mapping[str, str] | None = None,
        *,
        machines: Sequence[int] | None = None,
        joined: bool = False,
    ) -> Job:
        """Have `size` ranks run `body(*arguments)`, which is at the top of a module; arguments go through JSON.

        If they are `joined`, it is `body(distributed, *arguments)`. `machines` has their sizes: one, unless told.
        """
        port = self._stack.enter_context(free_port())
        common = {**os.environ, **_secret_of(machines)}
        environments = [{**common, **_torch_variables(place, port), **(env or {})} for place in places(size, machines)]
        return self._start(body, arguments, environments, joined)

    def _start(
        self, body: Callable[..., Any], arguments: Sequence[Any], environments: list[dict[str, str]], joined: bool
    ) -> Job:
        self._jobs += 1
        directory = Path(self._files.name) / str(self._jobs)
        directory.mkdir()
        self._pids = []
        for rank, variables in enumerate(environments):
            (directory / f"{rank}.log").touch()
            order = {
                "call": [body.__module__, body.__qualname__, list(arguments)],
                "env": {name: value for name, value in variables.items() if value != ""} | {"OMP_NUM_THREADS": "1"},
                "directory": str(directory),
                "rank": rank,
                "joined": joined,
            }
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        while len(self._pids) < len(environments):
            self._look(30)
        return Job(self._pids, directory, self._ended, self._look)

    def run_script(
        self, path: Path, *arguments: str, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """What `python path arguments` does, as far as the script can tell; in its own directory, unless told."""
        errors = Path(self._files.name) / f"{self._jobs}.stderr"
        (outcome,) = self.start_script(path, *arguments, cwd=cwd, errors=errors, **env).wait(300)
        return subprocess.CompletedProcess(
            [sys.executable, str(path), *arguments], outcome.exit_code, outcome.output, errors.read_text()
        )

    def start_script(
        self, path: Path, *arguments: str, cwd: Path | None = None, errors: Path | None = None, **env: str
    ) -> Job:
        """The same, without waiting for its end; what it says to stderr goes to a file of its own, if told."""
        words = [str(errors or ""), str(cwd or path.parent), str(path), *arguments]
        return self._start(be_a_script, words, [{**os.environ, **env}], joined=False)

    def _look(self, seconds: float) -> None:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()  # no buffer, or what it holds would not be selected
        if not select.select([out], [], [], seconds)[0]:
            return
        read = os.read(out, 1 << 16)
        assert read, "the nursery has ended"
        *lines, self._said = (self._said + read).split(b"\n")
        for word, pid, *code in (line.decode().split() for line in lines):
            if word == "born":
                self._ended.pop(int(pid), None)  # a number that was used before
                self._pids.append(int(pid))
            else:
                self._ended[int(pid)] = int(code[0])

    def run(self, size: int, body: Callable[..., Any], arguments: Sequence[Any] = (), **options: Any) -> list[Any]:
        """What each rank returned. All of them must succeed."""
        outcomes = self.start(size, body, arguments, **options).wait()
        for rank, outcome in enumerate(outcomes):
            assert outcome.exit_code == 0, f"rank {rank} ended with {outcome.exit_code}:\n{outcome.output}"
        return [outcome.returned for outcome in outcomes]


def main() -> None:
    """The nursery itself: reads orders, forks, and says who was born and who has ended."""
    import psutil  # noqa: F401  # like the others: so that no rank has to
    import pytest  # noqa: F401
    import sqlalchemy.dialects.sqlite  # noqa: F401
    import torch
    import torch._dynamo

    import determined.core.recording.recovery
    import determined.core.recording.run_rows
    import determined.pytorch._init
    import determined.pytorch._trainer
    import determined.store.database.connection  # noqa: F401
    import tests.ddp_trials  # noqa: F401

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    gc.freeze()  # all this lives until a rank ends: looking for garbage in it would take most of a rank's time
    told = os.fdopen(os.dup(1), "wb", buffering=0)  # one write per line
    waiting = b""
    while True:
        if select.select([0], [], [], 0.01)[0]:
            read = os.read(0, 1 << 16)
            if not read:
                return
            waiting += read
            *orders, waiting = waiting.split(b"\n")
            for order in orders:
                pid = os.fork()
                if pid == 0:
                    be_a_rank(**json.loads(order))
                told.write(f"born {pid}\n".encode())
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                told.write(f"ended {pid} {os.waitstatus_to_exitcode(status)}\n".encode())


def be_a_rank(call: list[Any], env: dict[str, str], directory: str, rank: int, joined: bool) -> None:
    """Never returns."""
    os.setsid()
    log = os.open(f"{directory}/{rank}.log", os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(env)
    import importlib

    module, name, arguments = call
    try:
        body = getattr(importlib.import_module(module), name)
        with contextlib.ExitStack() as stack:
            if joined:
                arguments.insert(0, stack.enter_context(DistributedContext.from_torch_distributed(timeout=90)))
            said = {"returned": body(*arguments)}
    except BaseException as error:
        said = {"error": type(error).__name__, "text": str(error)}
        Path(f"{directory}/{rank}.json").write_text(json.dumps(said))
        raise
    Path(f"{directory}/{rank}.json").write_text(json.dumps(said))
    sys.exit(0)


def be_a_script(errors: str, cwd: str, path: str, *arguments: str) -> None:
    """Run a script in this process, with a place of its own for what it says to stderr, unless that is empty."""
    if errors:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.chdir(cwd)
    sys.path[0] = str(Path(path).parent)
    sys.argv[:] = [path, *arguments]
    sys.orig_argv[:] = [sys.executable, *sys.argv]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main()
