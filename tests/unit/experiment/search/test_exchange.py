"""Between a search and its experiment lies the store: events come out in order, answers go in, and none is lost."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from determined import errors
from determined.experiment.search import base
from determined.experiment.search.base import Answer
from determined.experiment.search.exchange import ANSWER, TOLD, StoreExchange, find
from determined.store import events, experiments
from determined.store.control import pending
from determined.store.database.connection import Store


@pytest.fixture(autouse=True)
def without_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_CONTROLLER", "off")


def create(store: Store, **searcher: Any) -> int:
    config = {
        "searcher": {"name": "custom", "metric": "loss", "runner": "r1", **searcher},
        "hyperparameters": {"lr": {"type": "double", "minval": 0.1, "maxval": 0.2}},
        "reproducibility": {"experiment_seed": 7},
    }
    with store.write() as conn:
        return experiments.create(conn, name="outside", owner="ada", config=config, state="ACTIVE")


def tell(store: Store, experiment_id: int, number: int, event: base.Event) -> None:
    with store.write() as conn:
        events.append(conn, experiment_id, TOLD, {"number": number, "event": base.to_json(event)})


def test_events_come_in_order_also_from_the_middle(store: Store) -> None:
    """3.7: the runner reads each event once; one that goes on after a crash starts where it was."""
    ident, other = create(store), create(store, runner="r2")
    tell(store, ident, 1, base.Initial())
    tell(store, other, 1, base.Initial())
    with store.write() as conn:
        events.append(conn, ident, "ENGINE", {})
    for number in (2, 3):
        tell(store, ident, number, base.TrialCreated(f"t{number}"))
    exchange = StoreExchange(store, ident)
    assert [exchange.next_event(n) for n in range(3)] == [
        base.Initial(), base.TrialCreated("t2"), base.TrialCreated("t3")
    ]  # fmt: skip
    assert StoreExchange(store, ident).next_event(2) == base.TrialCreated("t3")


def test_it_waits_for_the_next_event(store: Store) -> None:
    """Nothing is made up while the trials train."""
    ident = create(store)
    exchange = StoreExchange(store, ident)
    later = threading.Timer(0.3, tell, (store, ident, 1, base.Initial()))
    later.start()
    assert exchange.next_event(0) == base.Initial()
    later.join()


def test_events_end_with_the_experiment(store: Store) -> None:
    """What was told before the end is still read; then there is nothing more."""
    ident = create(store)
    tell(store, ident, 1, base.Initial())
    with store.write() as conn:
        experiments.set_state(conn, ident, "CANCELED", "Somebody canceled it.")
    exchange = StoreExchange(store, ident)
    assert exchange.next_event(0) == base.Initial()
    assert exchange.next_event(1) is None
    exchange.wait_for_end()


def test_answers_wait_for_the_controller(store: Store) -> None:
    """An answer is a pending event; one that would change nothing is not written."""
    ident = create(store)
    exchange = StoreExchange(store, ident)
    exchange.apply(Answer(1, (base.Stop("t1"),), 0.5))
    exchange.apply(Answer(2, (), 0.5))
    exchange.apply(Answer(3, (), 0.75))
    with store.read() as conn:
        waiting = pending.read(conn)
    assert [row.kind for row in waiting] == [ANSWER, ANSWER]
    assert [Answer.from_json(row.body) for row in waiting] == [Answer(1, (base.Stop("t1"),), 0.5), Answer(3, (), 0.75)]


def test_the_search_is_that_of_the_experiment(store: Store) -> None:
    """Section, space and seed are the stored ones: a runner that comes back needs no file."""
    section, space, seed = StoreExchange(store, create(store)).search()
    assert (section["metric"], list(space.effective()), seed) == ("loss", ["lr"], 7)
    with pytest.raises(errors.SearchError, match="not driven from outside"):
        StoreExchange(store, create(store, runner=None)).search()


def test_a_runner_finds_its_experiment(store: Store) -> None:
    """3.7: a crash right after submitting loses no experiment."""
    create(store)
    mine = create(store, runner="r2")
    assert find(store, "r2") == mine
    assert find(store, "r3") is None
