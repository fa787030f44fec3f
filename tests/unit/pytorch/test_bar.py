"""The progress bar: for people only, and never in the way of training."""

from __future__ import annotations

import io
import logging
import sys

import numpy as np
import pytest
import rich.console
import rich.progress

from determined.core.recording.log_capture import LogTee
from determined.core.recording.shipper import Shipper
from determined.pytorch import Batch, Epoch
from determined.pytorch._plan import FitPlan, Progress
from determined.pytorch.display.bar import Bar, RichBar, ValidationLines, make_bar
from determined.store.messages import LogLine
from tests.fakes import MemoryLink


def bar(length: Batch | Epoch | None = None, epoch_length: int = 4, is_chief: bool = True) -> Bar:
    return make_bar(FitPlan(length or Batch(8)), Progress(2, 0), epoch_length, is_chief)


def test_without_a_terminal_there_is_none() -> None:
    """Issues 4 and 12: without a terminal there is no bar; plain lines are printed instead."""
    assert isinstance(bar(), ValidationLines)


def test_a_person_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """DET_PROGRESS: on, off; on other ranks never."""
    monkeypatch.setenv("DET_PROGRESS", "on")
    shown = bar()
    shown.close()
    assert isinstance(shown, RichBar)
    assert type(bar(is_chief=False)) is Bar
    monkeypatch.setenv("DET_PROGRESS", "off")
    assert type(bar()) is Bar


def test_what_it_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Batches of how many, the epoch, numbers of any kind, names with brackets."""
    monkeypatch.setenv("DET_PROGRESS", "on")
    monkeypatch.setenv("COLUMNS", "200")
    shown = bar(Epoch(3))
    shown.show({"batches": 2, "[bold]loss": np.float32(0.25), "text": "no"})
    shown.show({"accuracy": 0.5}, validation=True)
    shown.close()
    text = capsys.readouterr().err
    assert "2/12" in text
    assert "[bold]loss 0.25  val accuracy 0.5" in text
    assert "text" not in text


def test_the_searcher_metric_is_always_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of many validation metrics, the one that is searched for comes first; names cannot write on the terminal."""
    monkeypatch.setenv("DET_PROGRESS", "on")
    monkeypatch.setenv("COLUMNS", "200")
    shown = make_bar(FitPlan(Batch(8)), Progress(2, 0), 4, True, "f1")
    shown.show({"a\x1b]0;owned\x07": 1.0, "b": 2.0, "c": 3.0, "f1": 0.5}, validation=True)
    shown.close()
    text = capsys.readouterr().err
    assert "val f1 0.5  a\\u001b]0;owned\\u0007 1  b 2" in text


def test_an_epoch_of_unknown_length(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """T27: a stream without end has no total."""
    monkeypatch.setenv("DET_PROGRESS", "on")
    bar(Epoch(3), epoch_length=sys.maxsize).close()
    assert "epoch 0" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_its_frames_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12: of a bar on a terminal nothing is recorded; what is printed and logged meanwhile is, as it was."""
    for name, value in (("DET_PROGRESS", "on"), ("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    screen, link = sys.stderr, MemoryLink()
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    shipper = Shipper(link)
    tee = LogTee(shipper)
    tee.start()
    try:
        print("before")
        shown = bar()
        assert isinstance(shown, RichBar)
        print("a line that is much longer than the terminal is wide: " + "x" * 100)
        print("in", "two", end=" ")
        print("\x1b[31mcoloured\x1b[0m [bold]parts")
        print("to stderr", file=sys.stderr)
        logging.getLogger().warning("logged")
        shown._display.refresh()
        print("no end", end="")
        shown.close()
        print(", and now it ends")
    finally:
        logging.getLogger().removeHandler(handler)
        tee.close()
        shipper.close()
    assert "epoch 0" in screen.getvalue(), "there was a bar"
    lines = {name: [line.text for line in link.of(LogLine) if line.stream == name] for name in ("stdout", "stderr")}
    assert lines == {
        "stdout": [
            "before",
            "a line that is much longer than the terminal is wide: " + "x" * 100,
            "in two \x1b[31mcoloured\x1b[0m [bold]parts",
            "no end, and now it ends",
        ],
        "stderr": ["to stderr", "logged"],
    }


def test_another_display_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen that refuses costs the bar, not the training."""
    monkeypatch.setenv("DET_PROGRESS", "on")

    def refuse(self: object) -> None:
        raise rich.errors.LiveError("Only one live display may be active at once")

    monkeypatch.setattr(rich.progress.Progress, "start", refuse)
    assert type(bar()) is Bar


def test_handlers_get_their_streams_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log lines go above the bar while it is there, and where they went before afterwards."""
    monkeypatch.setenv("DET_PROGRESS", "on")
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    try:
        before = handler.stream
        shown = bar()
        shown.close()
        assert handler.stream is before
    finally:
        logging.getLogger().removeHandler(handler)
