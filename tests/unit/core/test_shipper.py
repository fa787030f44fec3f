"""The shipper: reports leave in order, in the background, and trouble with the link never reaches training."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import pytest

from determined import errors
from determined.core.recording import shipper as recording_shipper
from determined.core.recording.link import NullLink
from determined.core.recording.shipper import Shipper
from determined.store.messages import Report, StatusReport
from tests.fakes import MemoryLink


def said(link: MemoryLink) -> list[str]:
    return [report.status for report in link.of(StatusReport)]


def test_reports_arrive_in_order_from_another_thread() -> None:
    """C-46: reports arrive in the order they were made, and the caller's thread does not write them."""
    link = MemoryLink()
    shipper = Shipper(link)
    for i in range(500):
        shipper.put(StatusReport(str(i)))
    shipper.close()
    assert said(link) == [str(i) for i in range(500)]
    assert threading.current_thread().name not in link.threads


def test_a_refusal_is_raised_by_every_later_call() -> None:
    """C-47 and its Better: what the link refuses is raised by the next report, by those after it, and by close."""
    link = MemoryLink()
    link.trouble = ValueError("duplicate metric")
    shipper = Shipper(link)
    shipper.put(StatusReport("first"))
    shipper.flush(timeout=90)
    for _ in range(3):
        with pytest.raises(ValueError, match="duplicate metric"):
            shipper.put(StatusReport("next"))
    with pytest.raises(ValueError, match="duplicate metric"):
        shipper.close()


def test_an_unavailable_link_is_retried_until_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 4: reports made while the link is away are kept, and delivered in order when it is back."""
    monkeypatch.setattr(recording_shipper, "LINGER_SECONDS", 0)
    link = MemoryLink()
    link.trouble = errors.LinkUnavailable("database is locked")
    shipper = Shipper(link)
    with caplog.at_level(logging.WARNING, "determined.core"):
        for i in range(20):
            shipper.put(StatusReport(str(i)))
            while not caplog.records:  # the first is offered, in vain
                time.sleep(0.005)
    link.trouble = None
    assert shipper.flush(timeout=90)
    shipper.close()
    assert said(link) == [str(i) for i in range(20)]
    assert len(caplog.records) == 1, "one line says so, not one per report"


def test_a_lasting_failure_is_said_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 4: what could not be delivered at all is counted in one line; nothing is raised."""
    monkeypatch.setattr(recording_shipper, "LAST_CHANCE_SECONDS", 0.2)
    link = MemoryLink()
    link.trouble = errors.LinkUnavailable("disk full")
    shipper = Shipper(link)
    for i in range(7):
        shipper.put(StatusReport(str(i)))
    with caplog.at_level(logging.WARNING, "determined.core"):
        shipper.close()
    assert [r.getMessage() for r in caplog.records if "lost" in r.getMessage()] == [
        "7 reports were lost: memory (disk full)."
    ]


def test_memory_is_bounded_while_the_link_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 4 and 7: with the link gone for good, the newest reports are kept and the queue does not grow."""
    monkeypatch.setattr(recording_shipper, "KEPT_REPORTS", 50)
    link = MemoryLink()
    link.trouble = errors.LinkUnavailable("gone")
    shipper = Shipper(link)
    shipper.put(StatusReport("in flight"))
    while not link.threads:
        time.sleep(0.001)
    for i in range(1000):
        shipper.put(StatusReport(str(i)))
    link.trouble = None
    shipper.close()
    assert said(link)[-50:] == [str(i) for i in range(950, 1000)]
    assert len(said(link)) <= 1 + 50 + 50


def test_reports_that_come_together_leave_together() -> None:
    """Decision 4: a fast loop's reports are written in batches, and all the same when somebody waits for them."""
    link = MemoryLink()
    sizes: list[int] = []
    send = link.send
    link.send = lambda reports: (sizes.append(len(reports)), send(reports))[1]  # type: ignore[method-assign]
    shipper = Shipper(link)
    for i in range(100):
        shipper.put(StatusReport(str(i)))
    assert shipper.flush(timeout=90)
    assert said(link) == [str(i) for i in range(100)]
    assert len(sizes) <= 5
    shipper.close()


def test_without_a_link_no_thread_starts() -> None:
    """Nothing is recorded, so nothing runs."""
    before = threading.active_count()
    shipper = Shipper(NullLink())
    shipper.put(StatusReport("x"))
    assert threading.active_count() == before
    shipper.close()


def test_a_follower_that_fails_stops_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Event files that cannot be written are mentioned once; reports still arrive."""
    link = MemoryLink()

    def broken(_reports: object) -> None:
        raise OSError("no space left")

    shipper = Shipper(link, broken)
    with caplog.at_level(logging.WARNING, "determined.core"):
        for i in range(3):
            shipper.put(StatusReport(str(i)))
            shipper.flush()
    shipper.close()
    assert said(link) == ["0", "1", "2"]
    assert len(caplog.records) == 1


def test_a_closed_shipper_says_where_reports_belong() -> None:
    """A report after the end is an error that says what to do."""
    shipper = Shipper(MemoryLink())
    shipper.close()
    with pytest.raises(RuntimeError, match="inside the `with"):
        shipper.put(StatusReport("late"))


class KeepingLink(MemoryLink):
    """Puts aside what it is asked to, and counts signs of life."""

    def __init__(self) -> None:
        super().__init__()
        self.aside: list[Report] = []
        self.beats = 0

    def keep(self, reports: Sequence[Report]) -> bool:
        self.aside.extend(reports)
        return True

    def beat(self) -> None:
        self.beats += 1


def test_what_waits_too_long_is_put_aside(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: with the link away for long, reports leave memory, in order, and none is lost."""
    monkeypatch.setattr(recording_shipper, "KEPT_REPORTS", 50)
    monkeypatch.setattr(recording_shipper, "RETRY_SECONDS", (0.001,))
    monkeypatch.setattr(recording_shipper, "LAST_CHANCE_SECONDS", 0.05)
    monkeypatch.setattr(recording_shipper, "LINGER_SECONDS", 0)
    link = KeepingLink()
    link.trouble = errors.LinkUnavailable("gone")
    shipper = Shipper(link)
    with caplog.at_level(logging.WARNING, "determined.core"):
        for i in range(300):
            shipper.put(StatusReport(str(i)))
            while len(shipper._waiting) > 40:
                time.sleep(0.001)
        shipper.close()
    assert [report.status for report in link.aside if isinstance(report, StatusReport)] == [str(i) for i in range(300)]
    assert not any("lost" in record.getMessage() for record in caplog.records)
    assert len([r for r in caplog.records if "the next run delivers them" in r.getMessage()]) == 1


def test_an_idle_run_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """4.13: a run with nothing to report gives a sign of life all the same."""
    monkeypatch.setattr(recording_shipper, "BEAT_SECONDS", 0.01)
    link = KeepingLink()
    shipper = Shipper(link)
    shipper.put(StatusReport("up"))
    deadline = time.monotonic() + 90
    while link.beats < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    shipper.close()
    assert link.beats >= 3
    assert said(link) == ["up"]


def test_a_link_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: the end of a run waits a bounded time for a link that neither delivers nor fails."""
    monkeypatch.setattr(recording_shipper, "STUCK_SECONDS", 0.1)
    monkeypatch.setattr(recording_shipper, "NOTICE_SECONDS", 0.05)
    link, is_over = MemoryLink(), threading.Event()
    link.send = lambda _: (is_over.wait(), None)[1]  # type: ignore[method-assign]
    shipper = Shipper(link)
    shipper.put(StatusReport("one"))
    with caplog.at_level(logging.WARNING, "determined.core"):
        shipper.close()
    is_over.set()
    assert [record.getMessage() for record in caplog.records] == ["1 reports were lost: memory (it does not answer)."]


class CopyingLink(MemoryLink):
    """Also keeps what is on the disk, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, list[str]] = {}
        self.can_copy = True

    def copy(self, reports: Sequence[Report], number: int) -> bool:
        if self.can_copy:
            self.copies[number] = [report.status for report in reports if isinstance(report, StatusReport)]
        return self.can_copy

    def drop_copy(self, number: int) -> None:
        del self.copies[number]


def test_what_is_on_its_way_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 11: before a checkpoint is published, all reports that have not arrived are on the disk: those that wait
    and those that are offered in vain; each once, and none of them any longer when it has arrived."""
    monkeypatch.setattr(recording_shipper, "LINGER_SECONDS", 0)
    link = CopyingLink()
    link.trouble = errors.LinkUnavailable("database is locked")
    shipper = Shipper(link)
    shipper.put(StatusReport("one"))
    while not link.threads:  # it is offered, in vain
        time.sleep(0.001)
    shipper.put(StatusReport("two"))
    shipper.secure()
    shipper.secure()
    assert link.copies == {2: ["one", "two"]}
    shipper.put(StatusReport("three"))
    shipper.secure()
    assert link.copies == {2: ["one", "two"], 3: ["three"]}
    link.trouble = None
    assert shipper.flush(90)
    shipper.put(StatusReport("four"))
    shipper.close()
    assert link.copies == {}
    assert said(link) == ["one", "two", "three", "four"]


def test_where_nothing_can_be_copied_the_store_is_waited_for() -> None:
    """Issue 11: a directory that cannot be written to is no reason to lose what came before a checkpoint."""
    link = CopyingLink()
    link.can_copy = False
    shipper = Shipper(link)
    shipper.put(StatusReport("one"))
    shipper.secure()
    assert said(link) == ["one"]
    shipper.close()
