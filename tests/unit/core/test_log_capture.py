"""What a process prints, as lines: where they end, and that printing itself does not change."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from determined.core.recording.log_capture import LONGEST_LINE, LogTee
from determined.core.recording.shipper import Shipper
from determined.store.messages import LogLine
from tests.fakes import MemoryLink


class Stream(io.StringIO):
    """A stream of Python's own making, whose `write` can be overheard."""


@contextmanager
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lines that are sent for what the block prints; complete afterwards."""
    monkeypatch.setattr(sys, "stdout", Stream())
    monkeypatch.setattr(sys, "stderr", None)
    link, lines = MemoryLink(), []
    shipper = Shipper(link)
    tee = LogTee(shipper)
    tee.start()
    try:
        yield lines
    finally:
        tee.close()
        shipper.close()
    lines += [report.text for report in link.of(LogLine)]


def test_every_refresh_of_a_bar_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-77: `\\r` ends a line like `\\n`, both together are one end, and what wipes a bar is no line."""
    with heard(monkeypatch) as lines:
        for text in ("\r1/2", "\r2/2", "\r   \r", "done\r\n", "one\r", "\ntwo\n", "\n", "no end"):
            sys.stdout.write(text)
    assert lines == ["1/2", "2/2", "done", "one", "two", "", "no end"]


def test_a_very_long_line_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """4.11: it is cut, and its end does not come as an empty line of its own."""
    with heard(monkeypatch) as lines:
        print("x" * (LONGEST_LINE + 1))
        print("next")
    assert [len(line) for line in lines] == [LONGEST_LINE + 1, 4]


def test_the_stream_gets_what_it_always_got(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: output is kept without changing it; after close the stream is as it was."""
    text = "\x1b[31mred\x1b[0m\x1b[K\n"
    with heard(monkeypatch) as lines:
        assert sys.stdout.write(text) == len(text)
        written = sys.stdout
    assert isinstance(written, Stream)
    assert written.getvalue() == text
    assert "write" not in written.__dict__
    assert lines == ["\x1b[31mred\x1b[0m"], "colours stay, the cursor's ways do not"
