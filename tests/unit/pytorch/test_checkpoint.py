"""A trial's checkpoint: its files, its keys, the order of hooks, and what loading restores."""

from __future__ import annotations

import datetime
import enum
import json
import logging
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from determined import errors
from determined.core import DistributedContext
from determined.pytorch import PyTorchCallback
from determined.pytorch._checkpoint_read import find_checkpoint, saved_batches, saved_seed
from determined.pytorch._code import CodeCopy
from tests.ranks import run_threads, try_threads
from tests.unit.pytorch.checkpoints import make_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def state_of(root: Path, storage_id: str) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(root / storage_id / "state_dict.pth", weights_only=True)
    return state


def resave(source: Path, target: Path, **changes: Any) -> Path:
    """A copy of a checkpoint with other entries; None removes one."""
    shutil.copytree(source, target)
    state = {**torch.load(source / "state_dict.pth", weights_only=True), **changes}
    torch.save({k: v for k, v in state.items() if v is not None}, target / "state_dict.pth")
    return target


def draws() -> tuple[Any, ...]:
    return random.random(), np.random.rand(), torch.rand(1).item()


# Files and keys.


def test_files_and_metadata(root: Path, tmp_path: Path) -> None:
    """T37: exactly these files, and steps_completed is the number of batches."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model_def.py").write_text("x = 1\n")
    run = make_run(root, code=CodeCopy(tmp_path / "src"))
    run.train(3)
    storage_id = run.save({"searcher_metric": 0.5})
    held = sorted(path.name for path in (root / storage_id).iterdir())
    assert held == ["code", "load_data.json", "metadata.json", "state_dict.pth", "trial_state.pkl"]
    assert (root / storage_id / "code" / "model_def.py").read_text() == "x = 1\n"
    assert (root / storage_id / "code").stat().st_mode & 0o777 == 0o755
    metadata = json.loads((root / storage_id / "metadata.json").read_text())
    assert metadata["steps_completed"] == 3
    assert metadata["framework"] == f"torch-{torch.__version__}"
    assert metadata["format"] == "pickle"
    assert metadata["trial_class"].endswith(":DigitTrial")
    assert metadata["searcher_metric"] == 0.5
    assert datetime.datetime.fromisoformat(metadata["saved_at"]).tzinfo is not None
    assert "determined_version" in metadata


def test_keys_of_the_state(root: Path) -> None:
    """6.2: the original's keys and structure, readable with weights_only; T46."""
    run = make_run(root, models=2, scaler=torch.amp.GradScaler("cpu"))
    run.train(3)
    state = state_of(root, run.save())
    assert [sorted(part) for part in state["models_state_dict"]] == [["0.bias", "0.weight", "2.bias", "2.weight"]] * 2
    assert [sorted(part) for part in state["optimizers_state_dict"]] == [["param_groups", "state"]] * 2
    assert state["lr_schedulers_state_dict"][0]["last_epoch"] == 3
    assert state["callbacks"] == {}
    assert sorted(state["rng_state"]) == ["cpu_rng_state", "np_rng_state", "random_rng_state"]
    assert len(state["rng_states"]) == 1
    assert state["scaler_state_dict"]["scale"] == 65536.0
    assert state["trial_seed"] == 7
    assert state["progress"]["batches_trained"] == 3


def test_trial_state_is_a_plain_pickle(root: Path) -> None:
    """6.1: scripts that read trial_state.pkl go on working."""
    run = make_run(root, trial_id=5)
    run.train(6)
    run.progress.last_validation = 4
    saved = pickle.loads((root / run.save() / "trial_state.pkl").read_bytes())
    assert saved == {
        "trial_id": 5, "last_ckpt": 6, "step_id": 0, "last_val": 4, "batches_trained": 6, "epochs_trained": 1,
    }  # fmt: skip


class Odd:
    def __repr__(self) -> str:
        return "an odd thing"


@pytest.mark.parametrize(
    ("hparams", "exp_conf", "expected"),
    [
        ({"lr": 0.1}, None, ({"lr": 0.1}, None)),
        (None, {"name": "x"}, (None, {"name": "x"})),
        ({"a": np.float32(2), "b": Odd(), "c": (1, {2})}, None, ({"a": 2.0, "b": "an odd thing", "c": [1, [2]]}, None)),
    ],
)
def test_load_data(root: Path, hparams: Any, exp_conf: Any, expected: Any, caplog: pytest.LogCaptureFixture) -> None:
    """T38, FIX W30: hparams and config are kept independently; what is no JSON is kept as text, and said once."""
    run = make_run(root, hparams=hparams, exp_conf=exp_conf)
    run.save()
    saved = json.loads((root / run.save() / "load_data.json").read_text())
    assert caplog.text.count("hparams.b is of type Odd") == ("b" in (hparams or {}))
    assert (saved["hparams"], saved["experiment_config"]) == expected
    assert saved["trial_type"] == "PyTorchTrial"
    assert saved["trial_cls_spec"] == "tests.unit.pytorch.checkpoints:DigitTrial"
    assert saved["is_trainer"] is True


# Hooks.


class Recorder(PyTorchCallback):
    def __init__(self, log: list[Any], name: str) -> None:
        self.log, self.name = log, name

    def state_dict(self) -> dict[str, Any]:
        self.log.append((self.name, "state_dict"))
        return {"n": 1}

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self.log.append((self.name, "save_start"))
        checkpoint[f"added by {self.name}"] = np.arange(3)

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self.log.append((self.name, "end", sorted(p.name for p in Path(checkpoint_dir).iterdir())))

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        self.log.append((self.name, "write_end"))
        Path(checkpoint_dir, f"{self.name}.txt").write_text("mine")

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        self.log.append((self.name, "load_start"))
        checkpoint["models_state_dict"][0]["2.bias"] += 1
        assert (checkpoint[f"added by {self.name}"] == np.arange(3)).all()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.log.append((self.name, "load", state_dict))


@pytest.mark.filterwarnings("ignore:on_checkpoint_end")
@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_run_in_order(root: Path, is_async: bool) -> None:
    """T34, T35, 5.3: order on saving and loading; added keys and files are stored, edited weights are loaded."""
    log: list[Any] = []
    run = make_run(root, callbacks={"a": Recorder(log, "a"), "b": Recorder(log, "b")})
    run.train(1)
    if is_async:
        run.checkpointer.save_async()
        storage_id = run.checkpointer.wait()
    else:
        storage_id = run.save()
    assert storage_id is not None
    files = ["code", "load_data.json", "state_dict.pth", "trial_state.pkl"]
    assert log == [
        ("a", "state_dict"), ("b", "state_dict"), ("a", "save_start"), ("b", "save_start"),
        ("a", "end", files), ("a", "write_end"), ("b", "end", sorted([*files, "a.txt"])), ("b", "write_end"),
    ]  # fmt: skip
    assert (root / storage_id / "b.txt").read_text() == "mine"
    log.clear()
    bias = run.model[2].bias.clone()  # type: ignore[index]
    other = make_run(root, callbacks={"a": Recorder(log, "a")})
    other.checkpointer.load(storage_id)
    assert log == [("a", "load_start"), ("a", "load", {"n": 1})]
    assert torch.equal(other.model[2].bias, bias + 1)  # type: ignore[index]


class Mood(enum.Enum):
    GOOD = 1


class Keeps(PyTorchCallback):
    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = state_dict["kept"]


def test_callback_state_comes_back_as_it_was(root: Path) -> None:
    """numpy, tuples, sets, dates, enums: reversibly encoded."""
    state = {"a": np.float64(1), "b": (1, {2}), "c": datetime.date(2024, 1, 1), "d": Mood.GOOD}
    storage_id = make_run(root, callbacks={"k": Keeps(state)}).save()
    callback = Keeps(None)
    make_run(root, callbacks={"k": callback}).checkpointer.load(storage_id)
    assert callback.state == state
    assert type(callback.state["a"]) is np.float64


def test_a_state_that_cannot_be_saved_is_named(root: Path) -> None:
    """TypeError naming callback and key, and nothing is stored."""
    with pytest.raises(TypeError, match=r"callback 'k'.*\['kept'\].*Odd"):
        make_run(root, callbacks={"k": Keeps(Odd())}).save()
    assert not [path for path in root.glob("*") if not path.name.startswith(".")]


# Loading.


@pytest.mark.parametrize("batches", [1, 3, 5, 6])
@pytest.mark.parametrize("by_path", [False, True])
def test_training_continues_bit_for_bit(root: Path, batches: int, by_path: bool) -> None:
    """T45, T46: weights, optimizer, scheduler, dropout and shuffled data after a load are those of an unbroken run."""
    run = make_run(root)
    run.train(batches)
    storage_id = run.save()
    losses = run.train(7)
    torch.manual_seed(99)
    other = make_run(root)
    loaded = other.checkpointer.load(str(root / storage_id) if by_path else storage_id)
    assert loaded.continues
    assert other.progress.batches_trained == batches
    assert other.train(7) == losses
    for mine, theirs in zip(run.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


class Draws(PyTorchCallback):
    def state_dict(self) -> dict[str, Any]:
        draws()
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        draws()

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        draws()

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        draws()


@pytest.mark.parametrize("is_async", [False, True])
def test_saving_does_not_change_training(root: Path, is_async: bool) -> None:
    """Issue 4, section 3: a run that saves after every batch has the bits of one that never does, hooks and all."""
    torch.manual_seed(1)
    plain = make_run(root).train(4)
    torch.manual_seed(1)
    run = make_run(root, callbacks={"d": Draws()})
    losses = []
    for _ in range(4):
        losses += run.train(1)
        if is_async:
            run.checkpointer.save_async()
        else:
            run.save()
    storage_id = run.checkpointer.wait() if is_async else run.save()
    assert losses == plain
    after = draws()
    other = make_run(root, callbacks={"d": Draws()})
    assert storage_id is not None
    other.checkpointer.load(storage_id)
    assert draws() == after


def test_another_trial_is_a_warm_start(root: Path) -> None:
    """T30: all is restored but counters and data."""
    callback = Keeps(1)
    run = make_run(root, trial_id=1, callbacks={"k": callback})
    run.train(3)
    storage_id = run.save()
    after = draws()
    other = make_run(root, trial_id=2, callbacks={"k": Keeps(2)})
    assert not other.checkpointer.load(storage_id).continues
    assert draws() == after
    assert other.progress.batches_trained == 0
    assert other.stream.state_dict()["position"] == 0
    assert other.callbacks["k"].state == 1  # type: ignore[attr-defined]
    assert other.context.lr_schedulers[0].state_dict()["last_epoch"] == 3
    assert torch.equal(other.model[0].weight, run.model[0].weight)  # type: ignore[index]
    assert saved_batches(other.core, storage_id, 2) == 0
    assert saved_batches(other.core, storage_id, 1) == 3


def test_waiting_gradients_are_restored(root: Path) -> None:
    """FIX W15: gradients of an unfinished group survive, and a warm start does not get them."""
    run = make_run(root)
    run.train(1)
    run.model(torch.ones(1, 4)).sum().backward()
    storage_id = run.save()
    other = make_run(root)
    other.checkpointer.load(storage_id)
    assert torch.equal(other.model[2].bias.grad, run.model[2].bias.grad)  # type: ignore[index]
    warm = make_run(root, trial_id=9)
    warm.checkpointer.load(storage_id)
    assert warm.model[2].bias.grad is None  # type: ignore[index]


def test_a_compiled_model_fits_a_plain_one(root: Path) -> None:
    """T33: `module.` and `_orig_mod.` prefixes of other runs are understood, and never written."""
    run = make_run(root)
    saved = root / run.save()
    plain = state_of(root, saved.name)["models_state_dict"][0]
    for prefix in ("module.", "_orig_mod.", "module._orig_mod."):
        odd = resave(
            saved, root.parent / prefix, models_state_dict=[{prefix + name: value for name, value in plain.items()}]
        )
        other = make_run(root)
        other.checkpointer.load(str(odd))
        assert torch.equal(other.model[0].weight, run.model[0].weight)  # type: ignore[index]


def test_everything_that_does_not_fit_is_said_at_once(root: Path) -> None:
    """Style 3 and 6: one message with the checkpoint's name, and nothing changes."""
    storage_id = make_run(root, optimizers=0).save()
    other = make_run(root, models=2, width=5)
    before = {name: value.clone() for name, value in other.model.state_dict().items()}
    streams = torch.get_rng_state()
    with pytest.raises(errors.InvalidCheckpointException) as caught:
        other.checkpointer.load(storage_id)
    text = str(caught.value)
    assert f"Checkpoint {storage_id}" in text
    assert "It holds 1 model (Sequential), and this trial wrapped 2 models (Sequential, Sequential)" in text
    assert "0.weight: saved with shape (3, 4), here (5, 4)" in text
    assert "It holds 0 optimizers, and this trial wrapped 2 optimizers (Adam, Adam)" in text
    assert all(torch.equal(before[name], value) for name, value in other.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), streams)


def test_another_kind_of_optimizer_or_scheduler_is_said(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 4: compared before anything is loaded, where torch would fail in the first step after it."""
    step = torch.optim.lr_scheduler.StepLR
    storage_id = make_run(root, scheduler=lambda optimizer: step(optimizer, 2)).save()
    other = make_run(root, scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0))
    other.context.optimizers[0] = torch.optim.SGD(other.model.parameters(), 0.1)
    with pytest.raises(errors.InvalidCheckpointException) as caught:
        other.checkpointer.load(storage_id)
    assert "optimizer 0 (SGD): it was saved by another kind of optimizer, which has no dampening" in str(caught.value)
    assert "lr_scheduler 0 (LambdaLR): it was saved by another kind of scheduler" in str(caught.value)

    close = make_run(root, scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    close.context.optimizers[0] = torch.optim.AdamW(close.model.parameters(), 0.1)
    close.checkpointer.load(storage_id)
    assert "Optimizer 0 was saved as Adam, and is AdamW here" in caplog.text
    assert "Lr_scheduler 0 was saved as StepLR, and is ExponentialLR here" in caplog.text


def test_older_torch_had_fewer_settings(root: Path) -> None:
    """6.5: what an optimizer of torch got since then is no reason to refuse its state."""
    path = root / make_run(root).save()
    state = torch.load(path / "state_dict.pth", weights_only=True)["optimizers_state_dict"]
    for name in ("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"):
        del state[0]["param_groups"][0][name]
    make_run(root).checkpointer.load(str(resave(path, root.parent / "odd", optimizers_state_dict=state)))


def test_a_missing_random_state_is_a_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """6.4: no rng_state → warning."""
    odd = resave(root / make_run(root).save(), root.parent / "odd", rng_state=None, rng_states=None)
    make_run(root).checkpointer.load(str(odd))
    assert "no rng_state" in caplog.text


def test_missing_counters_start_afresh(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """FIX W31: fresh counters with a warning that names the files looked for."""
    run = make_run(root)
    run.train(2)
    odd = resave(root / run.save(), root.parent / "odd", progress=None)
    (odd / "trial_state.pkl").unlink()
    other = make_run(root)
    assert not other.checkpointer.load(str(odd)).continues
    assert "trial_state.pkl, workload_sequencer.pkl" in caplog.text
    assert other.progress.batches_trained == 0


def test_what_is_no_checkpoint_is_said(root: Path, tmp_path: Path) -> None:
    """FIX W31: files looked for are named; unknown id → CheckpointNotFound; a file that is no dict; a torn one."""
    run = make_run(root)
    with pytest.raises(errors.CheckpointNotFound):
        run.checkpointer.load("00000000-0000-4000-8000-000000000000")
    with pytest.raises(errors.CheckpointNotFound, match=r"There is no directory .*absent"):
        run.checkpointer.load(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.InvalidCheckpointException, match=r"pedl/state_dict\.pth"):
        run.checkpointer.load(str(tmp_path / "empty"))
    torch.save([1], tmp_path / "empty" / "state_dict.pth")
    with pytest.raises(errors.InvalidCheckpointException, match="holds a list"):
        run.checkpointer.load(str(tmp_path / "empty"))
    (tmp_path / "empty" / "state_dict.pth").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(errors.DeterminedError, match=r"state_dict\.pth"):
        run.checkpointer.load(str(tmp_path / "empty"))


def test_a_damaged_checkpoint_is_refused(root: Path) -> None:
    """Decision 6: readers verify the manifest, by id or by path, in this storage or in another."""
    run = make_run(root)
    storage_id = run.save()
    with (root / storage_id / "state_dict.pth").open("r+b") as file:
        file.seek(200)
        file.write(b"\xff")
    for source in (storage_id, str(root / storage_id)):
        with pytest.raises(errors.CheckpointDamaged, match=r"state_dict\.pth has other content"):
            run.checkpointer.load(source)
    with pytest.raises(errors.CheckpointDamaged, match=r"state_dict\.pth has other content"):
        make_run(root.parent / "another").checkpointer.load(str(root / storage_id))


class WithCode(torch.optim.lr_scheduler.LRScheduler):
    """Like popular warm-up schedulers: holds a function and another scheduler."""

    def __init__(self, optimizer: Any) -> None:
        self.scale = lambda step: 0.5**step
        self.after = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        if hasattr(self, "_step_count") and self.last_epoch > 0:
            self.after.step()
        return [base * self.scale(self.last_epoch) for base in self.base_lrs]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step")
def test_schedulers_that_hold_code_are_restored(root: Path) -> None:
    """Users' own schedulers keep working: functions stay, nested schedulers are restored in place."""
    run = make_run(root, scheduler=WithCode)
    run.train(3)
    storage_id, steps = run.save(), run.context.lr_schedulers[0].scheduler.after.last_epoch
    losses = run.train(2)
    other = make_run(root, scheduler=WithCode)
    after = other.context.lr_schedulers[0].scheduler.after
    other.checkpointer.load(storage_id)
    assert other.context.lr_schedulers[0].scheduler.after is after
    assert after.last_epoch == steps
    assert other.train(2) == losses


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 2, 4]),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.5)],
            milestones=[2],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_schedulers_of_torch_are_restored(root: Path, scheduler: Any) -> None:
    """FIX W32: scheduler data are plain tensors and numbers."""
    run = make_run(root, scheduler=scheduler)
    run.train(3)
    storage_id = run.save()
    losses = run.train(4)
    other = make_run(root, scheduler=scheduler)
    other.checkpointer.load(storage_id)
    assert other.train(4) == losses


# Several ranks.


def test_ranks_save_and_load_as_one(root: Path) -> None:
    """FIX W29: every rank's random state is kept; all ranks get the id; the chief alone writes."""

    def body(distributed: DistributedContext) -> str:
        run = make_run(root, distributed=distributed)
        storage_id = run.save()
        make_run(root, distributed=distributed).checkpointer.load(storage_id)
        return storage_id

    first, second = run_threads(2, body)
    assert first == second
    assert len(state_of(root, first)["rng_states"]) == 2
    assert len(list(root.glob("*-*"))) == 1


def test_an_error_of_one_rank_is_everybodys(root: Path) -> None:
    """FIX W9: hooks that fail on the chief, or a load that fails on another rank, leave nobody waiting."""

    class Fails(PyTorchCallback):
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
            raise OSError("the disk is full")

        def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
            if self.rank == 1:
                raise ValueError("not on my rank")

    storage_id = make_run(root).save()

    def body(distributed: DistributedContext) -> None:
        run = make_run(root, distributed=distributed, callbacks={"f": Fails(distributed.rank)})
        with pytest.raises(OSError, match="full"):
            run.save()
        with pytest.raises((ValueError, errors.CollectiveError), match="not on my rank"):
            run.checkpointer.load(storage_id)

    assert try_threads(2, body) == [None, None]


def test_another_number_of_ranks_derives_streams(root: Path) -> None:
    """Decision 5: deterministic per rank, and gradients that wait are averaged."""

    def body(distributed: DistributedContext) -> str:
        run = make_run(root, distributed=distributed)
        run.model(torch.ones(1, 4)).sum().backward()
        run.model[2].bias.grad.fill_(float(distributed.rank))  # type: ignore[index]
        return run.save()

    storage_id = run_threads(2, body)[0]
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        run = make_run(root)
        run.checkpointer.load(storage_id)
        drawn.append(draws())
        assert run.model[2].bias.grad.tolist() == [0.5]  # type: ignore[index]
    assert drawn[0] == drawn[1]


# Finding one.


def test_the_seed_is_known_before_loading(root: Path) -> None:
    """A resumed local run continues with the saved seed."""
    run = make_run(root, seed=123)
    storage_id = run.save()
    assert saved_seed(run.core, storage_id) == 123
    assert saved_seed(run.core, str(root / storage_id)) == 123
    (root / storage_id / "metadata.json").unlink()
    assert saved_seed(run.core, str(root / storage_id)) is None


def test_latest_and_best(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 4: "latest" by time, "best" by the searcher metric, of the same class; NaN is never best."""
    run = make_run(root)
    assert find_checkpoint(run.core, "latest", "DigitTrial") is None
    run.save({"searcher_metric": float("nan")})
    assert find_checkpoint(run.core, "best", "DigitTrial") is None
    ids = [run.save({"searcher_metric": value}) for value in (0.3, 0.1, float("nan"), 0.2)]
    plain = run.save()
    assert find_checkpoint(run.core, "latest", "DigitTrial") == plain
    assert find_checkpoint(run.core, "latest", "tests.unit.pytorch.checkpoints:DigitTrial") == plain
    assert find_checkpoint(run.core, "best", "DigitTrial", True) == ids[1]
    assert find_checkpoint(run.core, "best", "DigitTrial", False) == ids[0]
    assert find_checkpoint(run.core, "latest", "OtherTrial") is None
    (root / plain / "metadata.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert find_checkpoint(run.core, "latest", "DigitTrial") == ids[3]
    assert plain in caplog.text


def test_a_module_of_the_users_own_state(root: Path) -> None:
    """Extra state of a module (get_extra_state) is part of the model, whatever plain values it has."""

    class Extra(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: Any = None

        def get_extra_state(self) -> Any:
            return {"seen": np.arange(2)}

        def set_extra_state(self, state: Any) -> None:
            self.seen = state["seen"]

    run = make_run(root)
    run.context.models.append(Extra())
    storage_id = run.save()
    other = make_run(root)
    other.context.models.append(Extra())
    other.checkpointer.load(storage_id)
    assert other.context.models[1].seen.tolist() == [0, 1]  # type: ignore[union-attr]
