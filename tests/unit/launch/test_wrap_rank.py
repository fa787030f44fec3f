from __future__ import annotations

import time

import pytest

from determined.launch import _lines, wrap_rank


@pytest.mark.parametrize(
    ("rank", "environment", "found"),
    [
        ("3", {}, "3"),
        ("RANK", {"RANK": "1"}, "1"),
        ("A,B", {"B": "2"}, "2"),
        ("A,B", {"A": "1", "B": "2"}, "1"),
        ("A,B", {}, None),
    ],
)
def test_a_rank_is_a_number_or_the_first_variable_present(rank, environment, found):
    """12.3: a number, or comma-separated names of environment variables."""
    assert wrap_rank.find_rank(rank, environment) == found


def test_no_such_variable_is_a_sentence_and_exit_code_1(capsys, monkeypatch):
    """12.3: where none of the variables that say the rank is set, one sentence says so and the exit code is 1."""
    monkeypatch.delenv("NO_SUCH_RANK", raising=False)
    assert wrap_rank.main(["NO_SUCH_RANK", "true"]) == 1
    assert "RANK is 'NO_SUCH_RANK', and no environment variable of that name is set." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "ended", "told", "expected"),
    [
        (1, 0.5, None, (1, 0.0, False)),  # an exception, then half a second to end
        (-15, 0.5, 0.2, (1, 0.0, False)),  # told to stop while it was already failing
        (-2, 0.5, -0.1, (-2, 0.0, True)),  # the traceback is the answer to Ctrl-C
        (-15, 60.0, 59.0, (-15, 60.0, True)),  # what it wrote a minute ago did not end it
        (-9, 60.0, None, (-9, 60.0, False)),
        (0, 0.5, None, (0, 0.5, False)),
    ],
)
def test_a_worker_failed_when_its_traceback_came(code, ended, told, expected):
    """So that the rank which failed is told from those that failed because of it. Times are from the traceback on."""
    tail = _lines.Tail()
    tail.add("Traceback (most recent call last):")
    at = tail.traceback_time()
    assert at is not None
    assert at <= time.monotonic()
    end = wrap_rank.ending("0", code, at + ended, None if told is None else at + told, tail)
    assert (end.code, round(end.failed_at - at, 3), end.was_told) == expected
