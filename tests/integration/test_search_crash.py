"""A search survives anything: its controller, its agents and its trials are killed with SIGKILL, again and again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from determined.experiment.controller import start
from determined.store.database.connection import Store, open_store
from tests.experiments import (
    ASHA,
    check_intact,
    controller_pid,
    decisions,
    engine_events,
    is_over,
    processes,
    starts_of_trials,
    submit_search,
    wait_until_alone,
    wait_until_over,
)

pytestmark = pytest.mark.slow

# A controller per event: half as many trials as others have, for each start takes a second of a processor.
SMALLER = {"searcher": {**ASHA["searcher"], "max_trials": 8}}


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    opened = open_store()
    yield opened
    for process in processes():  # of a test that failed
        process.kill()
    opened.close()


def kill(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_controllers(store: Store, experiment_id: int, also: Callable[[], None] = lambda: None) -> int:
    """Kill the controller after every event that it has handled; whoever acts next starts another."""
    killed = seen = 0
    deadline = time.monotonic() + 500
    while not is_over(store, experiment_id):
        assert time.monotonic() < deadline, "the search does not end"
        count = engine_events(store, experiment_id)
        if count > seen and kill(controller_pid(store)):
            seen, killed = count, killed + 1
        start.ensure(store)
        also()
        time.sleep(0.04)
    return killed


def test_a_controller_that_is_killed_at_every_event_changes_no_decision(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-66, P-45: on one slot trials, hyperparameters, rungs and best trial are those of an undisturbed run; no trial
    is started twice, no process is left, and the store passes its check.
    """
    monkeypatch.setenv("DET_SLOTS", "1")
    undisturbed = submit_search(tmp_path / "undisturbed", **SMALLER)
    wait_until_over(store, undisturbed)
    wait_until_alone()
    disturbed = submit_search(tmp_path / "disturbed", **SMALLER)
    killed = kill_controllers(store, disturbed)
    wait_until_alone()
    assert killed > 10
    assert decisions(store, disturbed) == decisions(store, undisturbed)
    check_intact(store, disturbed, tmp_path / "disturbed")
    assert [len(starts) for starts in starts_of_trials(tmp_path / "disturbed")] == [1] * 8


class Assassin:
    """Kills a process of some running attempt as training goes on: the agent, its guard, or what it runs."""

    def __init__(self, directory: Path, seed: int, every: int) -> None:
        self._notes = directory / "notes"
        self._random = random.Random(seed)
        self._every = every
        self._next = every
        self.killed = 0

    def __call__(self) -> None:
        """Kill one, if a few steps were trained since the last time: so that the search comes to an end."""
        written = sum(len(path.read_text().splitlines()) for path in self._notes.iterdir())
        if written < self._next:
            return
        victims = [process for process in processes() if self._is_of_a_trial(process)]
        if victims:
            self.killed += kill(self._random.choice(victims).pid)
            self._next = written + self._random.randint(1, 2 * self._every)

    @staticmethod
    def _is_of_a_trial(process: psutil.Process) -> bool:
        try:
            return "DET_ALLOCATION_ID" in process.environ() or process.name() in ("det-agent", "det-guard")
        except psutil.Error:
            return False


def test_trials_that_are_killed_at_random_go_on_from_their_checkpoints(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents, guards and trials killed at random on two slots: the search completes, the replay of its events agrees
    with the rows, no trial is trained twice from zero, and no process is left.
    """
    monkeypatch.setenv("DET_SLOTS", "2")
    ident = submit_search(tmp_path / "killed")
    assassin = Assassin(tmp_path / "killed", 1, 4)
    deadline = time.monotonic() + 500
    while not is_over(store, ident):
        assert time.monotonic() < deadline, "the search does not end"
        assassin()
        time.sleep(0.02)
    wait_until_alone()
    assert assassin.killed > 3
    check_intact(store, ident, tmp_path / "killed")


def test_everything_killed_at_random(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Controllers at every event and trials at random, on two slots: the same holds."""
    monkeypatch.setenv("DET_SLOTS", "2")
    ident = submit_search(tmp_path / "both", **SMALLER)
    assassin = Assassin(tmp_path / "both", 2, 6)
    killed = kill_controllers(store, ident, assassin)
    wait_until_alone()
    assert killed > 10
    assert assassin.killed > 1
    check_intact(store, ident, tmp_path / "both")
