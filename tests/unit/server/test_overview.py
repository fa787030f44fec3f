"""Home, the queue, the search box, and which server this is, over the API."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from determined.client import Determined
from determined.errors import InvalidValue, Refused
from determined.experiment.launchers import choice
from determined.store import experiments, logs, trials, workspaces
from determined.store.messages import LogLine
from tests.asking import Asker
from tests.clusters import drive
from tests.history import START, History
from tests.running import Search

LONG_AGO = "2025-01-01T00:00:00Z"
CONFIG = {"searcher": {"name": "random"}, "resources": {"slots_per_trial": 2}}


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def test_about(history: History, page: Asker, runs: Determined) -> None:
    """The page knows its version, user and store, and whether anything was ever recorded."""
    answer = page.get("/about")
    assert answer["is_empty"]
    assert not answer["is_read_only"]
    assert answer["user"] == runs.user
    assert "runs.db" in answer["store"]
    run = history.run()
    with history.store.write() as conn:
        experiments.delete(conn, run.experiment_id)
    assert not page.get("/about")["is_empty"]


def test_home_of_an_empty_store(page: Asker) -> None:
    """Without runs there is nothing to show but slots."""
    answer = page.get("/home")
    assert (answer["running"], answer["ended"], answer["failed"], answer["projects"]) == ([], [], [], [])
    assert answer["slots_total"] >= answer["slots_used"] == 0


def test_home_shows_what_runs(history: History, page: Asker) -> None:
    """What has not ended is shown with its trials, slots, curve and time left; what trains comes first."""
    history.catch_up()
    done = history.run("plain", state="RUNNING", validation={1: 0.5, 2: 0.25}, slots=2)
    search = history.experiment("search", unmanaged=False, state="ACTIVE", config=CONFIG)
    for state in ("RUNNING", "COMPLETED", "ERROR"):
        trial = history.trial(search, state=state)
        if state == "RUNNING":
            with history.store.write() as conn:
                trials.set_state(conn, trial.trial_id, "ACTIVE")
    with history.store.write() as conn:
        trials.create(conn, search, hparams={}, state="ACTIVE")
        long = datetime.timedelta(minutes=10)
        experiments.update(conn, search, progress=0.5, start_time=history.tick() - long)
    paused = history.experiment("paused", unmanaged=False, state="PAUSED")
    shown = {row["name"]: row for row in page.get("/home")["running"]}
    assert list(shown) == ["search", "plain", "paused"]
    assert shown["search"]["counts"] == {"RUNNING": 1, "QUEUED": 1, "COMPLETED": 1, "ERROR": 1}
    assert shown["search"]["seconds_left"] == pytest.approx(600, rel=0.2)
    assert shown["search"]["single_trial_id"] is None
    assert shown["plain"]["slots"] == 2
    assert shown["plain"]["spark"] == [0.5, 0.25]
    assert shown["plain"]["single_trial_id"] == done.trial_id
    assert shown["plain"]["best_metric"] == 0.25
    assert (shown["paused"]["id"], shown["paused"]["state"], shown["paused"]["spark"]) == (paused, "PAUSED", [])


def test_home_shows_what_ended_since(history: History, page: Asker) -> None:
    """What ended after a moment is shown, the last first; archived and deleted ones are not."""
    first, second, third, fourth = (history.run(name) for name in ("first", "second", "archived", "deleted"))
    with history.store.write() as conn:
        experiments.update(conn, third.experiment_id, archived=True)
        experiments.delete(conn, fourth.experiment_id)
        end = experiments.get(conn, first.experiment_id).end_time
    assert end is not None
    assert names(page.get("/home", since=LONG_AGO)["ended"]) == ["second", "first"]
    assert names(page.get("/home", since=end.isoformat())["ended"]) == ["second"]
    answer = page.get("/home", since=LONG_AGO)["ended"][0]
    assert (answer["id"], answer["state"], answer["trial_count"]) == (second.experiment_id, "COMPLETED", 1)
    assert page.get("/home")["ended"] == []


def test_home_shows_why_runs_failed(history: History, page: Asker) -> None:
    """A failed run is shown with its last line that says something, and not among those that ended."""
    history.run("broken", state="ERROR", lines=["Traceback", "\x1b[31mValueError: lr is negative\x1b[0m", "  "])
    history.run("fine", lines=["done"])
    answer = page.get("/home", since=LONG_AGO)
    assert names(answer["ended"]) == ["fine"]
    assert [(row["name"], row["last_line"]) for row in answer["failed"]] == [("broken", "ValueError: lr is negative")]


def test_home_prefers_what_the_script_said(history: History, page: Asker) -> None:
    """The last line is the script's own, not the controller's account of it; without any, the controller's."""
    own = history.run("broken", state="ERROR", lines=["KeyError: 'lr'"])
    mute = history.run("mute", state="ERROR", lines=[])
    ended = LogLine("Attempt 1 ended: exit code 1.", "stdout", time=history.tick())
    with history.store.write() as conn:
        for run in (own, mute):
            logs.append(conn, run.attempt, [ended], source="controller")
    shown = {row["name"]: row["last_line"] for row in page.get("/home", since=LONG_AGO)["failed"]}
    assert shown == {"broken": "KeyError: 'lr'", "mute": "Attempt 1 ended: exit code 1."}


def test_home_shows_recent_projects(history: History, page: Asker) -> None:
    """Projects are in the order in which something was last started in them; empty ones are left out."""
    with history.store.write() as conn:
        vision = workspaces.create_project(conn, 1, "vision")
        workspaces.create_project(conn, 1, "empty")
    history.run(project_id=vision)
    history.run(project_id=vision)
    history.run()
    found = page.get("/home")["projects"]
    assert [(row["name"], row["experiments"]) for row in found] == [("Uncategorized", 1), ("vision", 2)]
    assert found[0]["last_start"] > START.isoformat()


def test_the_queue(history: History, page: Asker) -> None:
    """The queue lists what waits and runs with its slots, and says whether a controller is alive."""
    first = history.experiment("first", unmanaged=False, state="ACTIVE", config=CONFIG)
    history.experiment("second", unmanaged=False, state="PAUSED", config=CONFIG)
    history.run("by hand", state="RUNNING")
    answer = page.get("/queue")
    assert [(job["id"], job["ahead"], job["state"]) for job in answer["jobs"]] == [
        (first, 0, "QUEUED"),
        (2, None, "PAUSED"),
    ]
    assert not answer["controller"]["is_alive"]
    assert all(slot["trial_id"] is None for slot in answer["slots"])


@pytest.mark.parametrize("is_alive", [True, False])
def test_the_cluster(history: History, page: Asker, monkeypatch: pytest.MonkeyPatch, is_alive: bool) -> None:
    """Issue 16: the queue has the slots and nodes that the controller, or the last one, knew; no cluster is asked."""
    monkeypatch.setattr(choice, "_asked", lambda *_: pytest.fail("a page asked the cluster"))
    monkeypatch.delenv("DET_LAUNCHER", raising=False)
    search = Search(history)
    run, waits = search.start(search.queue(), slot_ids=["one/1"]), search.start(search.queue(), slot_ids=[])
    reason = "It waits for 1 CPU slot: others use them."
    drive(history, waiting={waits.trial_id: reason}, is_alive=is_alive)
    answer = page.get("/queue")
    assert [(slot["id"], slot["node"], slot["trial_id"]) for slot in answer["slots"]] == [
        ("one/0", "one", None),
        ("one/1", "one", run.trial_id),
        ("two/0", "two", None),
    ]
    assert answer["nodes"][0] == {"name": "one", "address": "10.0.0.1", "slots": 2, "slots_used": 1, "pools": ["fast"]}
    assert answer["nodes"][2]["slots"] == 0
    assert answer["jobs"][0]["waiting"] == (f"Trial {waits.trial_id}: {reason}" if is_alive else "")
    home = page.get("/home")
    assert (home["slots_used"], home["slots_total"]) == (1, 3)


def test_a_place_in_the_queue_changes(history: History, page: Asker) -> None:
    """Priority and limits change; what cannot be is refused in a sentence."""
    ident = history.experiment("search", unmanaged=False, state="ACTIVE", config=CONFIG)
    assert "priority is 7" in page.send("PATCH", f"/queue/{ident}", {"priority": 7, "max_slots": 2})["said"]
    [job] = page.get("/queue")["jobs"]
    assert (job["priority"], job["max_slots"]) == (7, 2)
    assert "no limit" in page.send("PATCH", f"/queue/{ident}", {"max_slots": 0})["said"]
    assert page.get("/queue")["jobs"][0]["max_slots"] is None
    with pytest.raises(InvalidValue, match="priority is 100"):
        page.send("PATCH", f"/queue/{ident}", {"priority": 100})
    with pytest.raises(InvalidValue, match="Nothing says what to change"):
        page.send("PATCH", f"/queue/{ident}", {})
    run = history.run()
    with pytest.raises(Refused, match="started by hand"):
        page.send("PATCH", f"/queue/{run.experiment_id}", {"priority": 1})


def test_the_search_box(history: History, page: Asker, runs: Determined) -> None:
    """Ids come first, then equal names, then parts of names, the newest first; case does not matter."""
    for name in ("digits", "digits-search", "my digits", "other"):
        history.run(name)
    runs.create_model("Digits model")
    with history.store.write() as conn:
        workspaces.create_project(conn, 1, "digits 2026")

    def found(text: str) -> list[tuple[str, int]]:
        return [(hit["kind"], hit["id"]) for hit in page.get("/search", q=text)["hits"]]

    everything = [("experiment", 1), ("experiment", 2), ("model", 1), ("project", 2), ("experiment", 3)]
    assert found("Digits") == everything
    assert found("#4") == found("4") == [("experiment", 4), ("trial", 4)]
    assert ("project", 2) in found("2")
    assert found("nothing") == found("  ") == found("%") == []
    assert "Trial 4" in page.get("/search", q="4")["hits"][1]["detail"]
