"""All hooks of one whole training, in their exact order."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from determined.pytorch import Batch, Epoch, PyTorchCallback
from tests.trials import OneWeightTrial, Recorder, Run, train

pytestmark = pytest.mark.usefixtures("elsewhere")


VALIDATION = ["on_validation_start", "on_validation_epoch_start", "on_validation_epoch_end", "on_validation_end"]
CHECKPOINT = ["state_dict", "on_checkpoint_save_start", "on_checkpoint_write_end", "on_checkpoint_upload_end"]


def test_a_whole_training() -> None:
    """5.1, 2.2: every hook when its table says, from startup to shutdown."""
    run = train(max_length=Epoch(2), validation_period=Epoch(1), checkpoint_period=Epoch(1), hooks={})
    epoch = ["on_training_epoch_start", "on_training_epoch_end", "on_training_workload_end", *VALIDATION, *CHECKPOINT]
    assert run.hooks() == ["on_trial_startup", "on_training_start", *epoch, *epoch, "on_trial_shutdown"]


def test_a_resumed_training() -> None:
    """5.1: startup, load start, load, then training start; the epoch that was begun has no second start (W45)."""
    first = train(max_length=Batch(3), hooks={})
    run = train(max_length=Batch(4), latest_checkpoint=first.checkpoint, hooks={})
    assert run.hooks() == [
        "on_trial_startup",
        "on_checkpoint_load_start",
        "load_state_dict",
        "on_training_start",
        "on_training_epoch_end",
        "on_training_workload_end",
        *VALIDATION,
        *CHECKPOINT,
        "on_trial_shutdown",
    ]


def test_one_hook_for_all_before_the_next() -> None:
    """T91, 5.3: c1 then c2 for every hook; shutdown c2 then c1; the write-end hooks of a checkpoint in order."""
    run = Run([])
    callbacks = {"c1": Recorder(run.log, "c1"), "c2": Recorder(run.log, "c2")}
    train(run=run, trial={"callbacks": callbacks}, max_length=Batch(2))
    pairs = [entry[:2] for entry in run.log if entry[0] in ("c1", "c2")]
    assert pairs[-2:] == [("c2", "on_trial_shutdown"), ("c1", "on_trial_shutdown")]
    for first, second in zip(pairs[:-2:2], pairs[1:-2:2], strict=True):
        assert (first[0], second[0], first[1]) == ("c1", "c2", second[1])


def test_a_startup_that_fails() -> None:
    """T92: c1 is shut down, c2 is not, c3 never started, and the error propagates before data is looked at."""
    run = Run([])
    callbacks = {
        "c1": Recorder(run.log, "c1"),
        "c2": Recorder(run.log, "c2", {"on_trial_startup": KeyError("c2")}),
        "c3": Recorder(run.log, "c3"),
    }
    with pytest.raises(KeyError, match="c2"):
        train(run=run, trial={"callbacks": callbacks, "records": 0})
    assert [entry[:2] for entry in run.log] == [
        ("c1", "on_trial_startup"),
        ("c2", "on_trial_startup"),
        ("c1", "on_trial_shutdown"),
    ]


def test_an_older_epoch_start(caplog: pytest.LogCaptureFixture) -> None:
    """T94: on_training_epoch_start(self) is called at every epoch, with a warning."""
    called: list[int] = []

    class Older(PyTorchCallback):
        def on_training_epoch_start(self) -> None:  # type: ignore[override]
            called.append(1)

    train(trial={"callbacks": {"older": Older()}}, max_length=Epoch(2))
    assert called == [1, 1]
    assert caplog.text.count("takes no epoch_idx") == 2


def test_an_older_checkpoint_hook() -> None:
    """T95: on_checkpoint_end gives one FutureWarning at fit(), and runs right before on_checkpoint_write_end."""
    order: list[str] = []

    class Older(PyTorchCallback):
        def on_checkpoint_end(self, checkpoint_dir: str) -> None:
            order.append(f"end {Path(checkpoint_dir).is_dir()}")

        def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
            order.append("write end")

    with pytest.warns(FutureWarning, match="on_checkpoint_write_end") as caught:
        train(trial={"callbacks": {"a": Older(), "b": Older()}}, max_length=Batch(1))
    assert len(caught) == 1
    assert order == ["end True", "write end"] * 2


def test_what_hooks_are_given() -> None:
    """5.1: metrics of the window by keyword; results of every validation batch; the id of the checkpoint."""
    seen: dict[str, Any] = {}

    def keep(name: str) -> Any:
        return lambda *args, **kwargs: seen.update({name: (args, kwargs)})

    hooks = ["on_training_workload_end", "on_validation_epoch_end", "on_validation_end", "on_checkpoint_upload_end"]
    run = train(max_length=Batch(2), hooks={hook: keep(hook) for hook in hooks})
    window = seen["on_training_workload_end"][1]
    assert (len(window["batch_metrics"]), window["avg_metrics"]["batches"]) == (2, 2)
    assert [list(output) for output in seen["on_validation_epoch_end"][0][0]] == [["loss"], ["loss"]]
    assert set(seen["on_validation_end"][0][0]) == {"loss"}
    assert seen["on_checkpoint_upload_end"] == ((), {"uuid": run.checkpoint})


def test_callbacks_are_built_for_each_fit() -> None:
    """2.8: build_callbacks runs once per fit; on one rank every hook runs, those of the chief included."""
    run = train(max_length=Batch(1), hooks={})
    assert {"state_dict", "on_checkpoint_save_start", "on_checkpoint_write_end", "on_checkpoint_upload_end"} <= set(
        run.hooks()
    )


@pytest.mark.parametrize("problem", [None, ValueError("mine")])
def test_data_is_let_go_of_before_the_end(problem: Exception | None) -> None:
    """5.3: the training iterator is disposed of before shutdown hooks run, after an error too."""
    run = Run([])

    class Loader:
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            try:
                yield from torch.ones(3, 2, 1)
            finally:
                run.log.append(("let go",))

    class Open(OneWeightTrial):
        def __init__(self, context: Any, *args: Any, **options: Any) -> None:
            context.experimental.disable_dataset_reproducibility_checks()
            super().__init__(context, *args, **options)

    def does(batch_idx: int) -> None:
        if batch_idx == 1 and problem is not None:
            raise problem

    with contextlib.suppress(ValueError):
        train(Open, {"training_loader": Loader, "does": does}, run=run, hooks={}, max_length=Batch(2))
    assert run.log.index(("let go",)) < run.log.index(("hook", "on_trial_shutdown"))
