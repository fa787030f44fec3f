"""Two processes train what one process trains; whatever differs between ranks has one result, or one error, on all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, DataLoader, Epoch, Reducer
from tests.ddp_trials import FEATURES, Regression, digest, elsewhere, regress, result_of, values
from tests.forks import Nursery
from tests.trials import OneWeight, OneWeightTrial, managed, train

# The same training.


class TwoModels(Regression):
    """A second model, half of which is not used, with an optimizer of its own; reducers that count records."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        super().__init__(context, **options)
        torch.manual_seed(4)
        second = nn.ModuleDict({"used": nn.Linear(FEATURES, 1), "unused": nn.Linear(FEATURES, 1)})
        self.second = context.wrap_model(_Partly(second), find_unused_parameters=True)
        self.second_optimizer = context.wrap_optimizer(torch.optim.Adam(self.second.parameters(), lr=0.01))
        self.numbers = context.wrap_reducer(_flat, name="numbers", for_training=False)
        self.trained = context.wrap_reducer(_flat, name="trained", for_validation=False)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        loss = self.second(batch[1]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(
            self.second_optimizer, clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 0.01)
        )
        self.trained.update(batch[0].tolist())
        return {**metrics, "second": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.numbers.update(batch[0].tolist())
        return super().evaluate_batch(batch, batch_idx)


class _Partly(nn.Module):
    def __init__(self, parts: nn.ModuleDict) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts["used"](x)


def _flat(lists: list[list[int]]) -> float:
    """Depends on every record, and on nothing else."""
    return float(sum(number * number for numbers in lists for number in numbers))


def same_training(agg: int) -> dict[str, Any]:
    elsewhere()
    said: dict[str, Any] = {}

    class Keeper(pytorch.PyTorchCallback):
        def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: Any) -> None:
            said["loss"], said["trained"] = avg_metrics["loss"], avg_metrics["trained"]

        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            said["numbers"], said["validation"] = metrics["numbers"], float(metrics["loss"])

    with pytorch.init(seed=7, aggregation_frequency=agg) as context:
        size = context.distributed.size
        trial = TwoModels(context, batch_size=4 // size, callbacks={"keeper": Keeper()}, shuffle=True)
        pytorch.Trainer(trial, context).fit(max_length=Batch(12), checkpoint_policy="none")
        second = torch.cat([parameter.detach().flatten() for parameter in trial.second.parameters()])
        return {**said, "digest": digest(trial), "values": [*values(trial), *second.tolist()], "seen": trial.seen}


@pytest.mark.parametrize("agg", [1, 4])
def test_two_ranks_train_what_one_process_does(agg: int, nursery: Nursery) -> None:
    """W13, W16, T81: the same global batches give the same parameters; ranks are equal bit for bit, reducers exactly.

    Two models, two optimizers, one clipped, one model with parameters that no loss needs.
    """
    (alone,) = nursery.run(1, same_training, [agg])
    ranks = nursery.run(2, same_training, [agg])
    assert ranks[0]["digest"] == ranks[1]["digest"]
    assert ranks[0]["values"] == ranks[1]["values"]
    torch.testing.assert_close(torch.tensor(ranks[0]["values"]), torch.tensor(alone["values"]), rtol=1e-4, atol=1e-5)
    for rank in ranks:
        assert (rank["numbers"], rank["trained"]) == (alone["numbers"], alone["trained"])
        assert rank["loss"] == pytest.approx(alone["loss"], rel=1e-4)
        assert rank["validation"] == pytest.approx(alone["validation"], rel=1e-4)
    together = [[*first, *second] for first, second in zip(*(rank["seen"] for rank in ranks), strict=True)]
    assert together == alone["seen"]


# What may differ between ranks.


class Odd(OneWeightTrial):
    """Each batch's metrics as the test says, from the records in it and the rank."""

    def __init__(
        self,
        context: pytorch.PyTorchTrialContext,
        log: Any = None,
        *,
        train: Any = None,
        order: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(context, log, **more)
        self.train = train
        if order is not None:
            self.data = torch.tensor(order, dtype=torch.float32).reshape(-1, 1)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        return metrics if self.train is None else self.train(batch, self.context.distributed.rank)


class InFull(OneWeightTrial):
    """Evaluated on the chief, with a model that has buffers."""

    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        batches = [batch.flatten().tolist() for batch in data_loader]
        with torch.no_grad():
            self.model(torch.ones(2, 1))
        self.log.append(("full", batches))
        return {"total": sum(sum(batch) for batch in batches)}


class Normed(OneWeight):
    """One weight, and buffers that DDP keeps equal by talking in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.norm(x)
        return super().forward(x)


class NormedTrial(OneWeightTrial):
    """Validation runs the model, which has buffers."""

    def __init__(self, context: pytorch.PyTorchTrialContext, log: Any = None, **more: Any) -> None:
        super().__init__(context, log, model=Normed(), **more)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.model(batch)
        return {"value": batch.mean()}


class UncheckedTrial(NormedTrial):
    """Takes loaders of the user's own."""

    def __init__(self, context: pytorch.PyTorchTrialContext, log: Any = None, **more: Any) -> None:
        context.experimental.disable_dataset_reproducibility_checks()
        super().__init__(context, log, **more)

    def build_validation_data_loader(self) -> Any:
        return [torch.tensor([[1.0], [3.0]])] * (3 if self.context.distributed.rank else 0)


def reported(**options: Any) -> dict[str, Any]:
    """What the chief reports when trained so, without the counters; what the others report is dropped by them."""
    run = train(**{"max_length": Batch(4), **options})
    without = ("batches", "epochs")
    last = {
        name: {key: value for key, value in entries[-1][1].items() if key not in without}
        for name in ("training", "validation")
        if (entries := run.of(name))
    }
    return {**last, "weight": run.trial.weight, "batches": len(run.batches)}


def as_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_numbers(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_numbers(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def different_ranks() -> dict[str, Any]:
    elsewhere()
    rank = int(os.environ["RANK"])
    one_by_one = {"batch_size": 1}

    def loader(records: int) -> Callable[[], Any]:
        return lambda: DataLoader(torch.arange(1.0, records + 1).reshape(-1, 1), batch_size=1)

    def say(batch: torch.Tensor) -> dict[str, Any]:
        return {"value": batch.mean()}

    cases: dict[str, Callable[[], Any]] = {
        "T80": lambda: train(
            Odd,
            {"train": lambda batch, _: {"value": batch.sum()}, "records": 4, "loader": one_by_one},
            max_length=Batch(2),
        ).of("training")[-1][1:],
        "T90": lambda: reported(make=Odd, trial={"train": lambda *_: {}}),
        "T109": lambda: reported(make=Odd, trial={"train": lambda *_: {"word": "yes", "one": 1}}),
        "only on one rank": lambda: reported(make=Odd, trial={"train": lambda _, r: {"a": 1.0} if r else {"b": 2.0}}),
        "no dict on one rank": lambda: reported(make=Odd, trial={"train": lambda _, r: 3 if r else {"b": 2.0}}),
        "T72": lambda: reported(make=NormedTrial, trial={"validation_loader": loader(3)}),
        "T76": lambda: reported(make=NormedTrial, trial={"validation_loader": loader(1)}),
        "chief without data": lambda: reported(make=UncheckedTrial),
        "no data": lambda: reported(trial={"validation_loader": loader(0)}),
        "validation {}": lambda: reported(trial={"evaluates": lambda _: {}}),
        "validation text": lambda: reported(trial={"evaluates": lambda _: {"word": "yes"}}),
        "validation names": lambda: reported(trial={"evaluates": lambda _: {"ab"[rank]: 1.0}}),
        "validation raises": lambda: reported(trial={"evaluates": lambda batch: {"a": 1 / rank}}),
        "sum": lambda: reported(trial={"validation_loader": loader(5), "evaluates": say, "reducer": Reducer.SUM}),
    }
    return {name: as_numbers(result_of(case)) for name, case in cases.items()}


def test_metrics_that_differ_between_ranks(nursery: Nursery) -> None:
    """T72, T76, T80, T90, T109, W4, W9, W42, W58: one result, or one error, on every rank; nobody hangs."""
    ranks = nursery.run(2, different_ranks)
    chief, other = ranks
    for name in chief:
        if name not in ("validation raises", "no dict on one rank"):
            assert chief[name] == other[name], name
    averages, batches = chief["T80"]
    assert averages["value"] == 2.5
    assert [batch["value"] for batch in batches] == [1.5, 3.5]
    assert (chief["T90"]["training"], chief["T90"]["batches"]) == ({}, 4)
    assert chief["T109"]["training"] == {"word": None, "one": 1.0}
    assert chief["T72"]["validation"] == {"value": 2.0}  # 1 and 3 on one rank, 2 on the other
    assert chief["T76"]["validation"] == {"value": 1.0}
    assert chief["chief without data"]["validation"] == {"value": 2.0}
    assert chief["sum"]["validation"] == {"value": 15.0}
    assert chief["validation {}"]["validation"] == {}
    assert chief["no data"][0] == "RuntimeError"
    assert "gave no batch on any rank" in chief["no data"][1]
    assert chief["validation text"][0] == "TypeError"
    assert chief["validation names"][0] == "ValueError"
    assert "on ranks [0] but not on ranks [1]" in chief["validation names"][1]
    assert chief["validation raises"][0] == "ZeroDivisionError"
    assert other["validation raises"][0] == "CollectiveError"
    assert "rank 0 failed with ZeroDivisionError" in other["validation raises"][1]
    for rank in ranks:  # the one that it happened on has the error itself, the other is told
        assert "train_batch() returned" in rank["no dict on one rank"][1]
        assert "rank 1" in rank["no dict on one rank"][1]


def who_does_what() -> dict[str, Any]:
    elsewhere()
    uneven = train(
        trial={"records": 5, "loader": {"batch_size": 1}}, max_length=Epoch(2), hooks={}, checkpoint_period=Epoch(2)
    )
    full = train(InFull, {"model": Normed()}, validation_period=Batch(2))
    moves = []
    for averages in (True, False):
        with pytorch.init(seed=1, aggregation_frequency=2) as context:
            context.default_average_aggregated_gradients = averages
            trial = Odd(context, order=[1, 3, 2, 4], loader={"batch_size": 1})
            pytorch.Trainer(trial, context).fit(max_length=Batch(2), checkpoint_policy="none")
            moves.append(trial.weight)
    drawn = []
    with managed(seed=11, slots=2):
        for _ in range(2):
            with pytorch.init() as context:
                drawn.append([torch.rand(1).item(), context.get_trial_seed()])
    return {
        "records": [records[0] for records in uneven.data],
        "hooks": uneven.hooks(),
        "epochs": [entry[1] for entry in uneven.of("hook") if entry[0] == "on_training_epoch_end"],
        "full": full.of("full"),
        "total": [entry[1]["total"] for entry in full.of("validation")],
        "moves": moves,
        "drawn": drawn,
    }


def test_who_does_what(nursery: Nursery) -> None:
    """T22, T41, T51, T93, T106, W44, W54: epochs of uneven length, the chief's part, gradients by hand, seeds."""
    chief, other = nursery.run(2, who_does_what)
    # T22 with W44: three steps, each record once; in the last one rank 1 has none left and stands in.
    assert chief["records"] == [1, 3, 5, 1, 3, 5]
    assert (other["records"][:2], other["records"][3:5]) == ([2, 4], [2, 4])
    assert chief["epochs"] == other["epochs"] == [0, 1]
    # T93
    on_chief = {"state_dict", "on_checkpoint_save_start", "on_checkpoint_write_end"}
    assert on_chief <= set(chief["hooks"])
    assert not on_chief & set(other["hooks"])
    assert {"on_checkpoint_upload_end", "on_training_workload_end", "on_validation_end"} <= set(other["hooks"])
    assert [hook for hook in chief["hooks"] if hook not in on_chief] == other["hooks"]
    # T41
    assert chief["full"] == [[[[1, 2, 3, 4], [5, 6, 7, 8]]]] * 3
    assert other["full"] == []
    assert chief["total"] == other["total"] == [36, 36, 36]
    # T51
    assert chief["moves"] == other["moves"] == [-2.5, -5]
    # T106
    assert chief["drawn"] == other["drawn"]
    assert chief["drawn"][0] == chief["drawn"][1]
    assert chief["drawn"][0][1] == 11


# Checkpoints.


def saved(dropout: bool) -> dict[str, Any]:
    elsewhere()
    return regress(trial={"norm": True, "dropout": dropout, "batch_size": 8 // int(os.environ["WORLD_SIZE"])})


def loaded() -> dict[str, Any]:
    elsewhere()
    return regress(trial={"norm": True}, latest_checkpoint="latest", max_length=Batch(6))


def test_checkpoints_fit_any_number_of_ranks(nursery: Nursery, home: Path) -> None:
    """T33, T43, W33: what two ranks saved one process loads and exports, and what it saved two ranks load."""
    pair = nursery.run(2, saved, [False])
    (one,) = nursery.run(1, loaded)
    assert one["digest"] == pair[0]["digest"]
    assert one["seen"] == []
    (storage_id,) = [path.name for path in (home / "checkpoints").iterdir() if not path.name.startswith(".")]
    exported = pytorch.load_trial_from_checkpoint_path(
        str(home / "checkpoints" / storage_id), trial_class=Regression, trial_kwargs={"norm": True}
    )
    assert digest(exported) == pair[0]["digest"]


def test_a_plain_checkpoint_in_two_ranks(nursery: Nursery) -> None:
    """T33: a checkpoint of a plain run loads into a DDP run of two ranks, with the same weights."""
    (one,) = nursery.run(1, saved, [False])
    pair = nursery.run(2, loaded)
    assert [rank["digest"] for rank in pair] == [one["digest"]] * 2
    assert [rank["validated"] for rank in pair] == [[], []]
