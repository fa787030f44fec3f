"""kill -9 at a hundred random moments of runs that train, validate, save, delete and resume: nothing is torn."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from determined import artifacts
from determined.store import upkeep
from tests import records

KILLS = 100
LANES = 3  # scripts that run side by side, on one store and one storage

SCRIPT = """
import json, sys, time
from determined import core

with core.init(checkpoint_storage=sys.argv[1]) as context:
    history = context._history("latest", "Lane", True)
    found, step, kept = history.found if history else None, 0, []
    if found is not None:
        with context.checkpoint.restore_path(found) as path:
            step, kept = json.loads((path / "state.json").read_text())
        kept = [one for one in kept if one in context.checkpoint.list()] + [found]
    context.train.note_fit(step, found, continues=found is not None)
    print("up", step, flush=True)
    for step in range(step + 1, step + int(sys.argv[2])):
        context.train.report_training_metrics(step, {"loss": 1 / step, "time": time.time()}, [{"loss": 1.0}] * 3)
        if step % 5 == 0:
            context.train.report_validation_metrics(step, {"error": 2 / step})
        if step % 7 == 0:
            with context.checkpoint.store_path({"steps_completed": step, "trial_class": "lane:Lane"}) as (path, new):
                (path / "state.json").write_text(json.dumps([step, kept]))
            kept.append(new)
        if len(kept) > 3:
            context.checkpoint.delete(kept.pop(0))
        time.sleep(0.003)
    print("end", flush=True)
"""


class Lane:
    """One script, started and killed again and again."""

    def __init__(self, script: Path, storage: Path, seed: int) -> None:
        self._command = [sys.executable, str(script), str(storage)]
        self._dice = random.Random(seed)
        self.problems: list[str] = []
        self.furthest = 0

    def kill(self, times: int) -> None:
        for _ in range(times):
            with self._start(steps=100_000) as process:
                if self._dice.random() < 0.25:  # on the way up
                    time.sleep(self._dice.uniform(0.05, 1.0))
                else:
                    self._wait_until_up(process)
                    time.sleep(self._dice.uniform(0.0, 0.6))
                process.kill()
                process.communicate()

    def finish(self) -> None:
        with self._start(steps=10) as process:
            self._wait_until_up(process)
            out, err = process.communicate(timeout=120)
        if process.returncode or "end" not in out:
            self.problems.append(err)

    def _start(self, steps: int) -> subprocess.Popen[str]:
        command = [*self._command, str(steps)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _wait_until_up(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if not words:
            assert process.stderr is not None
            self.problems.append(process.stderr.read())
            return
        if int(words[1]) < self.furthest:
            process.kill()
            _, said = process.communicate()
            self.problems.append(f"resumed at {words[1]}, after {self.furthest}: {said}")
        self.furthest = int(words[1])


@pytest.mark.slow
def test_nothing_is_torn_or_lost(tmp_path: Path, home: Path) -> None:
    """Issue 6, P-70: after 100 kills the store is whole, no step is told twice, every recorded checkpoint is there and
    verifies, every published one is recorded, and each script goes on from its newest."""
    storage = tmp_path / "checkpoints"
    lanes = []
    for number in range(LANES):
        script = tmp_path / f"lane{number}.py"
        script.write_text(SCRIPT)
        lanes.append(Lane(script, storage, seed=number))
    _at_once([(lane.kill, [KILLS // LANES + (number < KILLS % LANES)]) for number, lane in enumerate(lanes)])
    _at_once([(lane.finish, []) for lane in lanes])
    assert [lane.problems for lane in lanes] == [[]] * LANES
    assert all(lane.furthest > 0 for lane in lanes), "they got somewhere"
    _check_store()
    _check_checkpoints(storage)
    assert [path.name for path in (home / "runs").iterdir()] == [], "nothing is left to look after"


def _at_once(calls: list[tuple[Any, list[int]]]) -> None:
    threads = [threading.Thread(target=call, args=arguments) for call, arguments in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _check_store() -> None:
    with records.opened() as store:
        assert upkeep.check(store) == []
    visible = [row for row in records.table("metrics") if not row["archived"]]
    told = [(row["trial_id"], row["metric_group"], row["steps"]) for row in visible]
    assert len(told) == len(set(told))
    ended = {row["state"] for row in records.table("trials")}
    assert ended <= {"COMPLETED", "ERROR"}, "nobody is taken to be running any more"
    assert max(row["attempt"] for row in records.table("trials")) > KILLS // LANES // 3, "most went on with a trial"


def _check_checkpoints(place: Path) -> None:
    storage = artifacts.open_storage(place)
    there = set(storage.list())
    states = {row["uuid"]: row["state"] for row in records.table("checkpoints")}
    assert {uuid for uuid, state in states.items() if state == "COMPLETED"} == there
    assert {uuid for uuid, state in states.items() if state == "DELETED"}.isdisjoint(there)
    assert {uuid: storage.verify(uuid) for uuid in there} == {uuid: [] for uuid in there}
