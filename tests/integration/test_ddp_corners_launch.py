"""Whole runs as a user starts them, two at once: they are told to stop and go on later, and a third never stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from determined import pytorch
from tests.ddp_trials import digest

LENGTH = 40
WAITS_AT = 9
MODEL_DEF = f"""
import os
import signal
import sys
import threading
import torch
from torch import nn
from determined import pytorch

was_told = threading.Event()

def wait_to_be_told():
    trainers = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *signalled: (trainers(*signalled), was_told.set()))

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        if "TEST_STOPS" in os.environ:
            wait_to_be_told()
        self.model = context.wrap_model(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
        self.data = torch.randn(24, 3, generator=torch.Generator().manual_seed(5))

    def build_training_data_loader(self):
        return pytorch.DataLoader(self.data, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(self.data, batch_size=5)

    def loss(self, batch):
        return (self.model(batch).squeeze(1) - batch.sum(1)).pow(2).mean()

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        ranks = self.context.distributed
        sys.stdout.write(f"batch {{batch_idx}} of rank {{ranks.rank}} of {{ranks.size}}\\n")  # in one piece
        if "TEST_STOPS" in os.environ and batch_idx == {WAITS_AT}:
            assert was_told.wait(200)
        return {{"loss": loss}}

    def evaluate_batch(self, batch, batch_idx):
        return {{"val": self.loss(batch)}}
"""
SCRIPT = f"""
from determined import pytorch
from model_def import Trial

with pytorch.init(seed=3, hparams={{"lr": 0.01, "global_batch_size": 8}}) as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=pytorch.Batch({LENGTH}), latest_checkpoint="latest", checkpoint_policy="none"
    )
"""
CONFIG = {
    "searcher": {"name": "single", "metric": "val", "max_length": {"batches": LENGTH}},
    "min_validation_period": {"batches": 15},
    "checkpoint_policy": "none",
    "scheduling_unit": 10,
}
TRIAL = {"trial_id": 7, "experiment_id": 5, "trial_seed": 3, "hparams": {"lr": 0.01, "global_batch_size": 8}}
BATCH = re.compile(r"batch (\d+) of rank (\d+) of (\d+)")


class Launch:
    """A launcher at work in a place of its own, with a data directory of its own."""

    def __init__(self, command: list[str], place: Path, **variables: str) -> None:
        place.mkdir(exist_ok=True)
        (place / "model_def.py").write_text(MODEL_DEF)
        (place / "train.py").write_text(SCRIPT)
        self.home = place / "home"
        self._log = place / f"log-{time.monotonic_ns()}.txt"
        more = {"DET_HOME": str(self.home), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables}
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=place, env={**os.environ, **more}, stdout=log, stderr=log
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 240
        while text not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def ended(self) -> int:
        return self.process.wait(240)

    def batches(self) -> dict[int, list[int]]:
        """What each rank has trained."""
        found: dict[int, list[int]] = {}
        for match in BATCH.finditer(self.output):
            found.setdefault(int(match[2]), []).append(int(match[1]))
        return found

    def checkpoints(self) -> dict[int, Path]:
        """Where its checkpoints are, by the batch they were made at."""
        found = [path for path in (self.home / "checkpoints").iterdir() if not path.name.startswith(".")]
        return {json.loads((path / "metadata.json").read_text())["steps_completed"]: path for path in found}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Any]:
    started: list[Launch] = []

    def start(command: list[str], name: str, **variables: str) -> Launch:
        started.append(Launch(command, tmp_path / name, **variables))
        return started[-1]

    yield start
    for launched in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(launched.process.pid).children(recursive=True)
            for process in [launched.process, *children]:
                process.kill()
        launched.process.wait()


def told(place: Path, slots: int, latest: Path | None = None, steps: int = 0) -> dict[str, str]:
    """The variables of a process that is a trial of an experiment."""
    place.mkdir(exist_ok=True)
    cluster = {"task_type": "TRIAL", "slot_ids": list(range(slots)), "latest_checkpoint": latest and latest.name}
    (place / "cluster.json").write_text(json.dumps(cluster))
    (place / "trial.json").write_text(json.dumps({**TRIAL, "config": CONFIG, "steps_completed": steps}))
    return {"DET_INFO_DIR": str(place)}


def loaded(path: Path) -> str:
    """The weights of a checkpoint that this process, which knows nothing of the trial's code, loads."""
    trial: Any = pytorch.load_trial_from_checkpoint_path(str(path), torch_load_kwargs={"map_location": "cpu"})
    assert type(trial).__name__ == "Trial"
    assert not isinstance(trial.model, torch.nn.parallel.DistributedDataParallel)
    return digest(trial)


def stop_and_check(stopping: Launch) -> tuple[int, int]:
    """Tell the launcher to stop; its exit code, and the batch at which all ranks stopped and saved."""
    for rank in (0, 1):
        stopping.wait_for(f"batch {WAITS_AT} of rank {rank}")
    stopping.process.send_signal(signal.SIGTERM)
    code = stopping.ended()
    (batch,) = stopping.checkpoints()
    assert stopping.batches() == {rank: list(range(batch)) for rank in (0, 1)}, stopping.output
    return code, batch


@pytest.mark.slow
def test_a_trial_class_and_torchrun(launch: Any, tmp_path: Path) -> None:
    """D.2, 12.2: `--trial module:Class` trains as its config says, stops for SIGTERM with 0, and goes on exactly.

    Decision 3: so does `torchrun --nproc_per_node 2 train.py`, but for its exit code: torchrun itself says that it was
    stopped by a signal, whatever its workers said. Two at once, on the same machine, do not disturb each other, and
    both end with the weights of a run that nobody stopped.
    """
    ours = ["determined.launch.torch_distributed", "--trial", "model_def:Trial"]
    torchrun = ["torch.distributed.run", "--nproc_per_node", "2", "train.py"]
    of_ours = launch(ours, "ours", TEST_STOPS="1", **told(tmp_path / "info", 2))
    of_torchrun = launch(torchrun, "torchrun", TEST_STOPS="1")
    code, batch = stop_and_check(of_ours)
    assert code == 0, of_ours.output
    code, other_batch = stop_and_check(of_torchrun)
    assert code != 0, of_torchrun.output  # 1, or -6: torchrun sometimes aborts on its own way out
    assert "SignalException" in of_torchrun.output

    straight = launch(torchrun, "straight")
    resumed = launch(ours, "ours", **told(tmp_path / "info", 2, of_ours.checkpoints()[batch], batch))
    assert straight.ended() == 0, straight.output
    assert straight.batches() == {rank: list(range(LENGTH)) for rank in (0, 1)}
    also_resumed = launch(torchrun, "torchrun")
    weights = loaded(straight.checkpoints()[LENGTH])
    for again, begins in ((resumed, batch), (also_resumed, other_batch)):
        assert again.ended() == 0, again.output
        assert again.batches() == {rank: list(range(begins, LENGTH)) for rank in (0, 1)}
        assert loaded(again.checkpoints()[LENGTH]) == weights
    assert resumed.output.count("entrypoint module:Class is deprecated") == 1  # one rank says so, not each


def test_a_trial_class_without_an_experiment(launch: Any) -> None:
    """12.2: without a config there is nothing to go by: one sentence and exit code 2, before anything starts."""
    lonely = launch(["determined.launch.torch_distributed", "--trial", "model_def:Trial"], "lonely")
    assert lonely.ended() == 2, lonely.output
    assert "--trial model_def:Trial is trained as the config of its experiment says" in lonely.output
    assert lonely.output.count("\n") == 1
