"""The det command on a store whose controller drives a Ray cluster: slots, nodes, who waits, and --launcher."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
import yaml

from determined.cli import options
from determined.experiment.controller import start
from determined.experiment.launchers import choice
from determined.experiment.slots import Slots
from determined.store import experiments
from determined.store.control import controllers
from tests.clusters import ENVIRONMENT, NODES, drive
from tests.history import History
from tests.running import Search
from tests.unit.cli.conftest import Det

WAITS = "It waits for 2 CPU slots: others use them."


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_CONTROLLER", "off")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("DET_LAUNCHER", raising=False)


def test_slots_of_a_cluster_are_listed_by_node(det: Det, history: History) -> None:
    """Issue 16: `det slot list` shows the slots of the controller's cluster, none of this machine, and who has each."""
    drive(history)
    search = Search(history)
    run = search.start(search.queue(), slots=2, slot_ids=["one/1", "two/0"])
    rows = list(csv.DictReader(io.StringIO(det("slot", "list", "--csv").stdout)))
    assert [(row["Slot"], row["Device"], row["Node"], row["Trial"]) for row in rows] == [
        ("one/0", "CPU", "one", ""),
        ("one/1", "CPU", "one", str(run.trial_id)),
        ("two/0", "CPU", "two", str(run.trial_id)),
    ]


def test_nodes_of_a_cluster_are_listed(det: Det, history: History) -> None:
    """Issue 16: people see every node with its address, slots, use and pools, also one that has no slot."""
    drive(history)
    search = Search(history)
    search.start(search.queue(), slot_ids=["one/1"])
    result = det("slot", "list")
    nodes = [line.split() for line in result.stdout.partition("Nodes\n")[2].splitlines()]
    assert ["one", "10.0.0.1", "2", "1", "fast"] in [[cell for cell in line if cell != "|"] for line in nodes]
    assert any(line[0] == "three" for line in nodes)
    assert "1 of 3 slots in use." in result.stderr


def test_slots_that_may_come_are_no_slots_yet(det: Det, history: History) -> None:
    """A cluster that grows by itself says how far; the slots of nodes that are not there are not listed."""
    drive(history, Slots.of_nodes("cuda", NODES, grows_to=8))
    assert [row["device"] for row in json.loads(det("slot", "list", "--json").stdout)] == ["GPU 0", "GPU 1", "GPU 0"]
    assert "0 of 3 slots in use. The cluster grows to 8 slots." in det("slot", "list").stderr


def test_trials_that_wait_for_nodes_hold_no_slot(det: Det, history: History) -> None:
    """Ray may place a trial where another was to go; a node never shows more slots in use than it has."""
    search = Search(history)
    waits = search.start(search.queue(), "ASSIGNED", slot_ids=["two/0"])
    run = search.start(search.queue(), slot_ids=["two/1"])
    drive(history, waiting={waits.trial_id: WAITS})
    rows = json.loads(det("slot", "list", "--json").stdout)
    assert [(row["id"], row["device"], row["trial_id"]) for row in rows] == [
        ("one/0", "CPU", None),
        ("one/1", "CPU", None),
        ("two/0", "CPU", run.trial_id),
    ]


def test_slots_of_a_node_that_is_lost(det: Det, history: History) -> None:
    """What a trial holds on a node that has left the cluster is shown with that node until the trial is given up."""
    drive(history)
    search = Search(history)
    search.start(search.queue(), slot_ids=["four/0"])
    last = json.loads(det("slot", "list", "--json").stdout)[-1]
    assert (last["id"], last["node"], last["state"]) == ("four/0", "four", "RUNNING")


def test_the_queue_says_why_trials_wait_for_nodes(det: Det, history: History) -> None:
    """Issue 16: a trial that waits for nodes has its reason in `det job list` and `det trial describe`."""
    search, other = Search(history), Search(history)
    first, second = (search.start(search.queue(), "ASSIGNED") for _ in range(2))
    drive(history, waiting={first.trial_id: WAITS, second.trial_id: WAITS})
    said = f"Trial {first.trial_id}: {WAITS} 1 more trial waits."
    assert {row["id"]: row["waiting"] for row in json.loads(det("job", "list", "--json").stdout)} == {
        search.id: said,
        other.id: None,
    }
    assert yaml.safe_load(det("job", "list", "--yaml").stdout)[0]["waiting"] == said
    assert said in det("job", "list").stdout
    assert WAITS in det("trial", "describe", second.trial_id).stdout, "rather than why its state changed"


def test_a_dead_controller_knows_no_reasons(det: Det, history: History) -> None:
    """What a controller said before it was killed is not taken for what is so now."""
    search = Search(history)
    run = search.start(search.queue(), "ASSIGNED")
    drive(history, waiting={run.trial_id: WAITS}, is_alive=False)
    assert json.loads(det("job", "list", "--json").stdout)[0]["waiting"] is None


def test_the_option_names_the_launcher_of_one_command(
    det: Det, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: `det --launcher ray` is DET_LAUNCHER=ray for this command and the controller that it starts."""
    seen: list[str] = []

    def spawn(*_: object) -> int:
        seen.append(os.environ["DET_LAUNCHER"])
        drive(history)
        return os.getpid()

    monkeypatch.setattr(start, "spawn", spawn)
    for words in (["--launcher", "ray", "controller", "start"], ["controller", "start", "--launcher", "local"]):
        det(*words)
        with history.store.write() as conn:
            controllers.leave(conn, "me")
    assert seen == ["ray", "local"]
    assert "DET_LAUNCHER" not in os.environ
    assert "is not one of 'local', 'ray'" in det("--launcher", "slurm", "slot", code=2).stderr
    assert tuple(choice.KINDS) == options.LAUNCHERS


def test_a_controller_with_another_launcher_is_in_the_way(det: Det, history: History, tmp_path: Path) -> None:
    """Issue 16: `controller start` and `experiment create` with another launcher than the living one's are refused."""
    drive(history)
    config = tmp_path / "experiment.yaml"
    config.write_text("name: one\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n")
    for words in (("controller", "start", "--launcher", "local"), ("--launcher", "local", "e", "create", config)):
        said = det(*words, code=1).stderr
        assert "A controller with the launcher ray drives this store" in said
        assert "det controller stop" in said
    assert "alive already" in det("controller", "start", "--launcher", "ray").stderr
    assert "one/0" in det("--launcher", "local", "slot", "list").stdout, "looking is not refused"
    with history.store.read() as conn:
        assert not experiments.count(conn)


def test_a_killed_controller_is_followed_by_one_like_it(
    det: Det, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: `det controller start` finds the cluster of the controller that was killed: its trials go on there."""
    given: list[dict[str, str]] = []

    def spawn(_: object, before: dict[str, str]) -> int:
        given.append(before)
        drive(history)
        return os.getpid()

    monkeypatch.setattr(start, "spawn", spawn)
    drive(history, is_alive=False)
    assert "Started a controller" in det("controller", "start").stderr
    assert given == [ENVIRONMENT]


def test_a_controller_that_cannot_start_says_why(det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that ends at once is not waited for; the reason that it logged is the error."""
    log = tmp_path / "home" / "logs" / "controller.log"
    log.parent.mkdir(parents=True)

    def spawn(*_: object) -> int:
        log.write_text("2026-01-01 [7] ERROR The controller cannot start: There is no Ray here. Type: ray start\n")
        return 2**30

    monkeypatch.setattr(start, "spawn", spawn)
    assert "had started: There is no Ray here. Type: ray start" in det("controller", "start", code=1).stderr
    log.unlink()
    monkeypatch.setattr(start, "spawn", lambda *_: 2**30)
    assert "See why: det controller logs" in det("controller", "start", code=1).stderr
