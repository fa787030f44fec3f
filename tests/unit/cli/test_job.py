"""det job, det slot and det controller: the queue, the devices, and the process that drives experiments."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from determined import _process
from determined.client import Determined
from determined.store import experiments
from determined.store.control import controllers, pending
from tests.history import History
from tests.running import Search
from tests.unit.cli.conftest import Det


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_SLOTS", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_the_queue_is_in_the_order_of_slots(det: Det, history: History) -> None:
    """6.3: `j list` has its columns; a smaller priority comes first, then the earlier one; what ended is not there."""
    first = Search(history, name="first")
    urgent = Search(history, name="urgent", resources={"priority": 1, "slots_per_trial": 2})
    paused = Search(history, name="paused", state="PAUSED")
    Search(history, name="over", state="COMPLETED")
    history.run("by hand", state="RUNNING")
    search_run = first.start(first.queue())
    first.queue()
    urgent.queue()
    rows = list(csv.DictReader(io.StringIO(det("j", "ls", "--csv").stdout)))
    assert list(rows[0]) == [
        "# ahead",
        "ID",
        "Type",
        "Job Name",
        "Priority",
        "Submitted",
        "Slots",
        "Status",
        "User",
        "Waiting",
    ]
    assert [(row["# ahead"], row["Job Name"], row["Slots"], row["Status"]) for row in rows] == [
        ("0", "urgent", "0/2", "QUEUED"),
        ("1", "first", "1/2", "RUNNING"),
        ("", "paused", "0/0", "PAUSED"),
    ]
    assert yaml.safe_load(det("job", "list", "--yaml").stdout)[0]["id"] == urgent.id
    assert json.loads(det("job", "list", "--json").stdout)[2]["id"] == paused.id
    assert "exclude each other" in det("job", "list", "--json", "--yaml", code=2).stderr
    first.end(search_run)


def test_an_empty_queue_says_how_to_fill_it(det: Det) -> None:
    """Nothing to list is no error."""
    assert "det experiment create" in det("j").stderr


@pytest.mark.parametrize("words", [("job", "update", 1, "--priority", 7), ("e", "set", "priority", 1, 7)])
def test_priority_can_be_changed(det: Det, history: History, words: tuple[object, ...]) -> None:
    """4.2, 6.2: both commands change the effective config of an experiment that has not ended; the rest stays."""
    search = Search(history)
    det(*words)
    with history.store.read() as conn:
        config = experiments.get(conn, search.id).config or {}
    assert config["resources"] == {"slots_per_trial": 1, "priority": 7, "weight": 1, "max_slots": None}
    assert config["max_restarts"] == 2


def test_the_limit_of_slots_can_be_cleared(det: Det, history: History) -> None:
    """6.2: `det job update ID --max-slots null` lifts the limit on slots."""
    search = Search(history)
    det("e", "set", "max-slots", search.id, 3)
    assert json.loads(det("j", "ls", "--json").stdout)[0]["slots"] == "0/0"
    with Determined(store=history.place) as client:
        assert client.list_jobs()[0].max_slots == 3
        det("job", "update", search.id, "--max-slots", "null", "--weight", 2.5)
        [job] = client.list_jobs()
        assert (job.max_slots, job.weight) == (None, 2.5)
    assert "no number of slots" in det("e", "set", "max-slots", search.id, "many", code=2).stderr
    assert "Give --priority" in det("job", "update", search.id, code=2).stderr


def test_what_is_over_is_not_edited(det: Det, history: History) -> None:
    """4.2: max_slots, weight and priority can be edited if not terminal; runs by hand wait in no queue."""
    over = Search(history, state="COMPLETED")
    assert "is COMPLETED" in det("job", "update", over.id, "--priority", 1, code=1).stderr
    run = history.run(state="RUNNING")
    assert "waits in no queue" in det("e", "set", "weight", run.experiment_id, 2, code=1).stderr
    with Determined(store=history.place) as client, pytest.raises(ValueError, match="from 1"):
        client.get_experiment(over.id).set_resources(priority=0)


def test_slots_say_who_holds_them(det: Det, history: History) -> None:
    """6.3: `s ls`: slot, device, in use by; a trial of two slots is there twice."""
    assert [row["state"] for row in json.loads(det("s", "ls", "--json").stdout)] == ["FREE", "FREE"]
    search = Search(history)
    run = search.start(search.queue(), slot_ids=["1"])
    result = det("slot")
    assert "1 of 3 slots in use." in result.stderr
    rows = list(csv.DictReader(io.StringIO(det("s", "ls", "--csv").stdout)))
    assert [(row["Slot"], row["Device"], row["Trial"], row["State"]) for row in rows if row["Node"] != "here"] == [
        ("0", "CPU", "", "FREE"),
        ("1", "CPU", "", "FREE"),
    ], "another machine's slots are not this one's"
    assert [(row["Slot"], row["Node"], row["Trial"], row["Attempt"]) for row in rows if row["Trial"]] == [
        ("1", "here", str(run.trial_id), "1")
    ]


def test_slots_of_this_machine_in_use(det: Det, history: History) -> None:
    """An attempt on this machine takes its slots out of the free ones."""
    search = Search(history)
    run = search.queue()
    history.attempt(run, state="STARTING", slots=2, slot_ids=["0", "1"], node=_process.this_node())
    rows = json.loads(det("s", "ls", "--json").stdout)
    assert [(row["id"], row["trial_id"], row["state"]) for row in rows] == [
        ("0", run.trial_id, "STARTING"),
        ("1", run.trial_id, "STARTING"),
    ]


def test_the_status_of_the_controller(det: Det, history: History) -> None:
    """Issue 14: alive or not, since when, what it drives and what waits."""
    result = det("controller", "status")
    assert "none is needed" in result.stderr
    search = Search(history)
    search.start(search.queue(), slots=2)
    with history.store.write() as conn:
        pending.append(conn, search.id, "REQUEST", {"action": "pause"})
    assert "det controller start" in det("controller").stderr
    with history.store.write() as conn:
        assert controllers.take(conn, "me", launcher="local", info={"slots": 4})
    found = json.loads(det("controller", "status", "--json").stdout)
    assert (found["is_alive"], found["node"], found["launcher"]) == (True, _process.this_node(), "local")
    assert (found["slots"], found["slots_used"], found["experiments"], found["trials"], found["pending"]) == (
        4,
        2,
        1,
        1,
        1,
    )


def test_there_is_nothing_to_stop(det: Det) -> None:
    """Stopping what does not run is no error."""
    assert "nothing to stop" in det("controller", "stop").stderr


def test_the_log_of_the_controller(det: Det, tmp_path: Path) -> None:
    """Its log is read from the data directory, all of it or the last lines; a machine without one is told so."""
    assert "no controller has run" in det("controller", "logs").stderr
    path = tmp_path / "home" / "logs" / "controller.log"
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\x1b[2J\nthree\n")
    assert det("controller", "logs").stdout == "one\ntwo\\u001b[2J\nthree\n"
    assert det("controller", "logs", "--tail", 1).stdout == "three\n"
