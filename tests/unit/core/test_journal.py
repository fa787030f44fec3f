"""Which link a process has, and the journal: what a run keeps in a directory of its own while the store is away."""

from __future__ import annotations

import array
import datetime
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.core.recording.journal import UNSENT, Journal, find_unfinished, read_reports
from determined.core.recording.link import NullLink
from determined.core.recording.run_description import RunDescription, new_run
from determined.core.recording.store_link import StoreLink, choose_link
from determined.store.messages import CheckpointReport, LogLine, MetricReport, Report, StatusReport

WHO = RunDescription("train.py", script="/train.py", hparams={"lr": 0.1})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "runs" / "one", WHO)
    yield journal
    journal.close()


def test_reports_come_back_as_they_were(journal: Journal) -> None:
    """Decision 4: what could not be delivered is kept whole: values, NaN and times to the microsecond."""
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
    reports: list[Report] = [
        MetricReport("training", {"loss": 0.1, "words": ["a", None]}, 3, {"loss": [0.1, 0.2]}, time=when),
        CheckpointReport("id", {"a": 1}, {"f": 2}),
        LogLine("text with \\ and \u2028 and \x00", "stdout", 1),
    ]
    journal.keep(reports)
    columns = {"loss": array.array("d", [0.5, 0.25])}
    journal.keep([MetricReport("training", {"loss": math.nan, "up": math.inf}, 4, columns)])
    *first, last = journal.unsent()
    assert first == reports
    assert isinstance(last, MetricReport)
    assert math.isnan(float(str(last.metrics["loss"])))
    assert last.metrics["up"] == math.inf
    assert last.batches() == [{"loss": 0.5}, {"loss": 0.25}]
    journal.remove_unsent()
    assert journal.unsent() == []
    journal.close()
    assert not journal.directory.exists()


def test_half_a_line_is_never_read(journal: Journal) -> None:
    """A write that broke off, as on a full disk, is cut away by the next one."""
    journal.keep([StatusReport("one")])
    with (journal.directory / UNSENT).open("a") as file:
        file.write('{"report": "Sta')  # what a full disk let through of a failed attempt
    assert len(read_reports(journal.directory / UNSENT)) == 1
    journal.keep([StatusReport("two")])
    assert [report.status for report in journal.unsent() if isinstance(report, StatusReport)] == ["one", "two"]


def test_copies_come_after_what_was_kept_and_each_report_once(journal: Journal) -> None:
    """Issue 11: a report that was copied and then put aside is one report, in the order they were made."""
    one, two, three = StatusReport("one"), StatusReport("two"), StatusReport("three")
    columns = {"loss": array.array("d", [0.5, math.inf]), "words": ["a", "b"]}
    last = MetricReport("training", {"loss": 1.0}, 4, columns)
    journal.copy([one, two], 2)
    journal.copy([three, last], 4)
    journal.keep([one, two])
    assert journal._lock is not None
    journal._lock.close()
    (found,) = find_unfinished(journal.directory.parent)
    assert found.reports() == [one, two, three, last]
    found.remove()
    assert not journal.directory.exists()


def test_copies_of_what_has_arrived_leave_nothing(journal: Journal) -> None:
    """Issue 11: the directory is gone when all has arrived; a copy of what has not keeps it."""
    journal.copy([StatusReport("one")], 1)
    journal.copy([StatusReport("two")], 2)
    journal.drop_copy(1)
    journal.close()
    (found,) = find_unfinished(journal.directory.parent)
    assert [report.status for report in found.reports() if isinstance(report, StatusReport)] == ["two"]
    journal.drop_copy(2)
    found.remove()
    assert not journal.directory.exists()


def test_only_what_dead_runs_left_is_found(journal: Journal) -> None:
    """A run that lives looks after its own; when it is gone, however it went, another finds what it left."""
    journal.keep([StatusReport("one")])
    journal.mark_pending("4f1c")
    runs = journal.directory.parent
    assert list(find_unfinished(runs)) == []
    assert journal._lock is not None
    journal._lock.close()  # what the kernel does for a process that is killed
    (found,) = find_unfinished(runs)
    assert (found.name, found.description) == ("one", WHO)
    assert len(found.reports()) == 1
    assert list(found.pending_checkpoints()) == ["4f1c"]
    found.remove()
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize("said", [None, "", '{"run": {"na'])
def test_a_run_that_died_before_it_said_anything(journal: Journal, said: str | None) -> None:
    """No description, or half of one, a minute old, is swept away; a young one may be about to be written."""
    journal.directory.mkdir(parents=True)
    unfinished = journal.directory
    if said is not None:
        unfinished = journal.directory / "run.json"
        unfinished.write_text(said)
    assert list(find_unfinished(journal.directory.parent)) == []
    assert unfinished.exists()
    os.utime(unfinished, (1, 1))
    assert list(find_unfinished(journal.directory.parent)) == []
    assert not journal.directory.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_leaves_no_empty_description(journal: Journal) -> None:
    """Issue 11: what could not be written is removed at once, and when there is space again it is written."""
    journal.directory.mkdir(parents=True)
    (journal.directory / "run.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        journal.keep([StatusReport("one")])
    assert not journal.directory.exists()
    journal.keep([StatusReport("two")])
    assert len(journal.unsent()) == 1
    assert '"train.py"' in (journal.directory / "run.json").read_text()


def test_a_directory_without_a_description_keeps_what_is_in_it(journal: Journal) -> None:
    """What nobody understands is nobody's to remove."""
    (journal.directory / "mine").mkdir(parents=True)
    os.utime(journal.directory, (1, 1))
    assert list(find_unfinished(journal.directory.parent)) == []
    assert (journal.directory / "mine").exists()


def test_what_another_run_has_looked_after_meanwhile(tmp_path: Path) -> None:
    """Two runs may look at the same time: one that finds a directory gone goes on with the next."""
    for name in ("a", "b", "c"):
        journal = Journal(tmp_path / "runs" / name, WHO)
        journal.keep([StatusReport(name)])
        assert journal._lock is not None
        journal._lock.close()
    found = []
    for unfinished in find_unfinished(tmp_path / "runs"):
        found.append(unfinished.name)
        shutil.rmtree(tmp_path / "runs" / "b", ignore_errors=True)
    assert found == ["a", "c"]


def test_what_is_in_doubt_stays_after_the_end(journal: Journal) -> None:
    """A checkpoint that the store never heard of keeps the directory, so that somebody looks at it."""
    journal.mark_pending("known")
    journal.mark_pending("unknown")
    journal.clear_pending("known")
    journal.close()
    (found,) = find_unfinished(journal.directory.parent)
    assert list(found.pending_checkpoints()) == ["unknown"]


def test_a_checkpoint_that_comes_and_goes_stays_in_doubt(journal: Journal) -> None:
    """One that is deleted before the store knew that it was there: hearing of the first does not settle the second."""
    journal.mark_pending("brief")
    journal.mark_pending("brief")
    journal.clear_pending("brief")
    assert (journal.directory / "checkpoints" / "brief").exists()
    journal.clear_pending("brief")
    assert not (journal.directory / "checkpoints" / "brief").exists()


def test_the_store_is_the_default(home: Path) -> None:
    """Decision 4: a plain run is recorded; the data directory is this user's alone, and the store is not opened yet."""
    assert isinstance(choose_link(new_run(), WHO), StoreLink)
    assert os.stat(home).st_mode & 0o777 == 0o700  # noqa: PTH116 - the mode is the point
    assert list(home.iterdir()) == []


def test_tracking_off_records_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 4: DET_TRACKING=off turns recording off."""
    monkeypatch.setenv("DET_TRACKING", "off")
    assert isinstance(choose_link(new_run(), WHO), NullLink)
    assert not home.exists()
