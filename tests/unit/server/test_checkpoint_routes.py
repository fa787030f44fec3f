"""Checkpoints over the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.errors import NotFound, Refused
from tests.asking import Asker
from tests.history import History


def test_checkpoints_are_listed_newest_first(history: History, page: Asker) -> None:
    """A page of checkpoints says which is the best and which are registered; the total counts all."""
    run = history.run(validation={10: 0.5, 20: 0.9}, checkpoints=[10, 20, 30])
    answer = page.get("/checkpoints", trial_id=run.trial_id, limit=2)
    assert [row["uuid"] for row in answer["checkpoints"]] == [run.checkpoints[30], run.checkpoints[20]]
    assert answer["total"] == 3
    rest = page.get("/checkpoints", experiment_id=run.experiment_id, limit=2, offset=2)
    assert [(row["uuid"], row["value"], row["is_best"]) for row in rest["checkpoints"]] == [
        (run.checkpoints[10], 0.5, True)
    ]


def test_a_checkpoint_shows_its_files(history: History, page: Asker) -> None:
    """8.2: where it lies, its files and sizes, and the line of Python that loads it."""
    run = history.run(validation={10: {"loss": 0.5, "odd": float("inf")}}, checkpoints=[10])
    answer = page.get(f"/checkpoints/{run.uuids[0]}")
    assert answer["location"] == str(history.root / "checkpoints" / run.uuids[0])
    assert [file["path"] for file in answer["files"]] == ["metadata.json", "state_dict.pth"]
    assert answer["validation_metrics"] == {"loss": 0.5, "odd": "Infinity"}
    assert answer["load_line"] == (
        f'from determined import client; path = client.get_checkpoint("{run.uuids[0]}").download()'
    )
    assert answer["actions"] == {"verify": "", "register": "", "delete": ""}


def test_verifying_tells_damage_and_changes_nothing(history: History, page: Asker) -> None:
    """Files are compared with what was saved; nothing is written, and the checkpoint's row stays."""
    run = history.run(checkpoints=[10])
    place = f"/checkpoints/{run.uuids[0]}"
    before = page.get(place)
    assert page.send("POST", f"{place}/verify") == {
        "is_whole": True,
        "problems": [],
        "files": 2,
        "said": "All 2 files are as they were saved.",
    }
    Path(before["location"], "state_dict.pth").write_bytes(b"weighty")
    answer = page.send("POST", f"{place}/verify")
    assert not answer["is_whole"]
    assert "state_dict.pth" in answer["problems"][0]
    assert page.get(place) == before


def test_a_checkpoint_becomes_a_version_of_a_new_model(history: History, page: Asker) -> None:
    """Registering makes the model if asked to; a registered checkpoint says why it stays."""
    run = history.run(checkpoints=[10])
    place = f"/checkpoints/{run.uuids[0]}"
    with pytest.raises(NotFound, match="no model digits"):
        page.send("POST", f"{place}/register", {"model": "digits"})
    page.send("POST", f"{place}/register", {"model": "digits", "create": True, "comment": "first"})
    answer = page.get(place)
    assert answer["versions"] == [{"model": "digits", "version": 1}]
    assert "digits 1" in answer["actions"]["delete"]
    assert page.get("/checkpoints", trial_id=run.trial_id)["checkpoints"][0]["is_registered"]
    with pytest.raises(Refused, match="in the model registry"):
        page.send("DELETE", place)


def test_deleting_removes_the_files(history: History, page: Asker) -> None:
    """A deleted checkpoint has no files, and its row says so."""
    run = history.run(checkpoints=[10])
    place = f"/checkpoints/{run.uuids[0]}"
    files = Path(page.get(place)["location"])
    page.send("DELETE", place)
    assert not files.exists()
    answer = page.get(place)
    assert (answer["state"], answer["files"]) == ("DELETED", [])
    assert "DELETED" in answer["actions"]["verify"]
