from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.launch import _lines


def lines_of(*pieces: bytes, longest: int = _lines.LONGEST_LINE) -> list[str]:
    splitter = _lines.LineSplitter(longest)
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.feed(b"", final=True)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\rb\n"], ["a", "b"]),
        ([b"a\r\nb\r\n"], ["a", "b"]),
        ([b"a\r", b"\nb\n"], ["a", "b"]),
        ([b"a\r", b"b\n"], ["a", "b"]),
        ([b"a\r", b"\n", b"\n"], ["a", ""]),
        ([b"a\n\nb"], ["a", "", "b"]),
        ([b"\r10%\r20%\n"], ["10%", "20%"]),
        ([b"a", b"b", b"\n"], ["ab"]),
        ([b"a\x0bb\x1cc\n", "d\u2028e\n".encode()], ["a\x0bb\x1cc", "d\u2028e"]),
        ([b""], []),
    ],
)
def test_lines_end_at_newlines_and_returns_and_nowhere_else(pieces, lines):
    """C-79: `a\\rb\\n` is two lines; `\\r\\n` is one end, also when it is read in two pieces."""
    assert lines_of(*pieces) == lines


def test_what_is_not_utf8_is_replaced():
    """Better: invalid UTF-8 does not end the forwarding."""
    assert lines_of(b"a\xff\xfeb\nnext\n") == ["a\ufffd\ufffdb", "next"]
    assert lines_of(b"cut \xe2\x82") == ["cut \ufffd"]


def test_a_character_in_two_reads_stays_whole():
    """Better: a character cut by a read, or at the limit of a line, is not damaged."""
    euro = "€".encode()
    assert lines_of(b"a" + euro[:1], euro[1:2], euro[2:] + b"b\n") == ["a€b"]
    assert lines_of(*(bytes([byte]) for byte in "ä€😀\n".encode() * 3), longest=2) == ["ä€", "😀"] * 3


def test_a_line_without_end_leaves_in_pieces():
    """A worker that never ends its line cannot fill our memory."""
    splitter = _lines.LineSplitter(longest=10)
    assert splitter.feed(b"x" * 25) == ["x" * 10, "x" * 10]
    assert splitter.feed(b"\n") == ["x" * 5]


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_how_output_is_cut_into_reads_does_not_matter(pieces):
    """Any bytes, in any pieces, give the lines that they give in one piece."""
    assert lines_of(*pieces) == lines_of(b"".join(pieces))


def test_a_long_line_costs_no_more_than_short_ones():
    """Twenty megabytes without an end are cut at once; when lines were matched whole, 64 KiB took half a minute."""
    splitter = _lines.LineSplitter()
    pieces = [line for _ in range(320) for line in splitter.feed(b"y" * 65536)]
    assert sum(map(len, pieces)) + len(splitter.feed(b"", final=True)[0]) == 320 * 65536


def test_the_tail_begins_at_the_traceback():
    """Of a failure a person wants the traceback, not the progress before it."""
    tail = _lines.Tail()
    for line in ["warning", "Traceback (most recent call last):", '  File "x"', "ValueError: no"]:
        tail.add(line)
    assert tail.lines() == ["Traceback (most recent call last):", '  File "x"', "ValueError: no"]
    assert tail.traceback_time() is not None


def test_the_tail_knows_who_only_lost_a_peer():
    """A rank whose last traceback is about a closed connection is a victim; what it wrote before does not count."""
    for said, blames in [("ValueError: no", False), ("RuntimeError: [pair.cc] Connection closed by peer [::1]", True)]:
        tail = _lines.Tail()
        for line in ["Connection reset by peer, retrying", "[rank1]: Traceback (most recent call last):", said]:
            tail.add(line)
        assert tail.blames_another() is blames
        assert tail.lines() == ["Traceback (most recent call last):", said]  # without the prefix that torch adds


def test_the_tail_is_bounded():
    """100 lines of 2000 characters at most; without a traceback the last 20."""
    tail = _lines.Tail()
    for number in range(1000):
        tail.add(f"{number} " + "x" * 5000)
    assert [line.split()[0] for line in tail.lines()] == [str(n) for n in range(980, 1000)]
    assert max(map(len, tail.lines())) == 2000
    assert tail.traceback_time() is None


def test_a_pump_reads_on_when_nobody_wants_its_lines():
    """A closed stdout, as in `... | head -1`, neither blocks nor kills the worker."""
    source, into = os.pipe()
    gone, sink = os.pipe()
    os.close(gone)
    seen: list[str] = []
    pump = _lines.Pump(source, sink, "[rank=0] ", also=seen.append)
    pump.start()
    for number in range(20000):  # more than a pipe holds
        os.write(into, b"line %d\n" % number)
    os.close(into)
    pump.finish(patience=1)
    pump.join(5)
    assert len(seen) == 20000
    os.close(source)
    os.close(sink)


def test_a_pump_does_not_wait_for_ever_for_a_silent_stream():
    """A process that escaped and holds the stream open cannot keep us."""
    source, into = os.pipe()
    pump = _lines.Pump(source, 1, "[rank=0] ")
    pump.start()
    pump.finish(patience=0.1)
    assert pump.is_alive()
    os.close(into)
    pump.join(5)
    os.close(source)
