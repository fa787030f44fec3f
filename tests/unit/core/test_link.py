"""The journal: one line of JSON per report, whole lines only, in a file of the run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from determined import errors
from determined.core._link import JournalLink, NullLink, choose_link, new_run
from determined.store.messages import CheckpointReport, MetricReport, StatusReport


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_report_is_a_line(tmp_path: Path) -> None:
    """Contract 5.7 Better: local metrics are kept in a file of JSON lines, NaN spelled as a string (C-53)."""
    link = JournalLink(tmp_path / "deep" / "reports.jsonl")
    link.send([MetricReport("training", {"loss": float("nan")}, 3), CheckpointReport("id", {"a": 1}, {"f": 2})])
    link.send([StatusReport("done")])
    first, second, third = lines(link.path)
    assert (first["report"], first["metrics"], first["steps_completed"]) == ("MetricReport", {"loss": "NaN"}, 3)
    assert (second["storage_id"], second["resources"]) == ("id", {"f": 2})
    assert third["status"] == "done"
    assert str(first["time"]).endswith("+00:00")


def test_half_a_line_is_never_left(tmp_path: Path) -> None:
    """A write that broke off, as on a full disk, is cut away by the next one."""
    link = JournalLink(tmp_path / "reports.jsonl")
    link.send([StatusReport("one")])
    with link.path.open("a") as file:
        file.write('{"report": "Sta')  # what a full disk let through of a failed attempt
    link.send([StatusReport("two")])
    assert [line["status"] for line in lines(link.path)] == ["one", "two"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_unavailable_not_fatal(tmp_path: Path) -> None:
    """Decision 4: a full disk means LinkUnavailable, which is retried, with the reason in words."""
    (tmp_path / "reports.jsonl").symlink_to("/dev/full")
    with pytest.raises(errors.LinkUnavailable, match="No space left"):
        JournalLink(tmp_path / "reports.jsonl").send([StatusReport("one")])


def test_runs_do_not_share_a_journal(home: Path) -> None:
    """Two runs at once write to two files, below DET_HOME, which is this user's alone."""
    first, second = choose_link(new_run()), choose_link(new_run())
    first.send([StatusReport("one")])
    second.send([StatusReport("two")])
    assert len(list(home.glob("runs/*/reports.jsonl"))) == 2
    assert os.stat(home).st_mode & 0o777 == 0o700  # noqa: PTH116 - the mode is the point


def test_tracking_off_records_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 4: DET_TRACKING=off turns recording off."""
    monkeypatch.setenv("DET_TRACKING", "off")
    assert isinstance(choose_link(new_run()), NullLink)
    assert not home.exists()
