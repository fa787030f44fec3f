"""Log lines are kept in order and found again."""

from __future__ import annotations

import datetime
import threading

import pytest
import sqlalchemy as sa

from determined import errors
from determined.store import attempts, log_pages, logs, schema, trials
from determined.store.attempts import Attempt
from determined.store.database.connection import Store
from determined.store.log_pages import LogPage
from determined.store.logs import LogFilter
from determined.store.messages import LogEntry, LogLine
from tests.unit.store.rooms import START, add_run, minutes


def say(conn: sa.Connection, run: Attempt, *texts: str, stream: str = "stdout", rank: int = 0) -> None:
    logs.append(conn, run, [LogLine(text, stream, rank, time=START) for text in texts], process_id=4711)


@pytest.mark.parametrize(
    ("line", "rank", "level", "text"),
    [
        ("[rank=1] WARNING: hot", 1, "WARNING", "hot"),
        ("ERROR: no rank", 0, "ERROR", "no rank"),
        ("INFO:root:as logging has it", 0, "INFO", "root:as logging has it"),
        ("[rank=12] plain", 12, None, "plain"),
        ("INFORMATION: not a level", 0, None, "INFORMATION: not a level"),
        ("said [rank=1] WARNING: later", 0, None, "said [rank=1] WARNING: later"),
        ("", 0, None, ""),
        ("DEBUG:", 0, "DEBUG", ""),
    ],
)
def test_rank_and_level_are_read(store: Store, line: str, rank: int, level: str | None, text: str) -> None:
    """P-78: a leading [rank=N] becomes the rank, a leading LEVEL: the level."""
    with store.write() as conn:
        run = add_run(conn)
        say(conn, run, line)
        (row,) = logs.read(conn, run.trial_id)
    assert (row.rank, row.level, row.text) == (rank, level, text)


def test_a_level_hides_what_is_less(store: Store) -> None:
    """P-78: ERROR hides a WARNING; lines without a level count as INFO."""
    with store.write() as conn:
        run = add_run(conn)
        say(conn, run, "DEBUG: d", "plain", "[rank=1] WARNING: hot", "ERROR: bad")

        def texts(level: str) -> list[str]:
            return [row.text for row in logs.read(conn, run.trial_id, LogFilter(min_level=level))]

        assert texts("ERROR") == ["bad"]
        assert texts("INFO") == ["plain", "hot", "bad"]
        assert texts("TRACE") == ["d", "plain", "hot", "bad"]
        with pytest.raises(errors.InvalidValue, match="LOUD"):
            texts("LOUD")


def test_lines_are_cut(store: Store) -> None:
    """Platform 4.11: at 8191 bytes, never within a character; what no database holds is replaced."""
    with store.write() as conn:
        run = add_run(conn)
        say(conn, run, "x" * 9000, "é" * 5000, "a\0\ud800b")
        long, wide, odd = logs.read(conn, run.trial_id)
    assert len(long.text) == 8191
    assert wide.text == "é" * 4095
    assert odd.text == "a\ufffd\ufffdb"


def test_a_line_is_rendered(store: Store) -> None:
    """Platform 4.11: a log line shows time, process, rank, level and text."""
    with store.write() as conn:
        run = add_run(conn)
        say(conn, run, "WARNING: hot")
        logs.append(conn, run, [LogLine("plain", "stderr", time=START)])
        first, second = logs.read(conn, run.trial_id)
    assert str(first) == "[2026-01-31T12:00:00.123456Z]     4711 [rank=0] || WARNING: hot"
    assert str(second) == "[2026-01-31T12:00:00.123456Z]          [rank=0] || plain"


def test_lines_are_found(store: Store) -> None:
    """By rank, stream, part of the text whatever its case, pattern, time, attempt."""
    with store.write() as conn:
        run = add_run(conn)
        say(conn, run, "One", "two 100%", rank=0)
        say(conn, run, "three", rank=1, stream="stderr")
        later = attempts.begin(conn, run.trial_id, run_name="later")
        logs.append(conn, later, [LogLine("four", "stdout", time=minutes(9))])

        def texts(**which: object) -> list[str]:
            return [row.text for row in logs.read(conn, run.trial_id, LogFilter(**which))]  # type: ignore[arg-type]

        assert texts() == ["One", "two 100%", "three", "four"]
        assert texts(ranks=[1]) == ["three"]
        assert texts(stdtypes=["stderr"]) == ["three"]
        assert texts(text="ONE") == ["One"]
        assert texts(text="%") == ["two 100%"]
        assert texts(regex="^t.*") == ["two 100%", "three"]
        assert texts(after=minutes(1)) == ["four"]
        assert texts(before=minutes(1)) == ["One", "two 100%", "three"]
        assert texts(allocation_ids=[later.allocation_id]) == ["four"]
        assert texts(sources=["controller"]) == []
        with pytest.raises(errors.InvalidValue, match="not a regular expression"):
            texts(regex="(")


def test_reading_goes_on_where_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By id, in pages, and from the end."""
    monkeypatch.setattr(logs, "_SCAN", 3)
    with store.write() as conn:
        run = add_run(conn)
        say(conn, run, *(str(number) for number in range(10)))

        def texts(found: list[LogEntry]) -> str:
            return "".join(row.text for row in found)

        first = logs.read(conn, run.trial_id, limit=4)
        assert texts(first) == "0123"
        assert texts(logs.read(conn, run.trial_id, after_id=first[-1].id)) == "456789"
        assert texts(logs.tail(conn, run.trial_id, 4)) == "6789"
        assert texts(logs.tail(conn, run.trial_id, 2, LogFilter(regex="[135]"))) == "35"
        assert logs.tail(conn, run.trial_id, 0) == []
        assert logs.read(conn, run.trial_id, limit=0) == []
        assert texts(logs.tail(conn, run.trial_id, 99)) == "0123456789"


def test_who_follows_misses_nothing(store: Store) -> None:
    """Several ranks write at once; a reader that goes on by id sees each line once, in the end all of them."""
    with store.write() as conn:
        run = add_run(conn)

    def write(rank: int) -> None:
        for number in range(20):
            with store.write() as conn:
                say(conn, run, f"{rank}-{number}", rank=rank)

    writers = [threading.Thread(target=write, args=[rank]) for rank in range(3)]
    for writer in writers:
        writer.start()
    seen: list[str] = []
    last = 0
    while len(seen) < 60:
        going = any(writer.is_alive() for writer in writers)
        with store.read() as conn:
            page = logs.read(conn, run.trial_id, after_id=last)
        seen += [row.text for row in page]
        last = page[-1].id if page else last
        assert going or page or len(seen) == 60, "a line was passed over"
    for writer in writers:
        writer.join()
    assert sorted(seen) == sorted(f"{rank}-{number}" for rank in range(3) for number in range(20))


def test_a_later_line_does_not_show_before_an_earlier_one(store: Store) -> None:
    """Who writes second waits for who wrote first, or a reader that goes on by id would pass over the first."""
    with store.write() as conn:
        run = add_run(conn)

    def write_second() -> None:
        with store.write() as conn:
            say(conn, run, "second", rank=1)

    second = threading.Thread(target=write_second)
    with store.write() as conn:
        say(conn, run, "first")
        second.start()
        second.join(0.3)
        assert second.is_alive()
    second.join()
    with store.read() as conn:
        assert [row.text for row in logs.read(conn, run.trial_id)] == ["first", "second"]


def test_expired_lines_go_and_trials_stay(store: Store) -> None:
    """Platform 4.11: only where a retention is set."""
    with store.write() as conn:
        kept, short = add_run(conn), add_run(conn)
        trials.update(conn, short.trial_id, log_retention_days=2)
        for run in (kept, short):
            say(conn, run, "old")
        assert logs.expire(conn, START + datetime.timedelta(days=1)) == 0
        assert logs.expire(conn, START + datetime.timedelta(days=3)) == 1
        assert conn.scalar(sa.select(sa.func.count()).select_from(schema.logs)) == 1
        assert trials.get(conn, short.trial_id).id == short.trial_id


class TestPages:
    def test_go_both_ways_through_a_trial_that_was_continued(self, store: Store) -> None:
        """Pages in both directions have every line of all tasks once, in the order in which they arrived."""
        with store.write() as conn:
            run, other = add_run(conn), add_run(conn)
            for number in range(4):
                say(conn, run, f"a{number}")
                say(conn, other, "of another trial")
            trials.set_state(conn, run.trial_id, "COMPLETED")
            attempts.continue_trial(conn, run.trial_id)
            again = attempts.begin(conn, run.trial_id)
            say(conn, again, "b0", "b1", "b2")
        wanted = ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]
        with store.read() as conn:
            for limit in (1, 2, 3, 7, 100):
                after, forward = 0, []
                while (page := log_pages.page(conn, run.trial_id, LogFilter(), after=after, limit=limit)).lines:
                    forward += [row.text for row in page.lines]
                    after = page.newest
                before: int | None = None
                backward: list[str] = []
                while before is not None or not backward:
                    page = log_pages.page(conn, run.trial_id, LogFilter(), before=before, limit=limit)
                    backward = [row.text for row in page.lines] + backward
                    before = page.oldest
                assert (forward, backward) == (wanted, wanted)

    def test_of_a_trial_that_printed_nothing_are_empty(self, store: Store) -> None:
        """An empty log has no pages, and following it goes on from 0."""
        with store.write() as conn:
            run = add_run(conn)
        with store.read() as conn:
            assert log_pages.page(conn, run.trial_id, LogFilter()) == LogPage([], None, 0)
            assert log_pages.page(conn, run.trial_id, LogFilter(), after=0) == LogPage([], None, 0)
            assert log_pages.page(conn, run.trial_id, LogFilter(), time=START) == LogPage([], None, 0)
            assert log_pages.seen(conn, run.trial_id) == ([], [])

    def test_a_time_is_found_by_halving(self, store: Store) -> None:
        """The first line from a time on is found without reading those before."""
        with store.write() as conn:
            run = add_run(conn)
            logs.append(conn, run, [LogLine(str(n), "stdout", 0, time=minutes(n)) for n in range(50)])
        with store.read() as conn:
            for number in (0, 1, 17, 49):
                page = log_pages.page(conn, run.trial_id, LogFilter(), time=minutes(number - 0.5), limit=1)
                assert [row.text for row in page.lines] == [str(number)]
            assert log_pages.page(conn, run.trial_id, LogFilter(), time=minutes(50), limit=1).lines == []

    def test_of_rare_lines_look_at_so_many_only(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """A page looks at a bounded number of lines, and the next one goes on where it ended."""
        monkeypatch.setattr(log_pages, "WINDOW", 5)
        monkeypatch.setattr(log_pages, "MOST_LINES", 10)
        with store.write() as conn:
            run = add_run(conn)
            say(conn, run, *(f"line {number}" for number in range(32)))
        with store.read() as conn:
            log = log_pages.Log(conn, run.trial_id, LogFilter(text="line 31"))
            first = log.scan(0, 5, descending=False)
            assert (first.lines, first.is_end) == ([], False)
            found = [log.scan(first.reached + 10 * ahead, 5, descending=False) for ahead in (0, 1, 2)]
            assert [len(each.lines) for each in found] == [0, 0, 1]
            assert found[2].is_end
