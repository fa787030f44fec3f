"""TensorBoards from the page: the same ones that `det tensorboard` knows, started, listed and ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from determined.cli.main import main
from determined.client.background import board_process, boards
from determined.errors import MissingPackage
from tests.history import History, Run
from tests.pages import PageApp
from tests.tensorboards import in_place_of_tensorboard, reaped

PATH = "/api/v1/tensorboards"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        yield made


@pytest.fixture
def run(history: History, tmp_path: Path) -> Run:
    (tmp_path / "events").mkdir()
    return history.run("one", tensorboard=str(tmp_path / "events"))


@pytest.fixture
def page(history: History, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageApp]:
    monkeypatch.setattr(board_process, "command", in_place_of_tensorboard)
    made = PageApp(history.place)
    with reaped():
        yield made
    made.close()


def det(*words: str) -> str:
    result = CliRunner().invoke(main, ["tensorboard", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_one_is_started_listed_and_ended(page: PageApp, run: Run, home: Path) -> None:
    """Tasks: what the page starts is what `det tensorboard list` shows, and the page ends it for good."""
    started = page.ask("POST", PATH, json={"experiments": [run.experiment_id], "trials": []}).json()
    assert (started["id"], started["is_alive"], started["experiments"]) == (1, True, [run.experiment_id])
    assert started["address"].startswith("http://127.0.0.1:")
    assert page.get(PATH).json() == {"tensorboards": [started], "said": ""}
    (listed,) = json.loads(det("list", "--json"))
    assert (listed["id"], listed["address"]) == (1, started["address"])
    process = psutil.Process(started["pid"])
    assert page.ask("DELETE", f"{PATH}/1").json() == {"said": "TensorBoard 1 is ended."}
    assert not process.is_running()  # nor is it left as a zombie of this server
    assert page.get(PATH).json()["tensorboards"] == []
    assert list((home / "tensorboards").iterdir()) == []


def test_one_that_died_is_shown_as_such(page: PageApp, run: Run) -> None:
    """Reading changes nothing: the page shows it as ended until somebody clears it away."""
    started = page.ask("POST", PATH, json={"trials": [run.trial_id]}).json()
    process = psutil.Process(started["pid"])
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE:
        pass
    assert page.get(PATH).json()["tensorboards"][0]["is_alive"] is False
    assert page.ask("DELETE", f"{PATH}/1").json() == {"said": "TensorBoard 1 had ended already."}


def test_what_cannot_be_started_is_a_sentence(page: PageApp, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to show, no such trial, no TensorBoard of that number, one that ends at once: each says so."""
    for method, path, body, status, said in (
        ("POST", PATH, {}, 422, "Name experiments or trials"),
        ("POST", PATH, {"trials": [99]}, 404, "99"),
        ("DELETE", f"{PATH}/7", None, 404, "There is no TensorBoard 7."),
    ):
        answer = page.ask(method, path, json=body)
        assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    script = "print('no such plugin'); raise SystemExit(3)"
    monkeypatch.setattr(board_process, "command", lambda *_: [sys.executable, "-c", script])
    refused = page.ask("POST", PATH, json={"trials": [run.trial_id]})
    assert (refused.status_code, refused.json()["detail"].endswith(": no such plugin")) == (409, True)
    assert boards.REGISTER.found() == {}


def test_a_missing_tensorboard_is_said_before_it_is_tried(
    page: PageApp, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package the page knows why, and what to type."""

    def missing() -> None:
        raise MissingPackage("TensorBoard is not installed. Type: pip install 'resolute[tensorboard]'")

    monkeypatch.setattr(boards, "check_installed", missing)
    assert "pip install" in page.get(PATH).json()["said"]
    refused = page.ask("POST", PATH, json={"trials": [run.trial_id]})
    assert (refused.status_code, "pip install" in refused.json()["detail"]) == (409, True)
