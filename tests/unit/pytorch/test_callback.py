"""One hook for all callbacks, in order."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.pytorch._callback import Callbacks, PyTorchCallback


class Recorder(PyTorchCallback):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        self.log.append(f"{self.name} startup {first_batch_idx} {checkpoint_uuid}")

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.log.append(f"{self.name} epoch {epoch_idx}")

    def on_trial_shutdown(self) -> None:
        self.log.append(f"{self.name} shutdown")


def test_hooks_run_in_order_and_shutdown_in_reverse() -> None:
    """T91: hooks run c1, c2; shutdown runs c2, c1."""
    log: list[str] = []
    callbacks = Callbacks({"c1": Recorder("c1", log), "c2": Recorder("c2", log)})
    callbacks.start(3, "id")
    callbacks.on_training_epoch_start(0)
    callbacks.shut_down()
    assert log == [
        "c1 startup 3 id",
        "c2 startup 3 id",
        "c1 epoch 0",
        "c2 epoch 0",
        "c2 shutdown",
        "c1 shutdown",
    ]


def test_who_did_not_start_is_not_shut_down() -> None:
    """T92: c2 raising in startup gets no shutdown; c1, started before it, does."""
    log: list[str] = []

    class Broken(Recorder):
        def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
            raise KeyError("c2")

    callbacks = Callbacks({"c1": Recorder("c1", log), "c2": Broken("c2", log)})
    with pytest.raises(KeyError, match="c2"):
        callbacks.start(0, None)
    callbacks.shut_down()
    assert log == ["c1 startup 0 None", "c1 shutdown"]


@pytest.mark.parametrize("error", [KeyError("boom"), KeyboardInterrupt(), SystemExit(3)])
def test_all_are_shut_down_even_if_one_fails(error: BaseException) -> None:
    """5.3: an error in one shutdown, or Ctrl-C, does not keep the others from theirs."""
    log: list[str] = []

    class Broken(Recorder):
        def on_trial_shutdown(self) -> None:
            raise error

    callbacks = Callbacks({"c1": Recorder("c1", log), "c2": Broken("c2", log)})
    callbacks.start(0, None)
    with pytest.raises(type(error)):
        callbacks.shut_down()
    assert log[-1] == "c1 shutdown"


@pytest.mark.parametrize("returned", [None, [PyTorchCallback()], {"a": PyTorchCallback}, {"a": None}])
def test_callbacks_have_names(returned: Any) -> None:
    """2.8: anything but a dict of callbacks is a TypeError that says what build_callbacks() returned."""
    with pytest.raises(TypeError, match=r"build_callbacks\(\) returned"):
        Callbacks(returned)


def test_an_epoch_start_without_index(caplog: pytest.LogCaptureFixture) -> None:
    """T94: on_training_epoch_start(self) is called, with a warning."""
    seen: list[str] = []

    class Old(PyTorchCallback):
        def on_training_epoch_start(self) -> None:  # type: ignore[override]
            seen.append("epoch")

    with caplog.at_level(logging.WARNING, "determined.pytorch"):
        Callbacks({"old": Old()}).on_training_epoch_start(4)
    assert seen == ["epoch"]
    assert "add the parameter" in caplog.text


def test_the_older_checkpoint_hook_warns_once() -> None:
    """T95: overriding on_checkpoint_end is one FutureWarning."""

    class Old(PyTorchCallback):
        def on_checkpoint_end(self, checkpoint_dir: str) -> None: ...

    with pytest.warns(FutureWarning, match="on_checkpoint_write_end") as caught:
        Callbacks({"a": Old(), "b": Old()})
    assert len(caught) == 1


def test_older_validation_hooks_still_run() -> None:
    """1.2: on_validation_step_start and _end are aliases of the newer names."""
    seen: list[Any] = []

    class Old(PyTorchCallback):
        def on_validation_step_start(self) -> None:
            seen.append("start")

        def on_validation_step_end(self, metrics: dict[str, Any]) -> None:
            seen.append(metrics)

    callbacks = Callbacks({"old": Old()})
    callbacks.on_validation_start()
    callbacks.on_validation_end({"loss": 1})
    assert seen == ["start", {"loss": 1}]


def test_what_nobody_overrides_costs_nothing() -> None:
    """A hook is false if no callback overrides it, so that nothing is prepared for it."""
    callbacks = Callbacks({"c": Recorder("c", [])})
    assert callbacks.on_training_epoch_start
    assert not callbacks.on_validation_end


def test_only_callbacks_are_callbacks() -> None:
    """Something else in build_callbacks() is named."""
    with pytest.raises(TypeError, match="'x'"):
        Callbacks({"x": object()})  # type: ignore[dict-item]


def test_every_hook_is_called_from_one_line() -> None:
    """Each hook of PyTorchCallback is called from exactly one line, so that its place can be found by its name."""
    hooks = [name for name in vars(PyTorchCallback) if name.startswith("on_")]
    lines = [
        f"{path.name}: {line.strip()}"
        for path in Path(pytorch.__file__).parent.rglob("*.py")
        for line in path.read_text().splitlines()
    ]
    for hook in hooks:
        calls = [line for line in lines if re.search(rf"callbacks?\.{hook}(\.preserving)?\(", line)]
        assert len(calls) == 1, (hook, calls)
