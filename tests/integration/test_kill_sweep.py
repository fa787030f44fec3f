"""kill -9 at random moments of runs that train, validate, save, delete and resume: nothing is torn, nothing is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from determined import artifacts
from determined.store.upkeep import checks
from tests import records

KILLS = 100
LANES = 3  # scripts that run side by side, on one store and one storage
LINGERS = (0.02, 0.3, 0.8)  # seconds that reports wait for company: few are in the store, or most

SCRIPT = """
import json, os, sys, time
from determined import core
from determined.core.recording import shipper

shipper.LAST_CHANCE_SECONDS = 200.0
shipper.LINGER_SECONDS = LINGER
with core.init(checkpoint_storage=sys.argv[1]) as context:
    history = context.train.find_checkpoints("latest", "Lane", True)
    found, step, kept = history.found[0] if history and history.found else None, 0, []
    if found is not None:
        with context.checkpoint.restore_path(found) as path:
            step, kept = json.loads((path / "state.json").read_text())
        kept = [one for one in kept if one in context.checkpoint.list()] + [found]
    context.train.note_fit(step, found, continues=found is not None, joins=True)
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
        os.write(1, b"step\\n")
print("end", flush=True)
"""

# Imports everything once, and forks a script for each number of steps that it reads: a fresh interpreter for each of a
# hundred kills would take most of the time.
FORKS = """
import os, runpy, sys
import alembic.command, fsspec.implementations.local, psutil, sqlalchemy.dialects.sqlite
from determined import artifacts, core
from determined.core.recording import run_rows, shipper, store_link
from determined.store import experiments, migrations
from determined.store.database import connection
from determined.store.metrics import metric_reports
from determined.store.upkeep import checks

script, storage = sys.argv[1:]
for steps in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.close(0)
        os.write(1, b"pid %d\\n" % os.getpid())
        sys.argv = [script, storage, steps]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    os.write(1, b"ended %d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


class Lane:
    """One script, started and killed again and again.

    Args:
        script: Where it is.
        storage: Where its checkpoints are.
        seed: Decides when it is killed.
    """

    def __init__(self, script: Path, storage: Path, seed: int) -> None:
        self._dice = random.Random(seed)
        self._errors = script.with_suffix(".err")
        with self._errors.open("w") as errors:
            self._forks = subprocess.Popen(
                [sys.executable, "-c", FORKS, str(script), str(storage)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._has_ended = False
        self.problems: list[str] = []
        self.furthest = 0

    def kill(self, times: int) -> None:
        for _ in range(times):
            pid = self._start(steps=100_000)
            if self._dice.random() < 0.25:  # on the way up
                time.sleep(self._dice.uniform(0.0, 0.3))
            elif self._is_up():
                for _ in range(self._dice.randrange(25)):  # so many steps, however long they take
                    self._line()
                time.sleep(self._dice.uniform(0.0, 0.02))
            with contextlib.suppress(ProcessLookupError):  # a problem, which is noted
                os.kill(pid, signal.SIGKILL)
            self._end()

    def finish(self) -> None:
        self._start(steps=10)
        if self._is_up() and "end" not in self._end():
            self.problems.append(self._errors.read_text())
        self._forks.communicate()

    def _start(self, steps: int) -> int:
        assert self._forks.stdin is not None
        self._forks.stdin.write(f"{steps}\n")
        self._forks.stdin.flush()
        return int(self._line().removeprefix("pid "))

    def _line(self) -> str:
        assert self._forks.stdout is not None
        line = self._forks.stdout.readline().rstrip()
        self._has_ended = line.startswith("ended") or not line
        return line

    def _end(self) -> list[str]:
        """What it still says."""
        lines = []
        while not self._has_ended:
            lines.append(self._line())
        return lines

    def _is_up(self) -> bool:
        """Wait until it is, and note if it has not come at least as far as before."""
        word, _, number = self._line().partition(" ")
        if word != "up":
            self.problems.append(self._errors.read_text())
            return False
        if int(number) < self.furthest:
            self.problems.append(f"resumed at {number}, after {self.furthest}: {self._errors.read_text()}")
        self.furthest = int(number)
        return True


@pytest.mark.slow
def test_nothing_is_torn_or_lost(tmp_path: Path, home: Path) -> None:
    """Issue 6, P-70: after 100 kills the store is whole, no step is told twice, every recorded checkpoint is there and
    verifies, every published one is recorded, and each script goes on from its newest. Issue 11: not one validation
    from before a surviving checkpoint is missing."""
    _sweep(tmp_path, home, KILLS)
    newest = max(row["attempt"] for row in records.table("trials"))
    assert newest > KILLS // LANES // 3, "most went on with a trial"


def test_no_validation_from_before_a_checkpoint_is_lost(tmp_path: Path, home: Path) -> None:
    """Issue 11: the same after a few kills."""
    _sweep(tmp_path, home, kills=9)


def _sweep(directory: Path, home: Path, kills: int) -> None:
    storage = directory / "checkpoints"
    lanes = []
    for number in range(LANES):
        script = directory / f"lane{number}.py"
        script.write_text(SCRIPT.replace("= LINGER", f"= {LINGERS[number]}"))
        lanes.append(Lane(script, storage, seed=number))
    _at_once([(lane.kill, [kills // LANES + (number < kills % LANES)]) for number, lane in enumerate(lanes)])
    _let_a_minute_pass(home / "runs")
    _at_once([(lane.finish, []) for lane in lanes])
    assert [lane.problems for lane in lanes] == [[]] * LANES
    assert all(lane.furthest > 0 for lane in lanes), "they got somewhere"
    _check_store()
    _check_checkpoints(storage)
    _check_validations()
    assert [path.name for path in (home / "runs").iterdir()] == [], "nothing is left to look after"


def _at_once(calls: list[tuple[Any, list[int]]]) -> None:
    threads = [threading.Thread(target=call, args=arguments) for call, arguments in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _let_a_minute_pass(runs: Path) -> None:
    """What is young may be about to be written, so it is left alone; by now nobody lives who would."""
    for path in (*runs.iterdir(), *runs.glob("*/run.json")):
        os.utime(path, (1, 1))


def _check_store() -> None:
    with records.opened() as store:
        assert checks.check(store) == []
    visible = [row for row in records.table("metrics") if not row["archived"]]
    told = [(row["trial_id"], row["metric_group"], row["steps"]) for row in visible]
    assert len(told) == len(set(told))
    ended = {row["state"] for row in records.table("trials")}
    assert ended <= {"COMPLETED", "ERROR"}, "nobody is taken to be running any more"


def _check_validations() -> None:
    """Every fifth step was validated, and every step up to a script's newest checkpoint was trained."""
    with records.opened() as store, store.read() as conn:
        rows = conn.exec_driver_sql(
            "SELECT script, metrics.steps FROM experiments JOIN trials ON experiment_id = experiments.id "
            "JOIN metrics ON trial_id = trials.id WHERE metric_group = 'validation' AND NOT metrics.archived"
        ).all()
        saved = conn.exec_driver_sql(
            "SELECT script, max(checkpoints.steps) FROM experiments JOIN trials ON experiment_id = experiments.id "
            "JOIN checkpoints ON trial_id = trials.id WHERE checkpoints.state = 'COMPLETED' GROUP BY script"
        ).all()
    assert saved
    there = {(script, steps) for script, steps in rows}
    lost = [(script, steps) for script, newest in saved for steps in range(5, newest + 1, 5)
            if (script, steps) not in there]  # fmt: skip
    assert lost == []


def _check_checkpoints(place: Path) -> None:
    storage = artifacts.open_storage(place)
    there = set(storage.list())
    states = {row["uuid"]: row["state"] for row in records.table("checkpoints")}
    assert {uuid for uuid, state in states.items() if state == "COMPLETED"} == there
    assert {uuid for uuid, state in states.items() if state == "DELETED"}.isdisjoint(there)
    assert {uuid: storage.verify(uuid) for uuid in there} == {uuid: [] for uuid in there}
