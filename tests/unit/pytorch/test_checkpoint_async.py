"""Saving beside training: the copy, the thread, its errors and its order."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from determined.core import DistributedContext
from determined.pytorch import PyTorchCallback
from determined.pytorch.checkpoint import checkpointer
from determined.pytorch.checkpoint.background import BackgroundSave, Snapshot
from tests.ranks import run_threads
from tests.unit.pytorch.checkpoints import make_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def test_a_copy_is_independent_and_keeps_what_is_shared() -> None:
    """Training may go on: the copy does not change, and views of one memory stay views of one memory."""
    weight = torch.arange(6.0).reshape(2, 3)
    state = {"a": weight, "b": weight[:, 1], "t": weight.t(), "n": [weight, (1, "x")], "e": torch.empty(0, 3)}
    copy = Snapshot().copy(state)
    weight.zero_()
    assert copy["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert copy["b"].tolist() == [1, 4]
    assert copy["t"].stride() == (1, 3)
    assert copy["n"][0].data_ptr() == copy["a"].data_ptr()
    assert copy["n"][1] == (1, "x")
    assert copy["e"].shape == (0, 3)


@pytest.mark.parametrize(
    "tensor",
    [
        nn.Parameter(torch.ones(2)),
        torch.ones(2, requires_grad=True),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]).conj(),
        torch.eye(2).to_sparse(),
        torch.tensor(3),
        torch.tensor([1, 2], dtype=torch.uint32),
    ],
)
def test_every_kind_of_tensor_is_copied(tensor: torch.Tensor) -> None:
    """Odd ones too, as they are."""
    copy = Snapshot().copy([tensor])[0]
    assert type(copy) is type(tensor)
    assert copy.requires_grad == tensor.requires_grad
    assert copy.to_dense().tolist() == tensor.to_dense().tolist()


def test_memory_is_used_again() -> None:
    """The second copy goes where the first was; memory of a state that became smaller is given back."""
    snapshot, state = Snapshot(), [torch.ones(1000), torch.ones(10)]
    first = {tensor.data_ptr() for tensor in snapshot.copy(state)}
    second = {tensor.data_ptr() for tensor in snapshot.copy(state)}
    assert first == second
    snapshot.copy(state[1:])
    gc.collect()
    assert sum(len(memories) for memories in snapshot._free.values()) == 1


class Gate:
    """A store that can be held up, and a record of who did what."""

    def __init__(self, path: Path) -> None:
        self.path, self.open, self.log = path, threading.Event(), []  # type: tuple[Any, Any, list[str]]

    @contextlib.contextmanager
    def store(self) -> Iterator[tuple[Path, str]]:
        self.note("opened")
        try:
            yield self.path, "the id"
        except BaseException:
            self.note("discarded")
            raise
        self.note("stored")

    def write(self, path: Path) -> None:
        assert self.open.wait(90)
        self.note("written")

    def note(self, what: str) -> None:
        self.log.append(
            f"{what} by {'training' if threading.current_thread() is threading.main_thread() else 'thread'}"
        )


def settle(saving: BackgroundSave) -> None:
    deadline = time.monotonic() + 90
    while saving._thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)


def test_polling_does_not_wait(tmp_path: Path) -> None:
    """None while it is being written; the id afterwards."""
    gate = Gate(tmp_path)
    saving = BackgroundSave(gate.store, gate.write)
    assert saving.poll() is None
    gate.open.set()
    settle(saving)
    assert saving.poll() == "the id"
    assert gate.log == ["opened by thread", "written by thread", "stored by thread"]


def test_hooks_run_in_the_training_thread(tmp_path: Path) -> None:
    """Between writing and storing, in the thread that asks."""
    gate = Gate(tmp_path)
    gate.open.set()
    saving = BackgroundSave(gate.store, gate.write, lambda path: gate.note(f"hooks on {path == tmp_path}"))
    settle(saving)
    assert gate.log == ["opened by thread", "written by thread"]
    assert saving.wait() == "the id"
    assert gate.log[2:] == ["hooks on True by training", "stored by thread"]
    assert saving.poll() == "the id"


@pytest.mark.parametrize("where", ["write", "hooks"])
def test_errors_surface(tmp_path: Path, where: str) -> None:
    """What fails is raised where training can see it, and the directory is given up."""
    gate = Gate(tmp_path)
    gate.open.set()

    def fail(path: Path) -> None:
        raise OSError("full")

    saving = BackgroundSave(gate.store, fail if where == "write" else gate.write, fail if where == "hooks" else None)
    with pytest.raises(OSError, match="full"):
        saving.wait()
    assert any("discarded" in line for line in gate.log)


def test_the_file_holds_the_state_of_the_moment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes on while it is written, and none of that is in the file."""
    run = make_run(root)
    run.train(2)
    expected = {name: value.clone() for name, value in run.model.state_dict().items()}
    write, trained = checkpointer._write, threading.Event()

    def slow(*args: Any) -> Any:
        assert trained.wait(90)
        return write(*args)

    monkeypatch.setattr(checkpointer, "_write", slow)
    run.checkpointer.save_async()
    run.train(5)
    trained.set()
    storage_id = run.checkpointer.wait()
    assert storage_id is not None
    assert run.checkpointer.wait() is None, "told once"
    saved = torch.load(root / storage_id / "state_dict.pth", weights_only=True)
    assert all(torch.equal(saved["models_state_dict"][0][name], value) for name, value in expected.items())
    other = make_run(root)
    other.checkpointer.load(storage_id)
    assert other.progress.batches_trained == 2


def test_one_at_a_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one waits for the first; an error of the first is raised there, and the next one works."""
    run = make_run(root)
    run.train(1)

    def fail(*args: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(checkpointer, "_write", fail)
        run.checkpointer.save_async()
        with pytest.raises(OSError, match="full"):
            run.checkpointer.save_async()
    run.checkpointer.save_async()
    run.checkpointer.save_async()
    assert run.checkpointer.wait() is not None
    assert len(list(root.glob("*-*"))) == 2


def test_a_state_that_cannot_be_saved_fails_at_once(root: Path) -> None:
    """Nothing is begun."""

    class Odd(PyTorchCallback):
        def state_dict(self) -> dict[str, Any]:
            return {"x": object()}

    run = make_run(root, callbacks={"odd": Odd()})
    with pytest.raises(TypeError, match="odd"):
        run.checkpointer.save_async()
    assert run.checkpointer.wait() is None


def test_all_ranks_get_the_id_and_the_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """poll() and wait() are collective."""

    def body(distributed: DistributedContext) -> str | None:
        run = make_run(root, distributed=distributed)
        run.checkpointer.save_async()
        storage_id = run.checkpointer.wait()
        assert run.checkpointer.poll() is None
        if distributed.rank == 0:
            monkeypatch.setattr(checkpointer, "_write", lambda *args: 1 / 0)
        run.checkpointer.save_async()
        with pytest.raises(ZeroDivisionError):
            run.checkpointer.wait()
        return storage_id

    first, second = run_threads(2, body)
    assert first == second is not None
