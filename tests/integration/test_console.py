"""What a person reads who only types `python train.py`, and what they type next."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from determined.store import attempts
from tests import records
from tests.forks import Nursery
from tests.integration.test_recorded_run import TRIAL

Read = Callable[..., list[str]]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script without any logging set-up, that goes on from the latest."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "train.py"
    text = TRIAL.replace("logging.basicConfig(level=logging.INFO)", "")
    path.write_text(text.replace("latest_checkpoint=args.latest", "latest_checkpoint=args.latest or 'latest'"))
    return path


@pytest.fixture
def read(script: Path, nursery: Nursery) -> Read:
    """Runs the script to its end and returns what it tells."""

    def done(*arguments: str, **environment: str) -> list[str]:
        ended = nursery.run_script(script, *arguments, **environment)
        assert ended.returncode == 0, ended.stderr
        return ended.stderr.splitlines()

    return done


@pytest.mark.parametrize("way", ["ctrl-c", "det trial stop"])
def test_a_stopped_run_says_who_asked_and_how_to_go_on(way: str, script: Path, read: Read) -> None:
    """Issue 12: after Ctrl-C or `det trial stop`: who asked, what was saved, and a line to type that really goes on."""
    command = [sys.executable, str(script), "--slow", "--batches", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "here" not in process.stdout.readline():
            pass
        if way == "ctrl-c":
            process.send_signal(signal.SIGINT)
        else:
            while not (known := records.table("allocations")):
                process.stdout.readline()
            with records.opened() as store, store.write() as conn:
                attempts.request_preemption(conn, known[0]["allocation_id"])
        process.stdout.read()
        said = process.stderr.read().splitlines()
    batches = records.table("trials")[0]["total_batches"]
    who = "Ctrl-C" if way == "ctrl-c" else "a request in the store, such as det trial stop"
    assert f"Ended after batch {batches}, with {batches} of 100000 batches trained: asked to stop by {who}." in said
    saved = next(row["uuid"] for row in records.table("checkpoints") if row["steps"] == batches)
    assert any(line.startswith(f"Saved after batch {batches}: checkpoint {saved} in ") for line in said)
    assert said[-2:] == ["Look at it with: det trial describe 1", f"To go on: {shlex.join(command)}"]
    script.write_text(script.read_text() + "# changed\n")
    again = read("--batches", str(batches + 10))
    assert again[0] == (
        f"Going on from experiment 1 at batch {batches} (checkpoint {saved[:8]}, less than a minute old, "
        f"by another version of train.py), to train {batches + 10} batches in all."
    )


def test_a_run_tells_each_thing_once(script: Path, read: Read) -> None:
    """Issue 12: without a terminal too; with logging at INFO the same lines come from there, and not twice."""
    said = read("--batches", "20")
    assert said[0].startswith("LineTrial starts afresh, to train 20 batches: there is no checkpoint of LineTrial by ")
    assert said[-1] == "Look at it with: det trial describe 1"
    assert read("--batches", "20", DET_QUIET="1") == []
    with_logging = "logging.basicConfig(level=logging.INFO)\n\nclass LineTrial"
    script.write_text(script.read_text().replace("class LineTrial", with_logging))
    logged = read("--batches", "30")
    assert sum("Going on from experiment 1" in line for line in logged) == 1
    assert all(line.startswith(("INFO:", "WARNING:")) for line in logged)
