"""Every way out of training that needs a process to leave: signals, exit codes, full disks, dead workers, terminals."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from determined import errors
from determined.core.recording import run_description
from determined.pytorch import Batch, DataLoader, ShouldExit
from tests.forks import Job, Nursery
from tests.trials import OneWeightTrial, train

ROOT = Path(__file__).resolve().parents[2]
LONG = 100_000


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints copy the code of the current directory; here there is none. "latest" is that of one script."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(run_description, "_script", lambda: __file__)  # as in the processes below, which run this file


def weight_after(batches: int) -> float:
    """What can be worked out by hand."""
    return -float(sum((1.5, 3.5, 5.5, 7.5)[i % 4] for i in range(batches)))


class Training:
    """A training process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.pid = job.pids[0]

    def wait_for(self, text: str) -> None:
        self._job.wait_for(text)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> int:
        """Wait for its end, and return the exit code."""
        (outcome,) = self._job.wait(240)
        return outcome.exit_code

    @property
    def said(self) -> str:
        return self._job.output(0)

    @property
    def lines(self) -> list[str]:
        return self.said.splitlines()

    @property
    def batches(self) -> int:
        """How many batches began."""
        return sum(line.startswith("batch ") for line in self.lines)


Start = Callable[..., Training]


@pytest.fixture
def training(nursery: Nursery) -> Iterator[Start]:
    """Starts a process that trains with these `main` options."""
    jobs: list[Job] = []

    def start(**options: Any) -> Training:
        jobs.append(nursery.start_script(Path(__file__), json.dumps(options), cwd=Path.cwd()))
        return Training(jobs[-1])

    yield start
    for job in jobs:
        job.kill()


def resumed(batches: int) -> Any:
    """Go on from the newest checkpoint, in this process, by so many batches beyond it."""
    run = train(latest_checkpoint="latest", max_length=Batch(LONG), trial={"does": _stopping_after(batches)})
    assert run.trial.weight == weight_after(run.batches[-1])  # the last one left before it was trained
    return run


def _stopping_after(batches: int) -> Any:
    seen: list[int] = []

    def does(batch_idx: int) -> None:
        seen.append(batch_idx)
        if len(seen) > batches:
            raise ShouldExit

    return does


def stored(home: Path) -> list[str]:
    """The ids of all checkpoints."""
    place = home / "checkpoints"
    names = [path.name for path in place.iterdir()] if place.is_dir() else []
    return sorted(name for name in names if not name.startswith("."))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop(number: int, home: Path, training: Start) -> None:
    """4.8, decision 3: SIGTERM, or Ctrl-C once: the batch ends, a checkpoint is saved, the process exits with 0."""
    process = training()
    process.wait_for("batch 5")
    process.send(number)
    assert process.end() == 0, process.said
    assert "shutdown" in process.lines
    assert "validated" not in process.said
    (storage_id,) = stored(home)
    run = resumed(3)
    assert run.batches[0] == process.batches
    assert storage_id in stored(home)


def test_ctrl_c_twice(home: Path, training: Start) -> None:
    """4.8: the second Ctrl-C interrupts at once: no checkpoint, shutdown hooks run."""
    process = training(hangs_at=5)
    process.wait_for("batch 5")
    process.send(signal.SIGINT)
    process.wait_for("Stopping at the next safe point")
    process.send(signal.SIGINT)
    assert process.end() != 0
    assert "KeyboardInterrupt" in process.said
    assert "shutdown" in process.lines
    assert stored(home) == []


def test_a_kill_in_the_middle(home: Path, training: Start) -> None:
    """Decision 6: killed while it trains and saves, whatever was stored is whole, and "latest" goes on from it."""
    process = training(checkpoint_period=1)
    process.wait_for("stored 4")
    process.send(signal.SIGKILL)
    assert process.end() == -signal.SIGKILL
    run = resumed(2)
    assert run.batches[0] >= 4
    for storage_id in run.context.core_context.checkpoint.list():
        with run.context.core_context.checkpoint.restore_path(storage_id) as path:
            torch.load(path / "state_dict.pth", weights_only=True)


def test_a_kill_while_a_checkpoint_is_written_beside_training(training: Start) -> None:
    """Decision 6, issue 4: a process killed while checkpoint_async writes leaves no half-written checkpoint."""
    process = training(checkpoint_period=1, checkpoint_async=True)
    process.wait_for("stored 4")
    process.send(signal.SIGKILL)
    process.end()
    assert resumed(2).batches[0] >= 4


def test_a_stop_waits_for_the_writer(home: Path, training: Start) -> None:
    """Issue 4: SIGTERM with checkpoint_async: the process ends only when its last checkpoint is whole."""
    process = training(checkpoint_async=True, checkpoint_period=3)
    process.wait_for("batch 7")
    process.send(signal.SIGTERM)
    assert process.end() == 0, process.said
    assert f"stored {process.batches}" in process.lines
    assert resumed(1).batches[0] == process.batches


def test_an_error_in_a_worker(home: Path, training: Start) -> None:
    """4.8: it propagates with its type and names the record; no checkpoint, no process is left behind."""
    process = training(breaks_record=5, workers=2)
    children: list[psutil.Process] = []
    with contextlib.suppress(AssertionError):
        process.wait_for("batch 1")
        children = psutil.Process(process.pid).children(recursive=True)
    assert process.end() == 1
    assert "ZeroDivisionError" in process.said
    assert "shutdown" in process.lines
    assert stored(home) == []
    assert psutil.wait_procs(children, timeout=120)[1] == []


def test_a_worker_that_dies(home: Path, training: Start) -> None:
    """4.8: a worker that is killed ends training with an error that says so, instead of waiting for ever."""
    process = training(kills_worker_at=5, workers=1)
    assert process.end() == 1
    assert "shutdown" in process.lines
    assert stored(home) == []


def test_a_full_disk(home: Path, training: Start) -> None:
    """4.8, decision 6: files that cannot be written end training; no half checkpoint stays, the one before is whole."""
    process = training(checkpoint_period=3, fills_disk_at=4)
    assert process.end() == 1
    assert re.search(r"OSError: \S+ could not be written to .* which has \d+ MiB left: File too large", process.said)
    assert "stored 3" in process.lines
    assert "shutdown" in process.lines
    run = resumed(1)
    assert run.batches[0] == 3


def test_exit_codes(training: Start) -> None:
    """T23, T21: InvalidHP exits with 0 and saves; another error exits with 1 and shows the user's own line."""
    invalid, failed = training(invalid_at=3), training(fails_at=3)
    assert invalid.end() == 0, invalid.said
    assert failed.end() == 1
    assert "stored 3" in invalid.lines
    assert "RuntimeError: mine" in failed.said
    assert "stored" not in failed.said


def test_in_a_terminal(training: Start) -> None:
    """Issue 4: a person sees a bar with batches, rate and metrics; into a file there are lines instead."""
    seen = in_terminal(max_length=40, quiet=True, seconds_per_batch=0.02, logs=True)
    assert "40/40" in seen
    lines = [line for line in re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)) if "metrics at" in line]
    assert lines
    assert all(line.startswith("INFO:") for line in lines)  # above the bar, not behind it
    assert "loss" in seen
    assert "epoch 10" in seen
    process = training(max_length=4, quiet=True)
    assert process.end() == 0
    assert "\x1b[" not in process.said
    assert "4/4" not in process.said


def in_terminal(**options: Any) -> str:
    """What a training process draws on a terminal."""
    chief, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(options)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "TERM": "xterm",
            "COLUMNS": "120",
        },
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = b""
    try:
        while process.poll() is None or select.select([chief], [], [], 0)[0]:
            if select.select([chief], [], [], 0.1)[0]:
                try:
                    seen += os.read(chief, 65536)
                except OSError:  # the other end is closed
                    break
        assert process.wait(timeout=240) == 0, seen.decode()
    finally:
        process.kill()
        process.wait()
        os.close(chief)
    return seen.decode()


# What the processes run.


class Breaking(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, breaks: int | None, kills: int | None) -> None:
        self.breaks, self.kills = breaks, kills

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor([1.0 / (index - self.breaks) if self.breaks is not None else index + 1.0])


def main() -> None:
    options = json.loads(sys.argv[1])
    quiet = options.get("quiet", False)
    if options.get("logs"):
        logging.basicConfig(level=logging.INFO)

    def say(text: str) -> None:
        if not quiet:
            print(text, flush=True)

    def does(batch_idx: int) -> None:
        say(f"batch {batch_idx}")
        time.sleep(options.get("seconds_per_batch", 0.01))
        if batch_idx == options.get("hangs_at"):
            time.sleep(600)
        if batch_idx == options.get("invalid_at"):
            raise errors.InvalidHP("too large")
        if batch_idx == options.get("fails_at"):
            raise RuntimeError("mine")
        if batch_idx == options.get("fills_disk_at"):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))  # room for what it says, not for weights

    def loader() -> Any:
        dataset = Breaking(options.get("breaks_record"), options.get("kills_worker_at"))
        return DataLoader(dataset, batch_size=2, num_workers=options.get("workers", 0))

    class Loud(OneWeightTrial):
        pass

    Loud.__qualname__ = "OneWeightTrial"  # so that the test can resume what this has saved
    hooks = {
        "on_trial_shutdown": lambda: say("shutdown"),
        "on_validation_start": lambda: say("validated"),
        "on_checkpoint_upload_end": lambda uuid: say(f"stored {saved.pop(0)} {uuid}".rsplit(" ", 1)[0]),
        "on_checkpoint_save_start": lambda checkpoint: saved.append(checkpoint["progress"]["batches_trained"]),
    }
    saved: list[int] = []
    period = options.get("checkpoint_period")
    train(
        Loud,
        {"does": does, "training_loader": loader},
        hooks=hooks,
        max_length=Batch(options.get("max_length", LONG)),
        checkpoint_period=None if period is None else Batch(period),
        checkpoint_async=options.get("checkpoint_async", False),
        reporting_period=Batch(5),
    )


if __name__ == "__main__":
    main()
