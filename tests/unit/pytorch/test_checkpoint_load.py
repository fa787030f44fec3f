"""What loading a trial's checkpoint restores, and what it says of one that does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import errors
from determined.pytorch import PyTorchCallback
from determined.pytorch.checkpoint.saved import open_checkpoint
from tests.unit.pytorch.checkpoints import Keeps, draws, make_run, state_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def resave(source: Path, target: Path, **changes: Any) -> Path:
    """A copy of a checkpoint with other entries; None removes one."""
    shutil.copytree(source, target)
    state = {**torch.load(source / "state_dict.pth", weights_only=True), **changes}
    torch.save({k: v for k, v in state.items() if v is not None}, target / "state_dict.pth")
    return target


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
    assert loaded
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
    assert not other.checkpointer.load(storage_id)
    assert draws() == after
    assert other.progress.batches_trained == 0
    assert other.stream.state_dict()["position"] == 0
    assert other.callbacks["k"].state == 1  # type: ignore[attr-defined]
    assert other.context.lr_schedulers[0].state_dict()["last_epoch"] == 3
    assert torch.equal(other.model[0].weight, run.model[0].weight)  # type: ignore[index]
    assert open_checkpoint(other.core, storage_id).batches_of(2) == 0
    assert open_checkpoint(other.core, storage_id).batches_of(1) == 3


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
    """6.4: a checkpoint without random state loads with a warning."""
    odd = resave(root / make_run(root).save(), root.parent / "odd", rng_state=None, rng_states=None)
    make_run(root).checkpointer.load(str(odd))
    assert "no rng_state" in caplog.text


def test_missing_counters_start_afresh(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """FIX W31: in an older layout, fresh counters with a warning that names the files looked for."""
    run = make_run(root)
    run.train(2)
    odd = resave(root / run.save(), root.parent / "odd", progress=None, files_beside=None)
    (odd / "trial_state.pkl").unlink()
    other = make_run(root)
    assert not other.checkpointer.load(str(odd))
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
