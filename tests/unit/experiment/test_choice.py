"""Which slots are shown: the controller's, a cluster's or this machine's, and when a cluster is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.experiment.launchers import choice
from determined.experiment.slots import Slots
from determined.store.control import controllers
from determined.store.control.controllers import ControllerRow
from determined.store.database.connection import Store
from tests.clusters import ENVIRONMENT, drive
from tests.history import History

HERE, ASKED, UNKNOWN = Slots("cpu", ("0",)), Slots("cpu", ("fresh/0",)), Slots("cpu", ())


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments of controllers whose cluster was asked."""
    made: list[dict[str, str]] = []

    def ask(_: Store, holder: ControllerRow | None) -> Slots:
        made.append(holder.environment if holder else {})
        return ASKED

    monkeypatch.setattr(choice, "_asked", ask)
    monkeypatch.delenv("DET_LAUNCHER", raising=False)
    return made


def shown(history: History, *, may_ask: bool = True) -> Slots:
    return choice.shown_slots(history.store, here=lambda: HERE, may_ask=may_ask)


def test_a_living_controller_knows_its_cluster(history: History, asked: list[dict[str, str]]) -> None:
    """Issue 16: what a living controller says is shown, whatever launcher was asked for; nobody else is asked."""
    found = drive(history)
    assert shown(history) == found == choice.find_slots(history.store)
    assert asked == []


def test_a_cluster_without_a_controller_is_asked(
    history: History, asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: with no controller the cluster that DET_LAUNCHER means is asked, unless that would take a process."""
    assert shown(history) == HERE
    monkeypatch.setenv("DET_LAUNCHER", "ray")
    assert shown(history) == ASKED
    assert asked == [{}]
    assert shown(history, may_ask=False) == UNKNOWN
    assert asked == [{}]


def test_the_cluster_of_a_killed_controller(
    history: History, asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: its successor goes to the same cluster, so that is asked; a page shows what was known of it."""
    known = drive(history, is_alive=False)
    assert shown(history) == ASKED
    assert asked == [ENVIRONMENT]
    assert shown(history, may_ask=False) == known
    monkeypatch.setenv("DET_LAUNCHER", "local")
    assert shown(history) == shown(history, may_ask=False) == HERE


def test_a_local_controller_has_the_slots_of_this_machine(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking is not refused: with DET_LAUNCHER=ray the slots of a living local controller are shown."""
    monkeypatch.setenv("DET_LAUNCHER", "ray")
    with history.store.write() as conn:
        assert controllers.take(conn, "me", launcher="local", info={"slots": 1, "cluster": None})
    assert shown(history) == HERE
