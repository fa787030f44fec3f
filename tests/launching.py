"""Attempts for launchers to run, without a controller: rows, tasks, and what became of them.

Also a program, `python -m tests.launching`: starts attempts from a process of its own, which may then be killed.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined import _process
from determined.experiment.launchers.base import TaskSpec
from determined.experiment.launchers.local import LocalLauncher
from determined.store import attempts, experiments, logs, trials
from determined.store.attempts import AttemptRow
from determined.store.control import code, pending
from determined.store.control.pending import PendingEvent
from determined.store.database.connection import Store, open_store
from determined.store.messages import LogEntry

PATIENCE_SECONDS = 120.0


def archive(files: Mapping[str, str]) -> bytes:
    """Return a code snapshot with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


class Bench:
    """Makes attempts in a store and finds out what became of them."""

    def __init__(self, store: Store, home: Path, place: str) -> None:
        self.store, self.home, self.place = store, home, place

    def task(
        self,
        files: Mapping[str, str],
        *,
        slots: int = 1,
        slot_kind: str = "cpu",
        task: Mapping[str, Any] = {},
        **config: Any,
    ) -> TaskSpec:
        """Return a new attempt of a new trial that runs `python3 train.py`, or what `entrypoint` says."""
        storage = {"type": "directory", "container_path": str(self.home / "checkpoints")}
        whole = {"entrypoint": "python3 train.py", "checkpoint_storage": storage, **config}
        with self.store.write() as conn:
            snapshot = code.add(conn, archive(files))
            experiment_id = experiments.create(conn, name="launched", config=whole, owner="ada", state="ACTIVE")
            hparams = {"lr": 0.1}
            trial_id = trials.create(conn, experiment_id, hparams=hparams, state="ACTIVE", seed=7)
            ids = [str(number) for number in range(slots)]
            attempt = attempts.begin(conn, trial_id, state="ASSIGNED", slots=slots, slot_ids=ids)
        values: dict[str, Any] = {
            "store": self.place,
            "home": str(self.home),
            "store_id": self.store.id,
            "allocation_id": attempt.allocation_id,
            "task_id": attempt.task_id,
            "experiment_id": experiment_id,
            "trial_id": trial_id,
            "attempt": attempt.attempt,
            "trial_seed": 7,
            "hparams": hparams,
            "config": whole,
            "slots": slots,
            "slot_kind": slot_kind,
            "slot_ids": ids,
            "threads": 2,
            "code_snapshot_id": snapshot.id,
        }
        return TaskSpec(**{**values, **task})

    def row(self, task: TaskSpec) -> AttemptRow:
        with self.store.read() as conn:
            return attempts.get(conn, task.allocation_id)

    def end(self, task: TaskSpec) -> AttemptRow:
        """Return the attempt once its end is recorded."""
        until(lambda: self.row(task).state == "TERMINATED", lambda: f"{task!r} has not ended: {self.text(task)}")
        return self.row(task)

    def lines(self, task: TaskSpec, source: str | None = "trial") -> list[LogEntry]:
        with self.store.read() as conn:
            return [row for row in logs.read(conn, task.trial_id) if source in (None, row.source)]

    def text(self, task: TaskSpec, source: str | None = None) -> str:
        return "\n".join(row.text for row in self.lines(task, source))

    def printed(self, task: TaskSpec, word: str) -> None:
        """Wait until a line with this word has arrived."""
        until(lambda: word in self.text(task), lambda: f"{word!r} was not printed: {self.text(task)}")

    def events(self, task: TaskSpec) -> list[PendingEvent]:
        with self.store.read() as conn:
            return pending.read(conn, experiment_id=task.experiment_id)

    def processes(self, task: TaskSpec) -> list[psutil.Process]:
        """Return the agent of an attempt and all processes below it."""
        agent = psutil.Process(self.row(task).pid)
        return [agent, *agent.children(recursive=True)]


@pytest.fixture
def bench(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Attempts in a store in a file, with no controller."""
    monkeypatch.setenv("DET_CONTROLLER", "off")
    place = home / "determined.db"
    store = open_store(place)
    yield Bench(store, home, str(place))
    store.close()


def until(is_so: Callable[[], bool], otherwise: Callable[[], str], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.02)


def all_gone(processes: list[psutil.Process], seconds: float = 30.0) -> bool:
    """Whether all of them end soon; one that has ended counts, also before anybody has waited for it."""
    deadline = time.monotonic() + seconds
    while any(_process.is_alive(process.pid, process.create_time()) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Starter:
    """A process that starts attempts."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, task: TaskSpec) -> None:
        if self._process is None:
            command = [sys.executable, "-m", "tests.launching"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[1])
        assert self._process.stdin is not None
        self._process.stdin.write(task.to_json().encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class StarterLauncher(LocalLauncher):
    """A launcher whose attempts are started by another process, as by an earlier controller."""

    def __init__(self, store: Store, home: Path, starter: Starter) -> None:
        super().__init__(store, home)
        self._starter = starter

    def start(self, task: TaskSpec) -> None:
        self._starter.start(task)

    def abandon(self) -> None:
        """Kill the process that starts attempts."""
        self._starter.kill()


class SpawningLauncher(LocalLauncher):
    """Starts each agent in a new interpreter, as where a process cannot be forked."""

    def abandon(self) -> None:
        """Agents are processes of their own: nothing to give up."""


def main() -> None:
    """Start the attempts that the standard input names, each with a launcher of its own, until we are killed."""
    launchers = []
    while line := sys.stdin.buffer.raw.readline():  # type: ignore[attr-defined]
        task = TaskSpec(**json.loads(line))
        launchers.append(LocalLauncher(open_store(task.store), task.home))
        launchers[-1].start(task)
        for launcher in launchers:
            launcher.wait(0)


if __name__ == "__main__":
    os.environ["DET_CONTROLLER"] = "off"
    main()
