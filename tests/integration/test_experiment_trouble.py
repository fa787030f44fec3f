"""Trouble from outside while real experiments run: controllers killed and stopped, crowds, noise, other places."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from determined import errors
from determined.client import _actions
from determined.store.attempts import AttemptRow
from tests.experiments import controller_pid, processes, submit_search, wait_until_alone, wait_until_over
from tests.lifecycles import BASE, Lab

DET = [sys.executable, "-m", "determined.cli"]

# Trains until it is told to finish, or asked to stop.
PATIENT = """
with core.init() as context:
    note(start=restored(context), pid=os.getpid())
    step = 0
    while not is_told("go") and not context.preempt.should_preempt():
        step += 1
        context.train.report_training_metrics(step, {"loss": 1 / step})
        time.sleep(0.02)
    save(context, step)
"""

TWO: dict[str, Any] = {
    "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
    "searcher": {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2},
}


@pytest.fixture
def home(leaves_nothing_behind: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory whose path has spaces and other letters in it: nothing here minds."""
    path = tmp_path / "my dätä 'dir' $HOME 数据"
    monkeypatch.setenv("DET_HOME", str(path))
    return path


def killed_controller(lab: Lab) -> int:
    """Kill the controller with SIGKILL, and return its process id."""
    pid = controller_pid(lab.store)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    lab.until(lambda: controller_pid(lab.store) is None)
    return pid


def test_the_controller_is_killed_while_two_trials_train(lab: Lab) -> None:
    """P-66: after any action command both trials go on in their processes, with no second attempt and no restart
    charged. A kill that is asked for while there is no controller is carried out.
    """
    experiment = lab.submit(PATIENT, **TWO)
    before = {note["pid"] for note in lab.started(experiment, 2)}
    dead = killed_controller(lab)
    experiment.activate()  # nothing to do, as it is active
    other = lab.submit("note(ran=True)", resources={"slots_per_trial": 0})
    assert lab.end(other) == "COMPLETED"
    assert controller_pid(lab.store) not in (None, dead)
    assert all(psutil.pid_exists(pid) for pid in before)
    lab.tell("go")
    assert lab.end(experiment) == "COMPLETED"
    assert [(row.attempt, row.exit_code) for row in lab.attempts(experiment)] == [(1, 0)] * 2
    assert [trial.restarts for trial in experiment.list_trials()] == [0, 0]
    assert len(lab.notes(experiment)) == 2

    deaf = lab.submit("note(start=0, pid=os.getpid())\ntime.sleep(600)")
    (note,) = lab.noted(deaf, "start")
    killed_controller(lab)
    deaf.kill()
    assert lab.end(deaf) == "CANCELED"
    assert not psutil.pid_exists(note["pid"])


def test_a_stopped_controller_is_not_replaced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped (Ctrl-Z, a debugger, a laptop that sleeps) holds its lease: two must never drive one store.
    What is asked meanwhile is stored and the caller told; it happens when the controller goes on.
    """
    experiment = lab.submit(PATIENT)
    lab.started(experiment)
    pid = controller_pid(lab.store)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(_actions, "HANDLED_SECONDS", 1.0)
    with pytest.raises(errors.NoController, match="it is stored and will be"):
        experiment.pause()
    assert controller_pid(lab.store) == pid
    os.kill(pid, signal.SIGCONT)
    lab.until(lambda: lab.no_attempt_runs(experiment))
    lab.until(lambda: lab.only_trial(experiment).state.value == "PAUSED")
    experiment.cancel()
    assert lab.end(experiment) == "CANCELED"


def config_file(lab: Lab, **changes: Any) -> list[str]:
    """Write a configuration and return the words that submit it, with the code of `lab`."""
    environment = {"environment_variables": [f"NOTES={lab.directory / 'notes'}"]}
    code = lab.code("note(start=0)\nwait_for('go')")
    (code / "config.yaml").write_text(yaml.safe_dump({**BASE, "environment": environment, **changes}))
    return ["experiment", "create", str(code / "config.yaml"), str(code)]


@pytest.mark.slow
def test_submitted_by_several_at_once(lab: Lab) -> None:
    """`det e create` typed four times at once in an empty data directory: four experiments, one controller.
    Ctrl-C on one that follows leaves its experiment running, and says how to come back.
    """
    words = config_file(lab, resources={"slots_per_trial": 0})
    quick = [subprocess.Popen([*DET, *words], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    following = subprocess.Popen([*DET, *words, "-f"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert [process.communicate()[1] is None and process.returncode for process in quick] == [0, 0, 0]
    found = lab.until(lambda: len(each := lab.client.list_experiments()) == 4 and each)
    for each in found:
        lab.noted(each, "start")
    controllers = [p for p in processes() if "determined.experiment.controller" in p.cmdline() and p.ppid() == 1]
    assert len(controllers) <= 1  # agents have the command line of the one that they were forked from
    following.send_signal(signal.SIGINT)
    said = following.communicate()[0]
    assert "Traceback" not in said
    assert "det experiment watch" in said or "det e watch" in said
    assert not any(each.state.is_terminal for each in lab.client.list_experiments())
    lab.tell("go")
    assert [lab.end(each) for each in found] == ["COMPLETED"] * 4


def test_much_noise(lab: Lab) -> None:
    """A script that prints 8 MB as fast as it can, in short lines and in one very long one: all lines arrive."""
    script = """
    line = "x" * 99
    for number in range(30_000):
        sys.stdout.write(f"{number} {line}\\n")
    sys.stdout.write("y" * 5_000_000 + "\\n")
    print("last words")
    """
    experiment = lab.submit(script)
    assert lab.end(experiment) == "COMPLETED"
    trial = lab.only_trial(experiment)
    numbers = [line.split("|| ")[-1].split()[0] for line in trial.iter_logs(search_text="x" * 90)]
    assert numbers == [str(number) for number in range(30_000)]
    assert "last words" in "".join(trial.iter_logs(search_text="last words"))


def most_at_once(rows: Iterable[AttemptRow]) -> int:
    """Return how many slots were taken at once, at most."""
    rows = list(rows)
    changes = [(row.start_time, row.slots) for row in rows] + [(row.end_time, -row.slots) for row in rows]
    taken = most = 0
    for _, slots in sorted(changes, key=lambda change: (change[0], change[1])):
        taken += slots
        most = max(most, taken)
    return most


@pytest.mark.slow
def test_three_experiments_of_200_trials(lab: Lab, home: Path) -> None:
    """Three experiments at once on two slots, 200 short trials in all: two slots are never exceeded, nor `max_slots`;
    smaller priorities start first; neither processes nor files are left, and the controller does not grow.
    """
    code = lab.code("")

    def submit(trials: int, **resources: Any) -> Any:
        searcher = {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": 16}
        changes = {"entrypoint": "true", "hyperparameters": TWO["hyperparameters"], "searcher": searcher}
        return lab.submit(code, **changes, resources=resources)

    late = submit(60, priority=50)
    narrow = submit(60, priority=42, max_slots=1)
    first = submit(80, priority=1)
    pid = controller_pid(lab.store)
    assert pid is not None
    controller = psutil.Process(pid)
    lab.until(lambda: len(lab.attempts(first)) > 40)
    size = controller.memory_info().rss
    assert [lab.end(each) for each in (first, narrow, late)] == ["COMPLETED"] * 3
    assert controller.memory_info().rss < size + (8 << 20)
    assert controller.num_fds() < 40
    rows = {each: lab.attempts(each) for each in (first, narrow, late)}
    assert [len(found) for found in rows.values()] == [80, 60, 60]
    assert most_at_once(row for found in rows.values() for row in found) == 2
    assert most_at_once(rows[narrow]) == 1
    ends = [max(row.end_time for row in rows[each] if row.end_time) for each in (first, narrow, late)]
    assert ends[0] == min(ends)  # the other two then have a slot each, and end at about the same time
    assert {row.exit_code for found in rows.values() for row in found} == {0}


@pytest.mark.slow
def test_a_search_on_postgresql(postgres: Any, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole search through the real controller with its store on a server: it completes, and replaying agrees."""
    from determined.client import Determined
    from determined.store.database.connection import open_store
    from tests.experiments import check_intact

    url = postgres.empty_database()
    monkeypatch.setenv("DET_STORE", url)
    monkeypatch.setenv("DET_SLOTS", "2")
    store = open_store()
    try:
        ident = submit_search(tmp_path / "search", searcher={
            "name": "adaptive_asha", "metric": "loss", "max_trials": 4, "time_metric": "batches", "max_time": 4,
            "max_concurrent_trials": 2, "divisor": 2,
        })  # fmt: skip
        wait_until_over(store, ident)
        with Determined() as client:
            client.controller.stop()
        wait_until_alone()
        check_intact(store, ident, tmp_path / "search")
    finally:
        for process in processes():
            process.kill()
        store.close()
        postgres.drop(url)
