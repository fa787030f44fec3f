"""Attempts on this machine, by agents that are forked and by agents in interpreters of their own."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.experiment.attempt import working_directory
from determined.experiment.attempt.agent import work_name
from determined.experiment.launchers import forking
from determined.experiment.launchers.local import LocalLauncher
from determined.store.database.connection import open_store
from tests.contracts.launcher import TREE, LauncherContract
from tests.launching import Bench, SpawningLauncher, Starter, StarterLauncher, all_gone, until
from tests.stores import PostgresServer


@pytest.fixture
def starter() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    starter.kill()


class TestForkedAgents(LauncherContract):
    @pytest.fixture
    def launcher(self, bench: Bench, starter: Starter) -> Iterator[Any]:
        launcher = StarterLauncher(bench.store, bench.home, starter)
        yield launcher
        launcher.close()


class TestSpawnedAgents:
    """Where a process cannot be forked, an agent has an interpreter of its own."""

    @pytest.fixture
    def launcher(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        monkeypatch.setattr(forking, "is_safe", lambda: False)
        launcher = SpawningLauncher(bench.store, bench.home)
        yield launcher
        while launcher._children:
            launcher.wait(1)
        launcher.close()

    test_reports_the_exit_code = LauncherContract.test_reports_the_exit_code
    test_output_of_all_processes_arrives = LauncherContract.test_output_of_all_processes_arrives
    test_environment_and_cluster_info = LauncherContract.test_environment_and_cluster_info
    test_kill_ends_the_whole_tree = LauncherContract.test_kill_ends_the_whole_tree
    test_an_ended_attempt_starts_nothing = LauncherContract.test_an_ended_attempt_starts_nothing


def test_a_locked_store_does_not_hold_up_a_trial(bench: Bench, starter: Starter, tmp_path: Path) -> None:
    """While the store is locked a trial prints as much as it likes and ends; then all of it is stored, in order."""
    go, done = tmp_path / "go", tmp_path / "done"
    script = f"""
import os, time
print("ready", flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.02)
for number in range(30_000):
    print("line", number)
open({str(done)!r}, "w").close()
"""
    task = bench.task({"train.py": script})
    starter.start(task)
    bench.printed(task, "ready")
    with contextlib.closing(sqlite3.connect(bench.place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        go.touch()
        until(done.exists, lambda: "the trial waits for the store")
        other.execute("ROLLBACK")
    assert bench.end(task).exit_code == 0
    assert bench.text(task, "trial").splitlines() == ["ready", *(f"line {number}" for number in range(30_000))]


def test_nothing_is_left_when_agent_and_guard_are_killed(bench: Bench, starter: Starter) -> None:
    """Processes that outlived both agent and guard are found by their environment, and killed; not those of an attempt
    of the same name in another store, which a search with the same seed has.
    """
    task = bench.task({"train.py": TREE})
    starter.start(task)
    bench.printed(task, "grandchild is there")
    agent, guard, *below = bench.processes(task)
    assert guard.name() == "det-guard"
    guard.suspend()  # it must not see the agent die
    agent.kill()
    guard.kill()
    launcher = LocalLauncher(bench.store, bench.home)
    until(lambda: not launcher.is_alive(bench.row(task)), lambda: "the agent is still there")
    named = {"DET_ALLOCATION_ID": task.allocation_id, "DET_CLUSTER_ID": "another"}
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, **named}) as of_another_store:
        launcher.kill(bench.row(task))
        launcher.close()
        assert all_gone(below)
        assert of_another_store.poll() is None
        of_another_store.kill()


def test_only_directories_of_the_dead_are_removed(bench: Bench, starter: Starter) -> None:
    """Whatever was killed and whenever, directories stay while an agent or a guard of theirs lives, and go then."""
    first, second = tasks = [bench.task({"train.py": TREE}) for _ in range(2)]
    places = [working_directory.of(str(bench.home), work_name(task)) for task in tasks]
    for task in tasks:
        starter.start(task)
        bench.printed(task, "grandchild is there")
    agent, guard, *_ = bench.processes(first)
    guard.suspend()
    agent.kill()
    assert all_gone([agent])
    working_directory.remove_abandoned(str(bench.home))
    assert [place.exists() for place in places] == [True, True]
    guard.kill()
    assert all_gone([guard])
    working_directory.remove_abandoned(str(bench.home))
    assert sorted((bench.home / "work").iterdir()) == [places[1], places[1].with_suffix(places[1].suffix + ".info")]
    launcher = LocalLauncher(bench.store, bench.home)
    for task in tasks:
        launcher.kill(bench.row(task))
    launcher.close()
    assert bench.end(second).exit_code == 137


def test_the_guard_dies(bench: Bench, starter: Starter) -> None:
    """All processes of a trial die with its guard, and the agent records the end."""
    task = bench.task({"train.py": TREE})
    starter.start(task)
    bench.printed(task, "grandchild is there")
    _, guard, *below = bench.processes(task)
    guard.kill()
    assert bench.end(task).exit_code == 137
    assert all_gone(below)


def test_agents_report_to_postgresql(
    home: Path, postgres: PostgresServer, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked agent opens connections of its own to a server, too."""
    monkeypatch.setenv("DET_CONTROLLER", "off")
    url = postgres.database()
    store = open_store(url)
    bench = Bench(store, home, url)
    task = bench.task({"train.py": "print('hello'); raise SystemExit(3)"})
    starter.start(task)
    assert bench.end(task).exit_code == 3
    assert bench.text(task, "trial") == "hello"
    store.close()
    postgres.empty(url)
