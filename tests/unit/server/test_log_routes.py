"""Logs over the API."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import InvalidValue, NotFound
from determined.store import log_pages
from determined.store.control import log_policies
from tests.asking import Asker
from tests.history import History, Run


@pytest.fixture
def run(history: History) -> Run:
    return history.run(lines=[f"line {number}" for number in range(30)], state="RUNNING")


def texts(answer: Any) -> list[str]:
    return [line["text"] for line in answer["lines"]]


def test_the_last_lines_come_first_and_earlier_ones_on_demand(page: Asker, run: Run) -> None:
    """Without a place the last lines are answered; `before` leads to the first one, and then says there are no more."""
    last = page.get(f"/trials/{run.trial_id}/logs", limit=20)
    assert texts(last) == [f"line {number}" for number in range(10, 30)]
    first = page.get(f"/trials/{run.trial_id}/logs", limit=20, before=last["oldest"])
    assert texts(first) == [f"line {number}" for number in range(10)]
    assert first["oldest"] is None


def test_a_tail_goes_on_where_it_ended(history: History, page: Asker, run: Run) -> None:
    """`after=newest` answers what was printed since, and nothing twice."""
    place = f"/trials/{run.trial_id}/logs"
    newest = page.get(place)["newest"]
    assert page.get(place, after=newest)["lines"] == []
    history.log(run, ["more"])
    answer = page.get(place, after=newest)
    assert texts(answer) == ["more"]
    assert answer["newest"] > newest


def test_lines_around_one_are_its_context(page: Asker, run: Run) -> None:
    """8.2: `around` answers the lines on both sides of a match."""
    found = page.get(f"/trials/{run.trial_id}/logs/matches", text="line 15")["ids"]
    assert len(found) == 1
    answer = page.get(f"/trials/{run.trial_id}/logs", around=found[0], limit=5)
    assert texts(answer) == ["line 13", "line 14", "line 15", "line 16", "line 17"]


def test_a_time_leads_to_its_line(page: Asker, run: Run) -> None:
    """A click in a chart asks for lines from a time on."""
    middle = page.get(f"/trials/{run.trial_id}/logs")["lines"][12]
    answer = page.get(f"/trials/{run.trial_id}/logs", time=middle["time"], limit=2)
    assert texts(answer) == ["line 12", "line 13"]


def test_a_rare_line_is_found_in_several_answers(page: Asker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer looks at so many lines only, and says where to go on, in both directions."""
    monkeypatch.setattr(log_pages, "WINDOW", 4)
    monkeypatch.setattr(log_pages, "MOST_LINES", 8)
    place, asked, found = f"/trials/{run.trial_id}/logs", 0, []
    before = None
    while asked == 0 or before is not None:
        answer = page.get(place, text="line 3", before=before)
        found += texts(answer)
        before, asked = answer["oldest"], asked + 1
    assert (found, asked) == (["line 3"], 4)
    after, found = 0, []
    for _ in range(4):
        answer = page.get(f"{place}/matches", text="line 29", after=after)
        found += answer["ids"]
        after = answer["next_after"]
    assert len(found) == 1
    assert after is None


def test_a_regular_expression_chooses_lines(page: Asker, run: Run) -> None:
    """8.2: a regular expression filters lines, whatever their number."""
    answer = page.get(f"/trials/{run.trial_id}/logs", regex=r"[12]5$")
    assert texts(answer) == ["line 15", "line 25"]


@pytest.mark.parametrize("regex", ["(", "a{99999999999999999999}"])
def test_what_is_no_regular_expression_is_said(page: Asker, run: Run, regex: str) -> None:
    """A mistake in a regular expression is a sentence."""
    with pytest.raises(InvalidValue, match="is not a regular expression"):
        page.get(f"/trials/{run.trial_id}/logs", regex=regex)


def test_a_regular_expression_that_takes_for_ever_is_given_up(
    history: History, page: Asker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catastrophic pattern ends after its time, and says what to avoid; nothing of it runs on."""
    monkeypatch.setattr("determined.server.reading.patterns.MOST_SECONDS", 0.3)
    history.log(run, ["a" * 60])
    with pytest.raises(InvalidValue, match=r"took longer than 0\.3 s"):
        page.get(f"/trials/{run.trial_id}/logs", regex="(a+)+b")


def test_colours_stay_and_other_sequences_go(history: History, page: Asker, run: Run) -> None:
    """8.2 (logs): a line keeps its colours; titles, links, cursor moves and marks of direction are gone."""
    history.log(
        run,
        ["\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\x1b[2J\x1b[?25h", "a\u202eb\x07"],
    )
    assert texts(page.get(f"/trials/{run.trial_id}/logs", limit=2)) == ["\x1b[31mred\x1b[0m link", "a\\u202eb\\u0007"]


def test_levels_ranks_and_texts_choose_lines(history: History, page: Asker, run: Run) -> None:
    """Lines are filtered by level and above, by rank and by text."""
    history.log(run, ["ERROR: bad", "WARNING: hm"], rank=1)
    place = f"/trials/{run.trial_id}/logs"
    assert texts(page.get(place, level="ERROR")) == ["bad"]
    assert texts(page.get(place, rank=[1])) == ["bad", "hm"]
    assert texts(page.get(place, rank=[0], text="LINE 2", limit=1)) == ["line 29"]
    assert page.get(f"{place}/info")["ranks"] == [0, 1]
    assert "WARNING" in page.get(f"{place}/info")["levels"]


def test_a_download_is_a_file_of_text(page: Asker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole log comes as an attachment, read in pages, as `det trial logs` shows it."""
    monkeypatch.setattr("determined.server.routes.logs.DOWNLOADED_AT_ONCE", 7)
    answer = page.ask("GET", f"/trials/{run.trial_id}/logs/download")
    assert answer.headers["content-disposition"] == f'attachment; filename="trial_{run.trial_id}_logs.txt"'
    lines = answer.text.splitlines()
    assert len(lines) == 30
    assert lines[29].endswith("[rank=0] || line 29")


def test_a_log_of_no_trial_is_not_found(page: Asker) -> None:
    """An unknown trial has no log, rather than an empty one."""
    with pytest.raises(NotFound, match="There is no trial 99"):
        page.get("/trials/99/logs")


def test_lines_that_a_log_policy_matched_are_flagged(history: History, page: Asker, run: Run) -> None:
    """8.2 (logs): a matched line is flagged, without its prefix and however long; the policy's name is told."""
    long = "x" * 600
    history.log(run, ["[rank=1] ERROR: out of memory", "fine", long])
    with history.store.write() as conn:
        log_policies.record(conn, run.attempt, pattern="memory", line="[rank=1] ERROR: out of memory", name="OOM")
        log_policies.record(conn, run.attempt, pattern="x+", line=long[:500])
    answer = page.get(f"/trials/{run.trial_id}/logs", limit=3)
    assert [line["is_policy"] for line in answer["lines"]] == [True, False, True]
    assert page.get(f"/trials/{run.trial_id}/logs/info")["policies"] == ["OOM", "x+"]
