"""What a person reads about a fit without having set up logging."""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.pytorch import Batch, Epoch
from determined.pytorch.display import bar, console
from tests import records
from tests.trials import OneWeightTrial, train

CONFIG = {"searcher": {"metric": "loss", "smaller_is_better": True}}


@pytest.fixture
def levels() -> Iterator[None]:
    """Levels are put back."""
    names = ("", "determined", "determined.pytorch")
    before = [logging.getLogger(name).level for name in names]
    yield
    for name, level in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(level)
    logging.disable(logging.NOTSET)


def read(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_it_is_said_on_stderr_where_nobody_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 12: without any logging set-up, a line is written to stderr, once."""
    console.say("100 %s of it")
    assert read(capsys) == ["100 %s of it"]


def test_it_is_said_once_where_somebody_logs(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 12: who has set up logging at INFO gets it there, and nowhere else."""
    with caplog.at_level(logging.INFO, "determined.pytorch"):
        console.say("hello")
    assert (caplog.messages, read(capsys)) == (["hello"], [])


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize("way", ["variable", "own level", "level of the package", "level of all", "disabled"])
def test_it_can_be_silenced(
    way: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Issue 12: DET_QUIET=1, and logging levels, silence it."""
    if way == "variable":
        caplog.set_level(logging.INFO)
        monkeypatch.setenv("DET_QUIET", "1")
    elif way == "disabled":
        logging.disable(logging.INFO)
    else:
        name = {"own level": "determined.pytorch", "level of the package": "determined"}.get(way, "")
        logging.getLogger(name).setLevel(logging.ERROR)
    train(max_length=Batch(2))
    assert "starts afresh" not in caplog.text
    assert "det trial describe" not in caplog.text
    assert read(capsys) == []


def test_a_fit_tells_its_beginning_and_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 12: what begins; at the end what was trained, the best value and its checkpoint, and how to look at it."""
    run = train(init={"exp_conf": CONFIG}, checkpoint_policy="best", validation_period=Batch(2), max_length=Batch(4))
    first, *middle, trained, best, look = read(capsys)
    assert first == "OneWeightTrial starts afresh, to train 4 batches."
    assert len(middle) == 1, "validations follow each other too quickly for a line each"
    assert middle[0].startswith("Batch 2, epoch 0: loss ")
    assert trained.startswith("Trained 4 batches in ")
    assert trained.endswith(" s; 4 of 4 batches are done.")
    (_, saved), *_ = reversed(run.of("checkpoint"))
    assert best.startswith("Best loss: ")
    assert f"after batch 4, in checkpoint {saved} in " in best
    assert look == "Look at it with: det trial describe 1"


def test_validations_are_told_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12: off a terminal, a line per validation at most every few seconds."""
    for seconds, expected in ((60.0, [1]), (0.0, [1, 2])):
        monkeypatch.setattr(bar, "LINE_SECONDS", seconds)
        lines = bar.ValidationLines()
        for batches in (1, 2):
            lines.show({"batches": batches, "epochs": 0, "loss": 0.5}, validation=True)
            lines.show({"batches": batches, "epochs": 0, "loss": 0.5})
        assert read(capsys) == [f"Batch {batches}, epoch 0: loss 0.5" for batches in expected]


def test_going_on_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12: which experiment and batch a run goes on from; or that nothing is left to train, and what to do."""
    (tmp_path / "train.py").touch()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    saved = train(max_length=Batch(2)).checkpoint
    read(capsys)
    train(max_length=Batch(4), latest_checkpoint="latest")
    assert read(capsys)[0] == (
        f"Going on from experiment 1 at batch 2 (checkpoint {saved[:8]}, less than a minute old), "
        "to train 4 batches in all."
    )
    train(max_length=Epoch(1), latest_checkpoint="latest")
    nothing, look = read(capsys)
    assert nothing == (
        "Nothing left to train: experiment 1 has trained 1 of 1 epoch. Raise max_length, or pass "
        "latest_checkpoint='none' to start afresh."
    )
    assert look == "Look at it with: det trial describe 1"


def test_what_is_not_recorded_is_told_by_its_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 12: without the store there is no experiment to name."""
    options: dict[str, Any] = {"init": {"tracking": False}}
    train(max_length=Batch(2), **options)
    (first, *_) = read(capsys)
    assert first == "OneWeightTrial starts afresh, to train 2 batches."
    train(max_length=Batch(4), latest_checkpoint="latest", **options)
    first, *_, last = read(capsys)
    assert first.startswith("Going on from checkpoint ")
    assert " at batch 2 (less than a minute old), " in first
    assert last.startswith("Saved after batch 4: checkpoint ")


@pytest.mark.parametrize(
    ("ago", "text"),
    [(0, "less than a minute"), (61, "1 minute"), (3 * 60, "3 minutes"), (3600, "1 hour"), (3 * 86400, "3 days")],
)
def test_ages(ago: int, text: str) -> None:
    """A checkpoint's age is told in one unit; an unknown one, or one from the future, not at all."""
    saved_at = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=ago)
    assert console._age({"saved_at": saved_at.isoformat()}) == [f"{text} old"]
    future = saved_at + datetime.timedelta(days=9)
    assert console._age({"saved_at": future.isoformat()}) == console._age({}) == []


class Leaves(pytorch.PyTorchCallback):
    """Ends training in one of two ways."""

    def __init__(self, context: pytorch.PyTorchTrialContext, raises: bool) -> None:
        self.context, self.raises = context, raises

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        if self.raises:
            raise pytorch.ShouldExit
        self.context.set_stop_requested(True)


@pytest.mark.parametrize("raises", [True, False])
def test_an_early_end_says_why(raises: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 12: on the screen and in the list, which callback ended it and how; never 100 % of what it left."""

    class Trial(OneWeightTrial):
        def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {"leaves": Leaves(self.context, raises)}

    train(Trial, validation_period=Batch(2), max_length=Batch(8), latest_checkpoint="latest")
    how = "ShouldExit was raised" if raises else "set_stop_requested() was called"
    said = read(capsys)
    assert f"Ended after batch 2, with 2 of 8 batches trained: {how} in Leaves.on_validation_end()." in said
    assert said[-1].startswith("To go on: ")
    (experiment,), (trial,) = records.table("experiments"), records.table("trials")
    assert trial["state_reason"] == f"{how} in Leaves.on_validation_end(), after batch 2"
    assert (experiment["state"], experiment["progress"]) == ("COMPLETED", 0.25)


def test_a_full_length_and_a_try_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 12: the reason of a run that trained all of its length, and of one that only tried."""
    train(max_length=Batch(2))
    train(max_length=Batch(8), test_mode=True)
    assert "OneWeightTrial is tried with one batch, since test_mode is on." in read(capsys)
    assert [row["state_reason"] for row in records.table("trials")] == [
        "reached max_length=Batch(2)",
        "test_mode: one batch",
    ]
    assert [row["progress"] for row in records.table("experiments")] == [1.0, 0.125]


def test_the_best_is_the_best_of_all() -> None:
    """The best value with its checkpoint; NaN is none, and a later one that is equal is no better."""
    outcome = console.Outcome("accuracy", smaller_is_better=False)
    for batches, value in ((1, float("nan")), (2, 0.5), (3, 0.7), (4, 0.7), (5, None)):
        outcome.validated(value, batches)
        outcome.saved(f"c{batches}", batches)
    assert (outcome.best, outcome.best_checkpoint, outcome.newest) == ((0.7, 3), "c3", ("c5", 5))
    assert console._best(outcome, "/there") == "Best accuracy: 0.7 after batch 3, in checkpoint c3 in /there."
    outcome.best_before = 0.75
    assert console._best(outcome, "/there") == "Best accuracy: 0.75, by an earlier run."
