"""Several ranks stop and go on bit for bit where it is hardest: three of them, mixed precision, loader workers."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, DataLoader
from tests.ddp_trials import FEATURES, Numbered, Regression, digest, elsewhere, values
from tests.forks import Nursery


def storage(name: str) -> dict[str, Any]:
    """A place for the checkpoints of one variant."""
    return {"checkpoint_storage": {"type": "directory", "container_path": f"{os.environ['DET_HOME']}/{name}"}}


# Three ranks.


class Wide(Regression):
    """Layers large enough for gloo to add up different places in different orders."""

    def __init__(self, context: pytorch.PyTorchTrialContext, travels: Any = None, **options: Any) -> None:
        with mock.patch.object(nn, "Sequential", return_value=_Layers()):
            super().__init__(context, shuffle=True, batch_size=2, **options)
        context.wrap_optimizer(self.optimizer, fp16_compression=travels)


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.one, self.two, self.three = nn.Linear(FEATURES, 37), nn.Linear(37, 19), nn.Linear(19, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.two(self.one(x).tanh()).tanh()
        return self.three(hidden)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"travels": torch.float16},
    {"agg": 2, "wrap": {"find_unused_parameters": True, "gradient_as_bucket_view": True}},
    {"agg": 2, "wrap": {"static_graph": True}},
]


def of_three(length: int) -> list[str]:
    elsewhere()
    ends = []
    for number, options in enumerate(VARIANTS):
        more = dict(options)
        with pytorch.init(seed=7, exp_conf=storage(str(number)), aggregation_frequency=more.pop("agg", 1)) as context:
            trial = Wide(context, **more)
            pytorch.Trainer(trial, context).fit(
                max_length=Batch(length), checkpoint_policy="none", latest_checkpoint="latest"
            )
            ends.append(digest(trial))
    return ends


@pytest.mark.slow
def test_three_ranks(nursery: Nursery, home: Path) -> None:
    """Decision 5: with three ranks, where the order of adding up decides the last bit, a resume is exact too.

    So it is with compressed gradients, and with DDP's options in the middle of a group of aggregated batches.
    """
    whole = nursery.run(3, of_three, [8], env={"DET_HOME": str(home / "whole")})
    assert whole[0] == whole[1] == whole[2]
    nursery.run(3, of_three, [3])
    assert nursery.run(3, of_three, [8]) == whole


# Mixed precision.


class Mixed(Regression):
    """Overflows where it is told to.

    Args:
        context: From `init()`.
        dtype: What `use_amp()` computes in, or "manual" for a scaler of the trial's own.
        overflows: (rank, batch) where the loss is infinite.
        clips: Whether gradients are clipped, for which they have to be unscaled.
    """

    def __init__(
        self, context: pytorch.PyTorchTrialContext, dtype: str, overflows: list[int], clips: bool = False
    ) -> None:
        self.manual = dtype == "manual"
        if self.manual:
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3))
        else:
            context.experimental.use_amp(getattr(torch, dtype))
        super().__init__(context, dropout=True, shuffle=True)
        self.overflows, self.clips = overflows, clips
        self.scales: list[float] = []
        self.moved: list[bool] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        before = values(self)
        loss = self.loss(batch)
        if self.overflows == [self.context.distributed.rank, batch_idx]:
            loss = loss * math.inf
        self.context.backward(self.scaler.scale(loss) if self.manual else loss)
        clip = (lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.1)) if self.clips else None
        if self.manual:
            self.context.step_optimizer(self.optimizer, scaler=self.scaler)
            if self.context.gradients.is_update(batch_idx):
                self.scaler.update()
        else:
            self.context.step_optimizer(self.optimizer, clip)
        self.moved.append(values(self) != before)
        self.scales.append(self.context.scaler.get_scale())
        return {"loss": loss}


AMP = {
    "bfloat16": {"agg": 1, "dtype": "bfloat16", "overflows": []},
    "float16": {"agg": 1, "dtype": "float16", "overflows": [1, 3]},
    "clipped": {"agg": 1, "dtype": "float16", "overflows": [0, 3], "clips": True},
    "aggregated": {"agg": 2, "dtype": "float16", "overflows": [1, 2]},
    "manual": {"agg": 2, "dtype": "manual", "overflows": [1, 2]},
}


def mixed(length: int) -> dict[str, Any]:
    elsewhere()
    said = {}
    for name, options in AMP.items():
        more = dict(options)
        with pytorch.init(seed=7, exp_conf=storage(name), aggregation_frequency=more.pop("agg")) as context:
            trial = Mixed(context, **more)
            pytorch.Trainer(trial, context).fit(
                max_length=Batch(length), checkpoint_policy="none", latest_checkpoint="latest"
            )
            scale = context.scaler.get_scale()
            said[name] = {"digest": digest(trial), "moved": trial.moved, "scales": trial.scales, "scale": scale}
    return said


def test_mixed_precision(nursery: Nursery, home: Path) -> None:
    """3.5, decision 5: an overflow on one rank makes both skip the step; ranks are equal; a resume is exact.

    With bfloat16, float16 and a scaler, clipped, aggregated, and with a scaler of the trial's own. The stop is after
    five batches: with aggregation that is in the middle of a group.
    """
    chief, other = nursery.run(2, mixed, [8], env={"DET_HOME": str(home / "whole")})
    assert chief == other
    first = nursery.run(2, mixed, [5])
    second = nursery.run(2, mixed, [8])
    for name, whole in chief.items():
        assert [rank[name]["digest"] for rank in second] == [whole["digest"]] * 2, name
        assert first[0][name]["moved"] + second[0][name]["moved"] == whole["moved"], name
        assert second[0][name]["scale"] == whole["scale"], name
    assert all(chief["bfloat16"]["moved"])
    # The first scale, 2 ** 16, is too large for float16 by itself; what follows is as told. Each skip halves it.
    for name in ("float16", "clipped"):
        assert chief[name]["moved"][1:] == [batch != 3 for batch in range(1, 8)], name
        assert chief[name]["scale"] == 2.0 ** (16 - chief[name]["moved"].count(False)), name
    for name in ("aggregated", "manual"):  # groups end with batches 1, 3, 5 and 7; that of 2 and 3 is lost
        assert chief[name]["moved"][2:] == [batch in (5, 7) for batch in range(2, 8)], name
    assert chief["manual"]["scales"] == [1024, 1024, 1024, 512, 512, 512, 512, 512]


# Loader workers.


class Augmented(Numbered):
    """Draws from every random stream that a worker has."""

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        import random

        import numpy as np

        number, inputs = super().__getitem__(index)
        return number, inputs + torch.rand(FEATURES) + random.random() + float(np.random.rand())


class FromWorkers(Regression):
    def build_training_data_loader(self) -> Any:
        return DataLoader(Augmented(self.records), batch_size=self.batch_size, shuffle=True, num_workers=self.workers)


def from_workers(length: int, workers: int) -> dict[str, Any]:
    elsewhere()
    with pytorch.init(seed=7) as context:
        trial = FromWorkers(context, records=23, batch_size=3, workers=workers, dropout=True)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(length), checkpoint_policy="none", latest_checkpoint="latest", validation_period=Batch(3)
        )
        return {"digest": digest(trial), "seen": trial.seen}


def test_loader_workers(nursery: Nursery, home: Path) -> None:
    """Decision 5: two ranks with two workers each see every record once per epoch, the last batches being uneven.

    They stop in the middle of the second epoch, and with one worker or two go on bit for bit.
    """
    whole = nursery.run(2, from_workers, [8, 2], env={"DET_HOME": str(home / "whole")})
    assert whole[0]["digest"] == whole[1]["digest"]
    for epoch in (0, 1):  # 23 records are 8 batches of 3, the last one of 2: four steps of two ranks
        seen = [number for rank in whole for batch in rank["seen"][4 * epoch : 4 * epoch + 4] for number in batch]
        assert sorted(seen) == list(range(23))
    assert whole[0]["seen"][:4] != whole[0]["seen"][4:]
    first = nursery.run(2, from_workers, [6, 2])
    second = nursery.run(2, from_workers, [8, 1])
    for before, after, never_stopped in zip(first, second, whole, strict=True):
        assert before["seen"] + after["seen"] == never_stopped["seen"]
        assert after["digest"] == never_stopped["digest"]
