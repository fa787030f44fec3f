"""Checkpoints of 0.12 to 0.38, written here as those releases wrote them, and pickles that mean harm."""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import logging
import operator
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from determined import errors
from determined.pytorch import PyTorchCallback
from determined.pytorch._plan import Progress
from determined.pytorch.checkpoint.older_layouts import saved_counters
from determined.pytorch.checkpoint.saved import read_file, read_state
from tests.unit.pytorch.checkpoints import Run, make_run


def original_rng() -> dict[str, Any]:
    """6.2: as the original saved it, with numpy's array in a tuple."""
    return {
        "cpu_rng_state": torch.get_rng_state(),
        "np_rng_state": np.random.get_state(),
        "random_rng_state": random.getstate(),
    }


def state_0_38(run: Run, prefix: str = "") -> dict[str, Any]:
    """0.21 to 0.38: list keys and RNG; DDP models keep the `module.` prefix."""
    return {
        "models_state_dict": [
            collections.OrderedDict((prefix + name, value) for name, value in model.state_dict().items())
            for model in run.context.models
        ],
        "optimizers_state_dict": [optimizer.state_dict() for optimizer in run.context.optimizers],
        "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in run.context.lr_schedulers],
        "callbacks": {
            "keeps": {"history": np.arange(4.0), "best": np.float64(0.5), "counts": collections.Counter("aab")}
        },
        "rng_state": original_rng(),
    }


def counters(directory: Path, name: str = "trial_state.pkl", **values: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    saved = {"trial_id": 0, "last_ckpt": 3, "step_id": 0, "last_val": 2, **values}
    (directory / name).write_bytes(pickle.dumps(saved))


class Keeps(PyTorchCallback):
    got: Any = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.got = state_dict


def draws() -> tuple[Any, ...]:
    return random.random(), np.random.rand(), torch.rand(1).item()


def write(path: Path, state: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path, **options)
    return path.parent


@pytest.fixture
def trained(tmp_path: Path) -> Run:
    run = make_run(tmp_path / "checkpoints")
    run.train(3)
    return run


def test_0_38(trained: Run, tmp_path: Path) -> None:
    """6.5, T46: trial_state.pkl, RNG and callback values of numpy load on a current torch without switches."""
    old = write(tmp_path / "old" / "state_dict.pth", state_0_38(trained))
    counters(old, batches_trained=3, epochs_trained=0)
    after = draws()
    callback = Keeps()
    run = make_run(tmp_path / "checkpoints", callbacks={"keeps": callback})
    assert run.checkpointer.load(str(old))
    assert draws() == after
    assert (run.progress.batches_trained, run.progress.last_validation) == (3, 2)
    assert torch.equal(run.model[0].weight, trained.model[0].weight)  # type: ignore[index]
    assert run.context.optimizers[0].state_dict()["state"][0]["step"] == 3
    assert callback.got["history"].tolist() == [0, 1, 2, 3]
    assert callback.got["best"] == 0.5
    assert type(callback.got["best"]) is np.float64
    assert callback.got["counts"] == {"a": 2, "b": 1}
    assert run.stream.epoch_idx == 0
    assert run.stream.state_dict()["position"] == 6


def test_0_38_ddp(trained: Run, tmp_path: Path) -> None:
    """T33: a DDP checkpoint with the prefix loads into a plain run."""
    old = write(tmp_path / "old" / "state_dict.pth", state_0_38(trained, "module."))
    run = make_run(tmp_path / "checkpoints")
    run.checkpointer.load(str(old))
    assert torch.equal(run.model[0].weight, trained.model[0].weight)  # type: ignore[index]


def test_0_20(trained: Run, tmp_path: Path) -> None:
    """T40: workload_sequencer.pkl; steps_completed are batches, epochs are batches // L."""
    old = write(tmp_path / "old" / "state_dict.pth", state_0_38(trained))
    counters(old, "workload_sequencer.pkl", steps_completed=11, trial_id=4)
    run = make_run(tmp_path / "checkpoints", trial_id=4)
    run.checkpointer.load(str(old))
    assert (run.progress.batches_trained, run.progress.epochs_trained) == (11, 2)
    counters(old, "workload_sequencer.pkl", steps_completed=1, trial_id=4)
    run.checkpointer.load(str(old))
    assert (run.progress.batches_trained, run.progress.epochs_trained) == (1, 0)
    other = make_run(tmp_path / "checkpoints", trial_id=5)
    other.checkpointer.load(str(old))
    assert other.progress.batches_trained == 0


def test_counters_that_are_an_object_of_ours(tmp_path: Path) -> None:
    """An instance of a class that the package once had is read for its values, without the class."""
    # protocol 2: an object of determined.workload.State with {"steps_completed": 7, "trial_id": 1}
    values = text("steps_completed") + b"K\x07" + text("trial_id") + b"K\x01"
    body = b"\x80\x02cdetermined.workload\nState\n)\x81}(" + values + b"ub."
    (tmp_path / "workload_sequencer.pkl").write_bytes(body)
    counters = saved_counters(functools.partial(read_file, tmp_path), tmp_path)
    assert counters == {"steps_completed": 7, "trial_id": 1, "batches_trained": 7}
    assert Progress.from_trial_state(counters, epoch_length=5).epochs_trained == 1


def state_0_12(run: Run) -> dict[str, Any]:
    """0.12.0 to 0.12.11: one model, one optimizer, perhaps one scheduler; no RNG."""
    return {
        "model_state_dict": run.model.state_dict(),
        "optimizer_state_dict": run.context.optimizers[0].state_dict(),
        "lr_scheduler": run.context.lr_schedulers[0].state_dict(),
    }


@pytest.mark.parametrize(
    "place", ["state_dict.pth", "determined/state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt"]
)
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "before torch 1.6"])
def test_0_12(trained: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str, is_zip: bool) -> None:
    """T39, 6.4: single keys, all four places, and both file formats of torch."""
    write(tmp_path / "old" / place, state_0_12(trained), _use_new_zipfile_serialization=is_zip)
    run = make_run(tmp_path / "checkpoints")
    run.checkpointer.load(str(tmp_path / "old"))
    assert torch.equal(run.model[0].weight, trained.model[0].weight)  # type: ignore[index]
    assert run.context.lr_schedulers[0].state_dict()["last_epoch"] == 3
    assert "no rng_state" in caplog.text
    assert "trial_state.pkl" in caplog.text


def test_single_keys_need_a_single_object(trained: Run, tmp_path: Path) -> None:
    """T39: two models, or both forms → RuntimeError."""
    old = write(tmp_path / "old" / "state_dict.pth", state_0_12(trained))
    with pytest.raises(RuntimeError, match=r"the state of one model \('model_state_dict'\), and this trial wrapped 2"):
        make_run(tmp_path / "checkpoints", models=2).checkpointer.load(str(old))
    write(tmp_path / "old" / "state_dict.pth", {**state_0_12(trained), "models_state_dict": []})
    with pytest.raises(RuntimeError, match="both 'model_state_dict' and 'models_state_dict'"):
        make_run(tmp_path / "checkpoints").checkpointer.load(str(old))


def test_hooks_see_the_older_form(trained: Run, tmp_path: Path) -> None:
    """6.4: on_checkpoint_load_start comes first and may bring an old checkpoint into shape."""

    class Splits(PyTorchCallback):
        def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
            for old, new in (
                ("model_state_dict", "models_state_dict"),
                ("optimizer_state_dict", "optimizers_state_dict"),
                ("lr_scheduler", "lr_schedulers_state_dict"),
            ):
                checkpoint[new] = [checkpoint.pop(old)] * 2

    old = write(tmp_path / "old" / "state_dict.pth", state_0_12(trained))
    run = make_run(tmp_path / "checkpoints", models=2, callbacks={"s": Splits()})
    run.checkpointer.load(str(old))
    assert torch.equal(run.context.models[1][0].weight, trained.model[0].weight)  # type: ignore[index]


def test_one_cycle_of_torch_1(trained: Run, tmp_path: Path) -> None:
    """OneCycleLR of torch 1.x pickled its own functions; they are taken from the scheduler that is here."""

    def one_cycle(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)

    source = make_run(tmp_path / "checkpoints", scheduler=one_cycle)
    source.train(2)
    state = state_0_38(source)
    state["lr_schedulers_state_dict"][0]["anneal_func"] = torch.optim.lr_scheduler.OneCycleLR._annealing_cos
    old = write(tmp_path / "old" / "state_dict.pth", state)
    run = make_run(tmp_path / "checkpoints", scheduler=one_cycle)
    run.context.lr_schedulers[0].scheduler.anneal_func = torch.optim.lr_scheduler.OneCycleLR._annealing_cos
    run.checkpointer.load(str(old))
    scheduler = run.context.lr_schedulers[0].scheduler
    assert scheduler.last_epoch == 2
    assert scheduler.anneal_func is torch.optim.lr_scheduler.OneCycleLR._annealing_cos


def test_apex_state_is_left_out(trained: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """6.4: a mismatch of apex is a warning."""
    old = write(tmp_path / "old" / "state_dict.pth", {**state_0_38(trained), "amp_state": {"loss_scaler0": {}}})
    make_run(tmp_path / "checkpoints").checkpointer.load(str(old))
    assert "apex" in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(3.5),
        np.arange(3, dtype=">i4"),
        np.zeros((0, 2)), b"", np.array([True]), np.array([1j]), np.float32(1.5), np.int64(-1), np.bool_(True),
        collections.Counter("aab"), {1, 2}, frozenset({1}), (1, [2, {"a": b"x"}]), torch.Size([2]), 2**100,
        Path("best/model.pt"), datetime.datetime(2024, 2, 29, 12, 30), datetime.timedelta(seconds=3),
    ],
    ids=repr,
)  # fmt: skip
def test_values_that_old_files_hold(tmp_path: Path, value: Any) -> None:
    """What the allow-list lets through comes back as it was."""
    back = read_state(write(tmp_path / "state_dict.pth", {"value": value}))["value"]
    if isinstance(value, np.ndarray):
        assert back.dtype == value.dtype.newbyteorder("=")
        assert back.shape == value.shape
        assert (back == value).all()
    else:
        assert back == value
        assert type(back) is type(value)


def test_a_defaultdict_is_read_as_a_dict(tmp_path: Path) -> None:
    """Its items matter; its default is code."""
    value = collections.defaultdict(list, {"a": [1]})
    assert read_state(write(tmp_path / "state_dict.pth", {"value": value}))["value"] == {"a": [1]}


# Harm.


class Calls:
    """Unpickling it would call a function."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


TOUCHED = "harm was done"
HOME_OF_SYSTEM = sys.modules[os.system.__module__]  # where a pickle would find it


def harm() -> None:
    raise AssertionError(TOUCHED)


def with_dtype(state: Any) -> bytes:
    """A pickle of a numpy type with a state that numpy would believe."""
    numbers = pickle.dumps(state, 2)[2:-1]
    return b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00V8K\x00K\x01\x87R" + numbers + b"b."


CALLS: dict[str, Any] = {
    "posix.system": Calls(os.system, "true"),
    "builtins.eval": Calls(eval, "1 + 1"),
    "builtins.exec": Calls(exec, "x = 1"),
    "builtins.getattr": Calls(getattr, "text", "upper"),
    "builtins.__import__": Calls(__import__, "this"),
    "builtins.open": Calls(open, "/etc/hostname"),
    "functools.partial": functools.partial(print, "x"),
    "numpy.load": Calls(np.load, "x.npy", None, True),
    "numpy.fromfile": Calls(np.fromfile, "/etc/hostname"),
    "torch.load": Calls(torch.load, "x.pth"),
    "torch.hub.load": Calls(torch.hub.load, "a/b", "c"),
    "torch.jit._serialization.load": Calls(torch.jit.load, "x.pt"),
    "torch.storage._load_from_bytes": Calls(torch.storage._load_from_bytes, b"x"),
    "subprocess.Popen": Calls(subprocess.Popen, ["true"]),
    "collections.defaultdict with": collections.defaultdict(harm),
    "an object array": np.array([Calls(os.system, "true")], dtype=object),
    "operator.methodcaller": Calls(operator.methodcaller, "upper"),
    "operator.attrgetter": Calls(operator.attrgetter, "x"),
    "pickle.loads": Calls(pickle.loads, b"N."),
    "sys.exit": Calls(sys.exit, 3),
    "a function of the user": Calls(harm),
    "decimal.Decimal": decimal.Decimal("1"),
    "nested": [{"a": (1, Calls(os.system, "true"))}],
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_calls_are_refused_without_running(
    tmp_path: Path, name: str, is_zip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 6: no automatic fall-back to an unsafe load, whatever the file asks for."""
    ran: list[str] = []
    write(
        tmp_path / "state_dict.pth", {"models_state_dict": [], "x": CALLS[name]}, _use_new_zipfile_serialization=is_zip
    )
    monkeypatch.setattr(HOME_OF_SYSTEM, "system", lambda command: ran.append(command))
    with pytest.raises(errors.InvalidCheckpointException) as caught:
        read_state(tmp_path)
    assert "run" in str(caught.value)
    assert str(tmp_path / "state_dict.pth") in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert TOUCHED not in str(caught.value)
    assert not ran


def test_the_refused_name_is_said(tmp_path: Path) -> None:
    """One sentence naming the refused global."""
    for value, name in [
        (Calls(os.system, "true"), "posix.system"),
        (Calls(eval, "1"), "builtins.eval"),
        (functools.partial(print), "functools.partial"),
    ]:
        write(tmp_path / "state_dict.pth", {"x": value})
        with pytest.raises(errors.InvalidCheckpointException, match=f"asks for {name}, which is not on the list"):
            read_state(tmp_path)


class Mine:
    """A class of the user's, as callbacks kept them until 0.38."""


def test_what_the_user_calls_safe_is_read(tmp_path: Path) -> None:
    """Decision 6: no automatic way around the list; the refusal says which words open it for one class."""
    write(tmp_path / "state_dict.pth", {"x": Mine(), "rng": np.arange(2)})
    with pytest.raises(errors.InvalidCheckpointException, match=r"torch\.serialization\.add_safe_globals\(\[Mine\]\)"):
        read_state(tmp_path)
    with torch.serialization.safe_globals([Mine]):
        assert type(read_state(tmp_path)["x"]) is Mine


def zipped(path: Path, program: bytes) -> Path:
    """A file in torch's format whose pickle is this program."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return path


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


PROGRAMS: dict[str, bytes] = {
    "the state of a numpy type": with_dtype((3, "|", None, ("a",), {"a": (1, 2)}, 8, 1, 16)),
    "flags of a numpy type": with_dtype((3, "|", None, None, None, 8, 1, 63)),
    "getattr on a class of torch": b"\x80\x02cbuiltins\ngetattr\nctorch.optim.lr_scheduler\nOneCycleLR\n"
    + text("__subclasses__")
    + b"\x86R.",
    "getattr on a tensor class": b"\x80\x02cbuiltins\ngetattr\nctorch\nTensor\n" + text("_annealing_cos") + b"\x86R.",
    "a call of a string": b"\x80\x02" + text("os.system") + text("true") + b"\x85R.",
    "a persistent id that is a call": b"\x80\x02cos\nsystem\n" + text("true") + b"\x85RQ.",
    "a persistent id of another kind": b"\x80\x02" + text("module") + text("x") + b"\x86Q.",
    "a persistent id with a strange storage": b"\x80\x02("
    + text("storage") + b"cos\nsystem\n" + text("0") + text("cpu") + b"K\x01tQ.",
    "an array of objects": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
    + text("b") + b"\x87R(K\x01K\x01\x85cnumpy\ndtype\n" + text("O8") + b"K\x00K\x01\x87R\x89]tb.",
    "an array with too few bytes": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
    + text("b") + b"\x87R(K\x01\x8a\x05\x00\x00\x00\x00\x01\x85cnumpy\ndtype\n" + text("f8")
    + b"K\x00K\x01\x87R(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    + b"c_codecs\nencode\n" + text("abcdefgh") + text("latin1") + b"\x86Rtb.",
    "an array that is never filled": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
    + text("b") + b"\x87R.",
    "attributes of a stand-in": b"\x80\x02ccollections\nOrderedDict\n)R}" + text("__class__") + b"cos\nsystem\nsb.",
    "a memo of four billion places": b"\x80\x02}r\xff\xff\xff\xff" + b"cos\nsystem\n.",
    "a string of four billion letters": b"\x80\x02X\xff\xff\xff\xffabc.",
    "an inst opcode": b"(S'true'\nios\nsystem\n.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "an extension": b"\x80\x02\x82\x01.",
    "nothing": b"",
    "rubbish": b"\x00\x01\x02",
    "deep nesting": b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_hand_written_programs_are_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tricks that no pickler would write: refused, quickly, with an exception of ours."""
    ran: list[str] = []
    monkeypatch.setattr(HOME_OF_SYSTEM, "system", lambda command: ran.append(command))
    zipped(tmp_path / "state_dict.pth", PROGRAMS[name])
    with pytest.raises(errors.DeterminedError, match=r"state_dict\.pth"):
        read_state(tmp_path)
    assert not ran


def test_a_torchscript_archive_is_refused(tmp_path: Path) -> None:
    """It holds code."""
    with zipfile.ZipFile(tmp_path / "state_dict.pth", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/constants.pkl", b"\x80\x02).")
        archive.writestr("archive/version", "3\n")
    with pytest.raises(errors.DeterminedError, match=r"state_dict\.pth"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps(Calls(os.system, "true")),
        pickle.dumps(Calls(eval, "1"), 0),
        pickle.dumps({"batches_trained": Calls(harm)}),
        b"\x80\x02\x82\x01.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x02}r\xff\xff\xff\xffcos\nsystem\n.",
        b"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x10.",
        b"\x80\x02K\x01Q.",
        b"",
        b"junk",
        pickle.dumps([1]),
        pickle.dumps({"other": 1}),
        pickle.dumps({"batches_trained": -3}),
        pickle.dumps({"batches_trained": 10**30}),
    ],
)
def test_counters_are_read_without_trust_too(tmp_path: Path, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """trial_state.pkl is a pickle as well: plain values or nothing."""
    ran: list[str] = []
    monkeypatch.setattr(HOME_OF_SYSTEM, "system", lambda command: ran.append(command))
    (tmp_path / "trial_state.pkl").write_bytes(body)
    with pytest.raises(errors.DeterminedError, match=r"trial_state\.pkl"):
        saved_counters(functools.partial(read_file, tmp_path), tmp_path)
    assert not ran


@pytest.mark.parametrize("body", [b"<html>", b"version https://git-lfs.github.com/spec/v1\n"])
def test_some_other_file_is_refused_without_bad_advice(tmp_path: Path, body: bytes) -> None:
    """Decision 6: torch's own message would send the user to the unsafe load."""
    (tmp_path / "state_dict.pth").write_bytes(body)
    with pytest.raises(errors.InvalidCheckpointException, match="not in the form that torch") as caught:
        read_state(tmp_path)
    assert "weights_only" not in str(caught.value)


def test_a_huge_counters_file_is_not_read(tmp_path: Path) -> None:
    """A few numbers never take a megabyte."""
    (tmp_path / "trial_state.pkl").write_bytes(b"x" * (2 << 20))
    with pytest.raises(errors.InvalidCheckpointException, match="too large"):
        saved_counters(functools.partial(read_file, tmp_path), tmp_path)


def test_the_list_is_put_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What older files may name is allowed while they are read, and not a moment longer."""
    before = set(torch.serialization.get_safe_globals())
    read_state(write(tmp_path / "state_dict.pth", {"x": np.arange(2)}))
    assert set(torch.serialization.get_safe_globals()) == before
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "state_dict.pth", weights_only=True)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
