"""The proof that matters most: stopped and resumed in a new process, training ends with the bits of one that never was.

Many cells share a process: one trains straight through, one trains the first halves and saves, others resume. The cells
are all combinations of dropout, shuffling, aggregation, schedulers, validation in between and bfloat16 with four places
to stop; with two loader workers, a cover of all pairs of these.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, DataLoader, LRScheduler, ShouldExit

ROOT = Path(__file__).resolve().parents[2]
LENGTH = 11
STOPS = {"mid-epoch": 3, "last batch": 5, "first batch of an epoch": 6, "inside a window": 7}
SWITCHES = ("dropout", "shuffle", "aggregates", "schedules", "validates", "half")
# With two workers: eight of the 64 combinations, in which each pair of switches has all four combinations.
COVER = [(a, b, c, a ^ b, a ^ c, b ^ c) for a, b, c in itertools.product((0, 1), repeat=3)]
COMPARED = [
    "models_state_dict",
    "optimizers_state_dict",
    "lr_schedulers_state_dict",
    "callbacks",
    "rng_states",
    "data",
    "gradients",
]


def cells(workers: int) -> Iterator[dict[str, int]]:
    for chosen in COVER if workers else itertools.product((0, 1), repeat=len(SWITCHES)):
        yield {**dict(zip(SWITCHES, chosen, strict=True)), "workers": workers}


def name(cell: dict[str, int], *without: str) -> str:
    return ",".join(f"{key}={value}" for key, value in cell.items() if key not in without)


class Augmented(torch.utils.data.Dataset[torch.Tensor]):
    """Ten records, changed at random whenever they are read."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), index / 10) + torch.rand(3) / 10


class Keeper(pytorch.PyTorchCallback):
    """Counts epochs, and at the end keeps what would be saved, instead of saving it."""

    def __init__(self) -> None:
        self.epochs = torch.zeros(1)
        self.kept: dict[str, Any] = {}

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.epochs += 1 + epoch_idx

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs.clone()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs = state_dict["epochs"]

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        progress = checkpoint["progress"]
        if progress["batches_trained"] == LENGTH:
            self.kept = {key: checkpoint[key] for key in COMPARED}
            self.kept["counters"] = [progress["batches_trained"], progress["epochs_trained"]]
            raise ShouldExit(skip_exit_checkpoint=True)


class CellTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, cell: dict[str, int], stops: bool) -> None:
        self.context, self.cell, self.stops = context, cell, stops
        if cell["half"]:
            context.experimental.use_amp(torch.bfloat16)
        dropout = nn.Dropout(0.5) if cell["dropout"] else nn.Identity()
        self.model = context.wrap_model(nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), dropout, nn.Linear(8, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), 0.05))
        if cell["schedules"]:
            modes = LRScheduler.StepMode
            schedulers = torch.optim.lr_scheduler
            context.wrap_lr_scheduler(schedulers.StepLR(self.optimizer, 1, 0.7), modes.STEP_EVERY_EPOCH)
            context.wrap_lr_scheduler(schedulers.CosineAnnealingLR(self.optimizer, 20), modes.STEP_EVERY_BATCH)
        self.keeper = Keeper()

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"keeper": self.keeper}

    def build_training_data_loader(self) -> Any:
        return DataLoader(Augmented(), 2, shuffle=bool(self.cell["shuffle"]), num_workers=self.cell["workers"])

    def build_validation_data_loader(self) -> Any:
        return DataLoader(Augmented(), 5, shuffle=True)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = (self.model(batch) - batch.sum(1, keepdim=True)).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if self.stops and batch_idx + 1 == max(STOPS.values()):
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": self.model(batch).mean() + torch.rand(())}


def fit(cell: dict[str, int], seed: int, *, stops: bool = False, **options: Any) -> CellTrial:
    with pytorch.init(
        seed=seed, aggregation_frequency=3 if cell["aggregates"] else 1, enable_tensorboard_logging=False
    ) as context:
        trial = CellTrial(context, cell, stops)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(LENGTH), reporting_period=Batch(4), checkpoint_policy="none", **options
        )
    return trial


def train_straight(folder: Path) -> None:
    """Without validations, and with one worker instead of two: neither must make a difference."""
    kept: dict[str, Any] = {}
    for cell in (*cells(0), *cells(2)):
        if (where := name(cell, "validates")) not in kept:
            kept[where] = fit({**cell, "validates": 0, "workers": min(cell["workers"], 1)}, seed=1).keeper.kept
    torch.save(kept, folder / "straight.pt")


def train_first_halves(folder: Path) -> None:
    """Saved at three places on the way, and at the fourth because of SIGTERM."""
    saved: dict[str, dict[int, str]] = {}
    for cell in (*cells(0), *cells(2)):
        found = saved.setdefault(name(cell), {})
        os.environ["DET_HOME"] = str(folder / f"home {name(cell)}")
        trial = fit(cell, 1, stops=True, checkpoint_period=Batch(list(STOPS.values())[:-1]), **between(cell))
        for storage_id in trial.context.core_context.checkpoint.list():
            metadata = trial.context.core_context.checkpoint.get_metadata(storage_id)
            found[metadata["steps_completed"]] = storage_id
    (folder / "saved.json").write_text(json.dumps(saved))


def train_second_halves(folder: Path, workers: int) -> None:
    """With another seed, since the one that counts is in the checkpoint."""
    saved = json.loads((folder / "saved.json").read_text())
    kept = {}
    for cell in cells(workers):
        for stop in STOPS.values():
            os.environ["DET_HOME"] = str(folder / f"home {name(cell)}")
            trial = fit(cell, 2, latest_checkpoint=saved[name(cell)][str(stop)], **between(cell))
            kept[f"{name(cell)},stop={stop}"] = trial.keeper.kept
    torch.save(kept, folder / f"resumed{workers}.pt")


def between(cell: dict[str, int]) -> dict[str, Any]:
    return {"validation_period": Batch(2)} if cell["validates"] else {}


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two states differ in a single bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if torch.equal(one, other) and one.dtype == other.dtype else [where]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{where}.{key}")]
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for i, (a, b) in pairs for found in differences(a, b, f"{where}[{i}]")]
    return [] if type(one) is type(other) and one == other else [f"{where}: {one!r} and {other!r}"]


def start(folder: Path, *job: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "DET_HOME": str(folder / "home"),
        "DET_TRACKING": "off",
    }
    environment |= {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), *job],
        env=environment,
        cwd=folder / "work",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0, output[-3000:]


@pytest.mark.slow
def test_the_resume_matrix(tmp_path: Path) -> None:
    """Decision 5, T45, T46, T47, T110, W3, W15, W29, W38, W59: all states are equal in every bit, in every cell."""
    (tmp_path / "work").mkdir()
    finish(start(tmp_path, "straight"), start(tmp_path, "first"))
    finish(start(tmp_path, "second", "0"), start(tmp_path, "second", "2"))
    straight = torch.load(tmp_path / "straight.pt", weights_only=False)
    resumed = torch.load(tmp_path / "resumed0.pt", weights_only=False)
    resumed |= torch.load(tmp_path / "resumed2.pt", weights_only=False)
    assert len(resumed) == (64 + 8) * len(STOPS)
    problems: dict[str, list[str]] = {}
    for where, state in resumed.items():
        cell = {key: int(value) for key, value in (pair.split("=") for pair in where.split(","))}
        assert state["counters"] == [LENGTH, LENGTH // 5]
        if found := differences(straight[name(cell, "validates", "stop")], state):
            problems[where] = found
    assert problems == {}
    # What is compared is alive: other switches give other weights.
    assert len({str(kept["models_state_dict"]) for kept in straight.values()}) == len(straight)


def main() -> None:
    torch.set_num_threads(1)
    folder, job = Path(sys.argv[1]), sys.argv[2]
    if job == "straight":
        train_straight(folder)
    elif job == "first":
        train_first_halves(folder)
    else:
        train_second_halves(folder, int(sys.argv[3]))


if __name__ == "__main__":
    main()
