"""How two ranks exchange gradients: in half the size, with DDP's options, with parameters no loss needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch
from tests.ddp_trials import Regression, digest, elsewhere, result_of, values
from tests.forks import Nursery
from tests.trials import OneWeight, OneWeightTrial

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class Exchanging(Regression):
    """Clips if told to, and may have its gradients travel in another type."""

    def __init__(
        self, context: pytorch.PyTorchTrialContext, *, travels: Any = None, clip: float | None = None, **options: Any
    ) -> None:
        super().__init__(context, **options)
        context.wrap_optimizer(self.optimizer, fp16_compression=travels)
        self.norms: list[float] = []
        self.clip = clip

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, None if self.clip is None else self._clipped)
        return {"loss": loss}

    def _clipped(self, parameters: Any) -> None:
        self.norms.append(float(nn.utils.clip_grad_norm_(parameters, self.clip or 1.0)))


def exchanged(agg: int = 1, **trial: Any) -> dict[str, Any]:
    """Train, and tell in which types gradients travelled."""
    elsewhere()
    kinds: list[str] = []
    all_reduce = torch.distributed.all_reduce

    def watched(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        kinds.append(str(tensor.dtype).removeprefix("torch."))
        return all_reduce(tensor, *args, **kwargs)

    with (
        mock.patch.object(torch.distributed, "all_reduce", watched),
        pytorch.init(seed=7, aggregation_frequency=agg) as context,
    ):
        made = Exchanging(context, **trial)
        pytorch.Trainer(made, context).fit(max_length=Batch(8), checkpoint_policy="none")
        return {"digest": digest(made), "values": values(made), "kinds": kinds, "norms": made.norms}


# Half the size.


def compressed(agg: int, clip: float | None) -> dict[str, Any]:
    plain = exchanged(agg, clip=clip)
    return {"plain": plain, **{name: exchanged(agg, clip=clip, travels=dtype) for name, dtype in HALVES.items()}}


@pytest.mark.parametrize(("agg", "clip"), [(1, None), (4, None), (4, 0.05)])
def test_gradients_travel_in_half_the_size(agg: int, clip: float | None, nursery: Nursery) -> None:
    """3.3 fp16_compression, W16: ranks stay equal bit for bit, close to the plain run; one exchange per update."""
    chief, other = nursery.run(2, compressed, [agg, clip])
    for name in HALVES:
        assert chief[name]["digest"] == other[name]["digest"]
        assert chief[name]["digest"] != chief["plain"]["digest"]
        assert chief[name]["kinds"] == [name] * (1 + 8 // agg)  # the first tries whether it can be done
        for found, plain in zip(chief[name]["values"], chief["plain"]["values"], strict=True):
            assert found == pytest.approx(plain, abs=1e-3 if name == "float16" else 1e-2)
        # Clipped after the exchange: both ranks see one norm, that of the mean.
        assert chief[name]["norms"] == other[name]["norms"]
        assert chief[name]["norms"] == pytest.approx(chief["plain"]["norms"], rel=0.05)
        assert len(chief[name]["norms"]) == (0 if clip is None else 8 // agg)


def travels_far() -> dict[str, Any]:
    elsewhere()
    rank = int(os.environ["RANK"])

    def one_weight(inputs: float, **options: Any) -> float:
        with pytorch.init(seed=7) as context:
            model = context.wrap_model(OneWeight())
            context.wrap_optimizer(optimizer := torch.optim.SGD(model.parameters(), lr=1.0), **options)
            context.position.batch_idx = 0
            context.backward(model(torch.tensor([inputs])).sum())
            context.step_optimizer(optimizer)
            return model.weight.item()

    def optimizer_first() -> float:
        with pytorch.init(seed=7) as context:
            inner = OneWeight()
            context.wrap_optimizer(optimizer := torch.optim.SGD(inner.parameters(), lr=1.0), fp16_compression=True)
            model = context.wrap_model(inner)
            context.position.batch_idx = 0
            context.backward(model(torch.tensor([1 + 2**-12])).sum())
            context.step_optimizer(optimizer)
            return model.weight.item()

    def two(first: Any, second: Any) -> str:
        with pytorch.init(seed=7) as context:
            model = context.wrap_model(nn.Linear(2, 1))
            context.wrap_optimizer(torch.optim.SGD([model.weight], lr=1.0), fp16_compression=first)
            context.wrap_optimizer(torch.optim.SGD([model.bias], lr=1.0), fp16_compression=second)
        return "fine"

    def refusing(tensor: torch.Tensor, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"Invalid scalar type\n{tensor.dtype}")

    def lacking() -> Any:
        with mock.patch.object(torch.distributed, "all_reduce", refusing):
            return one_weight(1.0, fp16_compression=torch.bfloat16)

    return {
        "large": one_weight([100_000.0, 0.0][rank], fp16_compression=True),
        "optimizer first": optimizer_first(),
        "two alike": two(True, torch.float16),
        "two unlike": result_of(lambda: two(True, torch.bfloat16)),
        "no such type": result_of(lambda: one_weight(1.0, fp16_compression=torch.int8)),
        "lacking": result_of(lacking),
    }


def test_what_compression_can_meet(nursery: Nursery) -> None:
    """The mean is made before the conversion; any order of wrapping counts; what cannot be is one sentence."""
    for said in nursery.run(2, travels_far):
        assert said["large"] == pytest.approx(-50_000, abs=32)  # 100000 is more than float16 can say
        assert said["optimizer first"] == -1.0
        assert said["two alike"] == "fine"
        assert said["two unlike"][0] == "InvalidExperimentException"
        assert "in torch.float16 and in torch.bfloat16" in said["two unlike"][1]
        assert said["no such type"] == [
            "ValueError",
            "fp16_compression=torch.int8: use True for float16, or torch.bfloat16.",
        ]
        assert said["lacking"][0] == "InvalidExperimentException"
        assert "gloo of torch" in said["lacking"][1]
        assert "cannot add gradients in torch.bfloat16 (Invalid scalar type)" in said["lacking"][1]


# Options of DDP.

OPTIONS = {
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "bucket_bytes_cap": {"bucket_cap_mb": 3},
}


def optioned(agg: int) -> dict[str, Any]:
    elsewhere()

    def attribute(name: str, wrap: dict[str, Any]) -> Any:
        with pytorch.init(seed=7) as context:
            return getattr(context.wrap_model(nn.Linear(2, 1), **wrap), name, None)

    said = {name: [attribute(name, wrap), exchanged(agg, wrap=wrap)["values"]] for name, wrap in OPTIONS.items()}
    misspelt = result_of(lambda: exchanged(wrap={"find_unused_parameter": True}))
    return {**said, "plain": exchanged(agg)["values"], "misspelt": misspelt}


@pytest.mark.parametrize("agg", [1, 2])
def test_options_reach_ddp(agg: int, nursery: Nursery) -> None:
    """W13: each keyword is DDP's, and none changes what is trained; one that it does not know is refused."""
    for said in nursery.run(2, optioned, [agg]):
        assert {name: said[name][0] for name in OPTIONS} == {
            "static_graph": True,
            "find_unused_parameters": True,
            "gradient_as_bucket_view": True,
            "bucket_bytes_cap": 3 * 1024 * 1024,
        }
        for name in OPTIONS:  # a static graph is exchanged in every batch, which rounds differently
            rounds = name == "static_graph" and agg > 1
            assert said[name][1] == (pytest.approx(said["plain"], rel=1e-4) if rounds else said["plain"]), name
        assert said["misspelt"][0] == "InvalidExperimentException"
        assert said["misspelt"][1].endswith("Did you mean 'find_unused_parameters'?")


def test_options_on_one_process(nursery: Nursery) -> None:
    """W13: what DDP would take has no effect on one process; what it would refuse is refused there too."""
    (said,) = nursery.run(1, optioned, [1])
    assert all(said[name] == [None, said["plain"]] for name in OPTIONS)
    assert said["misspelt"][0] == "InvalidExperimentException"


# Parameters that no loss needs.


class Partly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1, bias=False), nn.Linear(1, 1)
        nn.init.zeros_(self.used.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class PartlyTrial(OneWeightTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, **wrap: Any) -> None:
        with mock.patch.object(context, "wrap_model", lambda model: _wrapped(context, model, wrap)):
            super().__init__(context, model=Partly())


def _wrapped(context: pytorch.PyTorchTrialContext, model: nn.Module, wrap: dict[str, Any]) -> nn.Module:
    return pytorch.PyTorchTrialContext.wrap_model(context, model, **wrap)


def partly(length: int, **wrap: Any) -> Any:
    with pytorch.init(seed=7) as context:
        trial = PartlyTrial(context, **wrap)
        pytorch.Trainer(trial, context).fit(max_length=Batch(length))
        return trial.model.used.weight.item()


def unused() -> dict[str, Any]:
    elsewhere()
    return {
        "one": result_of(lambda: partly(1)),
        "three": result_of(lambda: partly(3)),
        "found": partly(2, find_unused_parameters=True),
        "static": partly(2, static_graph=True),
    }


def test_parameters_without_a_gradient(nursery: Nursery, home: Path) -> None:
    """Ranks that would step apart save nothing: both say which parameters got no gradient, and what to type.

    DDP itself notices in the next forward pass, which after the last batch never comes.
    """
    for said in nursery.run(2, unused):
        for way in ("one", "three"):
            assert said[way][0] == "InvalidExperimentException", said[way]
            assert "a part of Partly: unused.weight, unused.bias got no gradient" in said[way][1]
            assert "wrap_model(model, find_unused_parameters=True)" in said[way][1]
        assert said["found"] == said["static"] == -9.0
    kept = [path for path in (home / "checkpoints").iterdir() if not path.name.startswith(".")]
    assert len(kept) == 2
