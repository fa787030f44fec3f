"""det experiment watch on a real terminal: what a person sees, and what Ctrl-C does."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.history import History
from tests.running import Search

PATIENCE = 120.0
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        made.catch_up()
        yield made


class Terminal:
    """A terminal in which `det` runs: all that was written to it, and the size it has."""

    def __init__(self, *words: object, columns: int = 80, lines: int = 24) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(columns, lines)
        own = {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")} | own
        self.process = subprocess.Popen(
            [sys.executable, "-m", "determined.cli", *map(str, words)],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=environment,
            start_new_session=True,
        )
        os.set_blocking(self._ours, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError):
            self.text += self._decoder.decode(os.read(self._ours, 1 << 20))
        return self.text

    def until(self, claim: Callable[[str], bool]) -> str:
        """Wait until this is true of all that was written; return it without its control sequences."""
        deadline = time.monotonic() + PATIENCE
        while not claim(CONTROL.sub("", self.read())):
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)
        return CONTROL.sub("", self.text)

    def leave(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while (code := self.process.poll()) is None:  # and read meanwhile: a full terminal blocks whoever writes to it
            assert time.monotonic() < deadline, self.text
            self.read()
            time.sleep(0.02)
        while len(self.text) != len(self.read()):
            pass
        os.close(self._ours)
        os.close(self._theirs)
        return code


def test_a_live_table_follows_to_the_end(history: History) -> None:
    """Issue 14: a live table of trials; at the end the best trial, its checkpoint and the next command."""
    search = Search(history, name="digits")
    first, second = search.queue(lr=0.1), search.queue(lr=0.2)
    shown = Terminal("--store", history.place, "e", "watch", search.id, "--interval", "0.1")
    shown.until(lambda text: "2 QUEUED" in text and "Ctrl-C leaves this view" in text)
    search.start(first)
    history.report(first, "validation", {10: 0.5})
    shown.until(lambda text: "1 RUNNING, 1 QUEUED" in text and "0.5000" in text)
    history.save(first, 10)
    search.end(first)
    search.end(search.start(second), "ERROR", "The trial failed with exit code 1.")
    search.set_state("COMPLETED", "All trials have ended.")
    assert shown.leave() == 0
    assert "\x1b[1;32m   ★1  COMPLETED" in shown.text, "the best row stands out"
    end = CONTROL.sub("", shown.text).replace("\r", "").splitlines()
    assert f"Fetch it with: det trial download {first.trial_id} --best" in end
    assert f"See why trial {second.trial_id} failed: det trial logs {second.trial_id} --tail 30" in end
    assert any(line.startswith("Checkpoint after 10 batches: ") for line in end)
    assert any(line.startswith(f"Experiment {search.id} is COMPLETED after ") for line in end)


def test_ctrl_c_leaves_the_view_and_the_experiment(history: History) -> None:
    """Issue 14: Ctrl-C leaves what was last shown on the screen, says how to come back, and exits with 3."""
    search = Search(history)
    search.start(search.queue(lr=0.1))
    shown = Terminal("--store", history.place, "e", "watch", search.id, "--interval", "0.1", columns=120, lines=40)
    shown.until(lambda text: "Ctrl-C leaves this view" in text)
    shown.process.send_signal(signal.SIGINT)
    assert shown.leave() == 3
    said = CONTROL.sub("", shown.text).replace("\r", "").splitlines()
    assert said[-1] == f"Experiment {search.id} goes on. Come back with: det experiment watch {search.id}"
    assert "RUNNING" in said[-2], "the last table stays on the screen"
    assert shown.text.rindex("\x1b[?25h") > shown.text.rindex("\x1b[?25l"), "the cursor is back"


def test_a_table_follows_the_size_of_the_terminal(history: History) -> None:
    """A terminal that becomes narrower or lower gets a table that fits, on a clean screen."""
    search = Search(history, name="digits")
    for number in range(30):
        search.start(search.queue(a_long_name=number, b_long_name=-number, c_long_name=number / 7))
    shown = Terminal("--store", history.place, "e", "watch", search.id, "--interval", "0.1", columns=120, lines=40)
    shown.until(lambda text: "c_long_name" in text and "See all" not in text)
    shown.text = ""
    shown.resize(60, 15)
    shown.until(lambda text: "See all" in text)
    frame = shown.text[shown.text.rindex("Experiment") :]
    lines = CONTROL.sub("", frame).replace("\r", "").splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 60
    shown.process.send_signal(signal.SIGINT)
    assert shown.leave() == 3
