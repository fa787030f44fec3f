"""Logs through the SDK: which lines, the last ones, and following a run to its end."""

from __future__ import annotations

import datetime
import threading

import pytest

from determined.client import Determined, LogLevel
from determined.client._logs import moment
from determined.store import logs
from determined.store.messages import LogLine
from tests.history import START, History


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


def test_lines_as_they_are_shown(history: History, runs: Determined) -> None:
    """4.11: time, process or blanks, rank, level and text."""
    run = history.run(lines=["WARNING: hot"])
    (line,) = runs.get_trial(run.trial_id).iter_logs()
    assert line.endswith("Z]          [rank=0] || WARNING: hot")
    (entry,) = runs.get_trial(run.trial_id).iter_log_rows()
    assert (entry.level, entry.rank, entry.text, str(entry)) == ("WARNING", 0, "hot", line)
    assert entry.to_dict()["log"] == line


def test_head_and_tail(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """7.3: the first or the last so many; negative numbers are refused; long logs are read in pages."""
    monkeypatch.setattr("determined.client._logs.PAGE", 3)
    run = history.run(lines=[str(number) for number in range(10)])
    trial = runs.get_trial(run.trial_id)
    assert texts(trial.iter_log_rows()) == [str(number) for number in range(10)]
    assert texts(trial.iter_log_rows(head=4)) == ["0", "1", "2", "3"]
    assert texts(trial.iter_log_rows(tail=2)) == ["8", "9"]
    assert texts(trial.iter_log_rows(head=0)) == []
    for wrong in ({"head": -1}, {"tail": -1}):
        with pytest.raises(ValueError, match="is -1"):
            trial.iter_logs(**wrong)
    with pytest.raises(ValueError, match="exclude each other"):
        trial.iter_logs(head=1, tail=1)


def test_filters(history: History, runs: Determined) -> None:
    """7.3: by level, rank, stream, time and text."""
    run = history.run(state="RUNNING")
    history.log(run, ["fine", "ERROR: broken"])
    history.log(run, ["from rank one"], rank=1, stream="stderr")
    history.end(run)
    trial = runs.get_trial(run.trial_id)
    assert texts(trial.iter_log_rows(min_level=LogLevel.WARNING)) == ["broken"]
    assert texts(trial.iter_log_rows(min_level="ERROR")) == ["broken"]
    assert texts(trial.iter_log_rows(rank_ids=[1])) == ["from rank one"]
    assert texts(trial.iter_log_rows(stdtypes=["stderr"])) == ["from rank one"]
    assert texts(trial.iter_log_rows(search_text="FINE")) == ["fine"]
    assert texts(trial.iter_log_rows(regex="^from .* one$")) == ["from rank one"]
    first = next(iter(trial.iter_log_rows()))
    assert len(texts(trial.iter_log_rows(timestamp_after=first.timestamp.isoformat()))) == 2
    assert texts(trial.iter_log_rows(timestamp_before=first.timestamp.timestamp() + 0.5)) == ["fine"]


def test_ranks_are_merged_by_time(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of several ranks are told in the order in which they were printed, not in which they arrived."""
    monkeypatch.setattr("determined.client._logs.PAGE", 2)
    run = history.run(state="RUNNING", slots=3)
    printed = {rank: [(f"{rank}:{second}", second) for second in range(rank, 12, 3)] for rank in range(3)}
    for rank in (2, 0, 1):  # each delivers all of its lines at once
        with history.store.write() as conn:
            lines = [
                LogLine(text, "stdout", rank, time=START + datetime.timedelta(seconds=second))
                for text, second in printed[rank]
            ]
            logs.append(conn, run.attempt, lines)
    history.end(run)
    expected = [f"{second % 3}:{second}" for second in range(12)]
    trial = runs.get_trial(run.trial_id)
    assert texts(trial.iter_log_rows()) == expected
    assert texts(trial.iter_log_rows(head=5)) == expected[:5]
    assert texts(trial.iter_log_rows(tail=5)) == expected[-5:]
    assert texts(trial.iter_log_rows(tail=0)) == []
    assert texts(trial.iter_log_rows(follow=True)) == expected
    assert texts(trial.iter_log_rows(rank_ids=[2, 0])) == [text for text in expected if text[0] != "1"]


def test_a_clock_that_is_set_back_mixes_no_attempts(history: History, runs: Determined) -> None:
    """What a later attempt printed comes after what an earlier one did, whatever the clock said."""
    run = history.run(state="RUNNING", slots=2, lines=["first"])
    history.log(run, ["first"], rank=1)
    history.attempt(run, slots=2)
    history._now -= datetime.timedelta(days=1)
    history.log(run, ["second"])
    history.log(run, ["second"], rank=1)
    assert texts(runs.get_trial(run.trial_id).iter_log_rows()) == ["first", "first", "second", "second"]


def test_following_a_finished_trial_ends(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-79: following the log of a finished trial yields all of its lines, and then returns."""
    monkeypatch.setattr("determined.client._logs.PAGE", 2)
    run = history.run(lines=["a", "b", "c"])
    assert texts(runs.get_trial(run.trial_id).iter_log_rows(follow=True)) == ["a", "b", "c"]
    empty = history.run()
    assert list(runs.get_trial(empty.trial_id).iter_logs(follow=True)) == []


def test_following_a_running_trial(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.11: lines come as they are written; the end comes when the trial has ended and the log is drained."""
    monkeypatch.setattr("determined.client._logs.POLL_SECONDS", 0.02)
    run = history.run(state="RUNNING", lines=["first"])
    seen = runs.get_trial(run.trial_id).iter_log_rows(follow=True)
    assert next(seen).text == "first"
    history.log(run, ["second"])
    assert next(seen).text == "second"

    def finish() -> None:
        history.log(run, ["third"])
        history.end(run)

    ender = threading.Timer(0.1, finish)
    ender.start()
    assert texts(seen) == ["third"]
    ender.join()


def test_a_follower_waits_for_late_lines(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.11: a rank that delivers its last lines just after the trial has ended is heard."""
    monkeypatch.setattr("determined.client._logs.POLL_SECONDS", 0.02)
    history.catch_up()
    run = history.run(lines=["early"])
    seen = runs.get_trial(run.trial_id).iter_log_rows(follow=True)
    assert next(seen).text == "early"
    history.log(run, ["late"])
    assert texts(seen) == ["late"]


def test_a_follower_polls_at_least_once_a_second() -> None:
    """4.11: visible within 2 s, so we look at least once a second."""
    from determined.client import _logs

    assert _logs.POLL_SECONDS <= 1.0


def test_times() -> None:
    """7.3: RFC 3339 text or seconds since the epoch; without an offset it is UTC."""
    expected = datetime.datetime(2025, 1, 31, 12, tzinfo=datetime.timezone.utc)
    for given in ("2025-01-31T12:00:00Z", "2025-01-31T13:00:00+01:00", "2025-01-31T12:00:00", 1738324800, expected):
        assert moment(given) == expected
    with pytest.raises(ValueError, match="is no time"):
        moment("yesterday")
