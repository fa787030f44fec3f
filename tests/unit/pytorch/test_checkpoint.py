"""A trial's checkpoint: its files, its keys, the order of hooks, several ranks, and how one is found."""

from __future__ import annotations

import datetime
import enum
import json
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from determined import artifacts, errors
from determined.core import DistributedContext
from determined.pytorch import PyTorchCallback
from determined.pytorch.checkpoint.saved import find_checkpoint, open_checkpoint
from determined.pytorch.code.copying import CodeCopy
from tests.ranks import run_threads, try_threads
from tests.unit.pytorch.checkpoints import Keeps, draws, make_run, state_of
from tests.unit.pytorch.code_trees import fill, imported


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


# Files and keys.


def test_files_and_metadata(root: Path, tmp_path: Path) -> None:
    """T37: exactly these files, and steps_completed is the number of batches."""
    fill(tmp_path / "src", "model_def.py")
    run = make_run(root, code=CodeCopy(tmp_path / "src", modules=imported(tmp_path / "src", model_def="model_def.py")))
    run.train(3)
    storage_id = run.save({"searcher_metric": 0.5})
    held = sorted(path.name for path in (root / storage_id).iterdir())
    assert held == ["code", "load_data.json", "metadata.json", "state_dict.pth", "trial_state.pkl"]
    assert (root / storage_id / "code" / "model_def.py").read_text() == "model_def.py"
    assert (root / storage_id / "code").stat().st_mode & 0o777 == 0o755
    metadata = json.loads((root / storage_id / "metadata.json").read_text())
    assert metadata["steps_completed"] == 3
    assert metadata["framework"] == f"torch-{torch.__version__}"
    assert metadata["format"] == "pickle"
    assert metadata["trial_class"].endswith(":DigitTrial")
    assert metadata["searcher_metric"] == 0.5
    assert datetime.datetime.fromisoformat(metadata["saved_at"]).tzinfo is not None
    assert "determined_version" in metadata


def test_code_is_stored_once_for_all_checkpoints(root: Path, tmp_path: Path) -> None:
    """Issue 12, 4: each checkpoint has its code/, whichever other is deleted; a module that comes later is added."""
    fill(tmp_path / "src", "model_def.py", "later.py")
    modules = imported(tmp_path / "src", __main__="model_def.py")
    run = make_run(root, code=CodeCopy(tmp_path / "src", modules=modules))
    one = run.save()
    modules |= imported(tmp_path / "src", later="later.py")
    (tmp_path / "src" / "model_def.py").write_text("edited while the run goes on")
    run.checkpointer.save_async()
    two, three = run.checkpointer.wait(), run.save()
    assert [sorted(p.name for p in (root / str(i) / "code").iterdir()) for i in (one, two, three)] == [
        ["model_def.py"],
        ["later.py", "model_def.py"],
        ["later.py", "model_def.py"],
    ]
    for name in ("code/model_def.py", "load_data.json"):
        assert (root / one / name).stat().st_ino == (root / three / name).stat().st_ino
    run.core.checkpoint.delete(one)
    assert (root / three / "code" / "model_def.py").read_text() == "model_def.py"
    assert json.loads((root / three / "load_data.json").read_text())["script"] == "model_def.py"
    assert all(artifacts.open_storage(root).verify(str(i)) == [] for i in (two, three))


def test_hooks_may_change_what_they_see_of_the_code(root: Path, tmp_path: Path) -> None:
    """Write-end hooks find code/; what one changes or removes there is so in its checkpoint, and in no other."""

    class Edits(PyTorchCallback):
        def __init__(self) -> None:
            self.saves = 0

        def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
            self.saves += 1
            code = Path(checkpoint_dir, "code")
            assert sorted(path.name for path in code.iterdir()) == ["a.py", "b.py", "c.py"]
            if self.saves == 2:
                with (code / "a.py").open("a") as file:
                    file.write(" and more")
                (code / "b.py").unlink()

    fill(tmp_path / "src", "a.py", "b.py", "c.py")
    modules = imported(tmp_path / "src", a="a.py", b="b.py", c="c.py")
    run = make_run(root, callbacks={"edits": Edits()}, code=CodeCopy(tmp_path / "src", modules=modules))
    ids = [run.save() for _ in range(3)]
    texts = [{path.name: path.read_text() for path in (root / i / "code").iterdir()} for i in ids]
    assert texts[0] == texts[2] == {"a.py": "a.py", "b.py": "b.py", "c.py": "c.py"}
    assert texts[1] == {"a.py": "a.py and more", "c.py": "c.py"}
    assert (root / ids[0] / "code" / "c.py").stat().st_nlink == 3
    assert all(artifacts.open_storage(root).verify(i) == [] for i in ids)


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
    assert open_checkpoint(run.core, storage_id).seed == 123
    assert open_checkpoint(run.core, str(root / storage_id)).seed == 123
    copy = shutil.copytree(root / storage_id, root.parent / "copy")
    (copy / "metadata.json").unlink()
    with pytest.raises(errors.CheckpointDamaged, match=r"metadata\.json is not the file that was saved"):
        open_checkpoint(run.core, str(copy))
    (root / storage_id / "metadata.json").unlink()
    with pytest.raises(errors.CheckpointDamaged, match=r"metadata\.json is missing"):
        open_checkpoint(run.core, str(root / storage_id))


def test_latest_and_best(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 4: "latest" by the order of saving, "best" by the searcher metric, of the same class; NaN is never best."""
    run = make_run(root)

    def find(which: Any, name: str = "DigitTrial", smaller: bool = True) -> str | None:
        return next(iter(find_checkpoint(run.core, which, name, smaller).found), None)

    assert find("latest") is None
    run.save({"searcher_metric": float("nan")})
    assert find("best") is None
    ids = [run.save({"searcher_metric": value}) for value in (0.3, 0.1, float("nan"), 0.2)]
    plain = run.save()
    assert find("latest") == plain
    assert find("latest", "tests.unit.pytorch.checkpoints:DigitTrial") == plain
    assert find("best", "DigitTrial", True) == ids[1]
    assert find("best", "DigitTrial", False) == ids[0]
    assert find("latest", "OtherTrial") is None
    (root / plain / "metadata.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert find("latest") == ids[3]
    assert plain in caplog.text


def test_a_clock_that_is_set_back_does_not_matter(root: Path) -> None:
    """Issue 11: where nothing is recorded, what goes on from a checkpoint is newer than it, whatever the clock says."""
    run = make_run(root)
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    first = run.save({"saved_at": tomorrow.isoformat()})  # the clock is set back after this
    second = make_run(root)
    second.checkpointer.load(first)
    ids = [second.save(), second.save()]
    assert find_checkpoint(run.core, "latest", "DigitTrial").found == [ids[1]]


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
