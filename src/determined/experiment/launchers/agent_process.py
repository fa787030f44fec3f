"""The agent of one node as a child of whoever holds its lifeline: an actor of a cluster. Knows nothing of the cluster.

The task, with its secrets, reaches the agent on its standard input, which stays open: orders follow on it, and when
this process dies, however it does, the agent reads the end of it and ends everything below. Questions come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from determined.experiment.launchers.base import AGENT, TaskSpec
from determined.launch import _processes


class AgentProcess:
    """Runs the agent of one node to its end, tells it orders, and answers its questions.

    Args:
        find_loss: Returns the order to end the attempt if another node is lost, else an empty one.
    """

    def __init__(self, find_loss: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._find_loss = find_loss
        self._process: asyncio.subprocess.Process | None = None
        self._was_killed = False

    @property
    def is_well(self) -> bool:
        """Whether the agent was not killed: it waits for its task, runs, or has ended by itself."""
        return self._process is None or (self._process.returncode or 0) >= 0

    async def run(self, task: TaskSpec, threads: int, environment: Mapping[str, str]) -> int:
        """Run the part of an attempt that this node has been given, and return the exit code of its agent."""
        assert task.place is not None
        home = os.environ.get("DET_HOME") or task.home
        ids = task.place.slot_ids[task.place.rank]
        told = dataclasses.replace(task, home=home, slots=len(ids), slot_ids=ids, threads=threads)
        process = await self._start(Path(home) / "logs" / "agents.log", environment)
        with contextlib.suppress(OSError):  # Ray has the kernel end its workers first when memory runs out
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("0")
        assert process.stdin is not None
        process.stdin.write(told.to_json().encode() + b"\n")
        await process.stdin.drain()
        if self._was_killed:
            self.kill()
        answering = asyncio.ensure_future(self._answer(process))
        code = await process.wait()
        answering.cancel()
        return code

    async def _start(self, log: Path, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("ab") as file:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", AGENT),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
                cwd="/",
                env=environment,
            )
        return self._process

    async def _answer(self, process: asyncio.subprocess.Process) -> None:
        """Answer the agent, which asks when its ranks have failed, whether that is because a node is lost."""
        assert process.stdout is not None
        while await process.stdout.readline():
            self.tell(await self._find_loss())

    def tell(self, order: dict[str, Any]) -> None:
        """Tell the agent to end the attempt, and why; an empty order only answers a question."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    def kill(self) -> None:
        """Have the agent end all its processes now, and record that if it is the one to record; also before it runs."""
        self._was_killed = True
        if self._process is not None and self._process.returncode is None:
            _processes.send(self._process.pid, signal.SIGQUIT)
            _processes.send(self._process.pid, signal.SIGCONT)  # it may have been stopped
