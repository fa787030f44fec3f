"""The model registry over the API."""

from __future__ import annotations

import pytest

from determined.client import Determined
from determined.errors import InvalidValue, NotFound, Refused
from tests.asking import Asker
from tests.history import History


def test_a_model_has_versions_and_says_how_to_use_them(history: History, runs: Determined, page: Asker) -> None:
    """8.2: a model shows its versions, the newest first, with metric and size, and the lines that load the newest."""
    run = history.run(validation={10: 0.9, 20: 0.7}, checkpoints=[10, 20])
    made = page.send("POST", "/models", {"name": "digits", "description": "handwriting"})
    for uuid in run.uuids:
        runs.get_model("digits").register_version(uuid, comment="good")
    answer = page.get(f"/models/{made['id']}")
    assert answer["model"]["num_versions"] == 2
    assert [(each["version"], each["steps"], each["value"]) for each in answer["versions"]] == [
        (2, 20, 0.7),
        (1, 10, 0.9),
    ]
    assert answer["versions"][0]["searcher_metric"] == "loss"
    assert answer["use_lines"] == (
        "from determined import client\npath = client.get_model('digits').get_version().checkpoint.download()"
    )


def test_models_are_listed_in_pages(page: Asker) -> None:
    """Models come in pages, the last changed first; archived ones on demand; a part of a name finds them."""
    ids = [page.send("POST", "/models", {"name": f"model {letter}"})["id"] for letter in "abc"]
    page.send("PATCH", f"/models/{ids[0]}", {"archived": True})
    assert [each["name"] for each in page.get("/models")["models"]] == ["model c", "model b"]
    some = page.get("/models", archived=True, limit=1, offset=1)
    assert ([each["name"] for each in some["models"]], some["total"]) == (["model c"], 3)
    assert [each["name"] for each in page.get("/models", name="EL B")["models"]] == ["model b"]


def test_a_model_is_edited_and_archived(page: Asker) -> None:
    """Texts, labels and metadata change; an archived model is edited only when it is unarchived, too."""
    place = f"/models/{page.send('POST', '/models', {'name': 'digits'})['id']}"
    page.send("PATCH", place, {"notes": "# good", "labels": ["vision"], "metadata": {"a": {"b": 1}}})
    page.send("PATCH", place, {"description": "last words", "archived": True})
    model = page.get(place)["model"]
    assert (model["notes"], model["labels"], model["metadata"]) == ("# good", ["vision"], {"a": {"b": 1}})
    assert (model["description"], model["archived"]) == ("last words", True)
    with pytest.raises(Refused, match="is archived"):
        page.send("PATCH", place, {"notes": ""})
    page.send("PATCH", place, {"notes": "", "archived": False})
    assert page.get(place)["model"]["notes"] == ""


def test_deleting_leaves_the_checkpoints(history: History, runs: Determined, page: Asker) -> None:
    """A version, or a whole model, goes; its checkpoint stays. -1 is no version, and deletes nothing."""
    run = history.run(checkpoints=[10])
    place = f"/models/{page.send('POST', '/models', {'name': 'digits'})['id']}"
    runs.get_model("digits").register_version(run.uuids[0])
    with pytest.raises(NotFound, match="no version -1"):
        page.send("DELETE", f"{place}/versions/-1")
    page.send("DELETE", f"{place}/versions/1")
    assert page.get(place)["versions"] == []
    page.send("DELETE", place)
    with pytest.raises(NotFound, match="no model"):
        page.get(place)
    assert page.get(f"/checkpoints/{run.uuids[0]}")["state"] == "COMPLETED"


def test_a_name_that_cannot_be_is_refused(page: Asker) -> None:
    """Names are checked as `det model create` checks them."""
    with pytest.raises(InvalidValue, match="cannot name a model"):
        page.send("POST", "/models", {"name": "12"})
    page.send("POST", "/models", {"name": "digits"})
    with pytest.raises(Refused, match="already"):
        page.send("POST", "/models", {"name": "digits"})
