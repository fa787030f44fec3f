"""What the watcher tells: new rows at once, edits soon, a lost store and its return; streams that read slowly."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.client._session import Session
from determined.errors import StoreUnavailable
from determined.server import changes
from determined.server.changes import Listener, Watcher, _Looker
from determined.server.routes import events
from determined.store import experiments
from determined.store.overview.changes import Change
from tests.history import History, Run


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(changes, "time", made)
    return made


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    place = tmp_path / "place"
    place.mkdir()
    with History(tmp_path, place / "runs.db") as made:
        yield made


@pytest.fixture
def run(history: History) -> Run:
    return history.run(state="RUNNING")


@pytest.fixture
def looker(history: History, run: Run, clock: Clock) -> Iterator[_Looker]:
    """One that has looked once."""
    session = Session(history.place)
    made = _Looker(session)
    assert not made.look(edited=False)
    clock.now += 100  # nothing was told for a long time
    yield made
    made.close()
    session.close()


def rename(history: History, run: Run, name: str) -> None:
    with history.store.write() as conn:
        experiments.update(conn, run.experiment_id, name=name)


def test_an_edit_is_other(looker: _Looker, history: History, run: Run) -> None:
    """A name that somebody changed, with `det` for example, is told at once when nothing else happens."""
    rename(history, run, "another")
    assert looker.look(edited=False) == Change(other=True)
    assert not looker.look(edited=False)


def test_an_edit_behind_reports_is_told_in_time(looker: _Looker, history: History, run: Run, clock: Clock) -> None:
    """While runs report all the time, an edit is told within five seconds, and `other` not more often than that."""
    told = []
    for step in range(1, 61):  # twelve seconds
        history.report(run, "training", {step: 0.1})
        change = looker.look(edited=False)
        assert change.trials == {run.trial_id}
        told.append(change.other)
        clock.now += 0.2
    assert 2 <= sum(told) <= 4
    first = told.index(True)
    rename(history, run, "another")
    assert first == 0  # the first commit after a long silence may be an edit
    seen = []
    for _ in range(30):
        seen.append(looker.look(edited=False).other)
        clock.now += 0.2
    assert seen.count(True) == 1


def test_our_own_edit_is_told_at_once(looker: _Looker, history: History, run: Run, clock: Clock) -> None:
    """What this server has changed itself is told with the next look, whatever was told before."""
    rename(history, run, "one")
    assert looker.look(edited=True).other
    rename(history, run, "two")
    assert looker.look(edited=True).other


def test_a_lost_store_is_looked_at_anew(looker: _Looker, history: History, run: Run) -> None:
    """While the file is away every look fails; when it is back, everything may be old."""
    rename(history, run, "another")
    assert looker.look(edited=False).other  # the next one would be told only after a while
    place = Path(history.place).parent
    history.close()
    place.rename(place.with_name("elsewhere"))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="removed"):
            looker.look(edited=False)
        looker.is_lost = True
    place.with_name("elsewhere").rename(place)
    history.report(run, "training", {7: 0.1})
    change = looker.look(edited=False)
    assert (change.other, change.trials) == (True, {run.trial_id})
    assert not looker.look(edited=False)


def test_another_store_in_its_place_is_noticed(looker: _Looker, history: History, tmp_path: Path) -> None:
    """A store that was replaced has other ids: the page is told to ask for everything, and goes on with the new one."""
    (tmp_path / "new").mkdir()
    with History(tmp_path / "new", tmp_path / "new" / "runs.db"):
        pass
    place = Path(history.place)
    history.close()
    for beside in ("-wal", "-shm"):
        place.with_name(place.name + beside).unlink(missing_ok=True)
    (tmp_path / "new" / "runs.db").replace(place)
    assert looker.look(edited=False).other
    with History(tmp_path, place) as other:
        first = other.run(state="RUNNING")
        assert first.experiment_id in looker.look(edited=False).experiments


def test_a_slow_stream_gets_one_answer() -> None:
    """What happens while nobody reads is one change when somebody does: memory does not grow."""

    async def listen() -> None:
        listener = Listener()
        assert await listener.news(0) is None
        for number in range(100):
            listener.tell(change=Change(trials=frozenset({number % 3})))
        listener.tell(available=(False, "gone"))
        listener.tell(available=(True, ""))
        news = await listener.news(1)
        assert news is not None
        assert (news.change, news.is_available) == (Change(trials=frozenset({0, 1, 2})), True)
        assert await listener.news(0) is None

    asyncio.run(listen())


def test_a_late_stream_hears_of_the_last_seconds(history: History, clock: Clock) -> None:
    """A page asks for its data a little before it listens: what changed in between is told to it."""

    async def listen() -> None:
        watcher = Watcher(Session(history.place))
        watcher._spread(Change(trials=frozenset({1})), None)
        clock.now += 60
        watcher._spread(Change(trials=frozenset({2})), None)
        listener = watcher.listen()
        assert listener is not None
        news = await listener.news(1)
        assert news is not None
        assert news.change.trials == {2}
        watcher.leave(listener)

    asyncio.run(listen())


def test_what_is_stored_after_the_hello_is_told(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 15: a stream that is opened while a new server has not looked at the store yet begins when it has."""
    real = _Looker.look

    def slow(looker: _Looker, *, edited: bool) -> Change:
        time.sleep(0.3 if looker._seen is None else 0)
        return real(looker, edited=edited)

    monkeypatch.setattr(_Looker, "look", slow)

    async def listen() -> None:
        watcher = Watcher(Session(history.place))
        watcher.start()
        listener = watcher.listen()
        assert listener is not None
        stream = events._stream(watcher, listener)
        assert (await anext(stream)).startswith("event: hello")
        run = history.run(state="RUNNING")
        told = [line for line in (await anext(stream)).splitlines() if line.startswith("data: ")]
        assert json.loads(told[0].removeprefix("data: "))["trials"] == [run.trial_id]
        await stream.aclose()
        watcher.stop()

    asyncio.run(asyncio.wait_for(listen(), 10))


def test_there_is_room_for_so_many_streams(history: History) -> None:
    """Streams are bounded; one that left makes room."""

    async def listen() -> None:
        watcher = Watcher(Session(history.place))
        found = [watcher.listen() for _ in range(changes.MOST_LISTENERS)]
        assert watcher.listen() is None
        assert found[0] is not None
        watcher.leave(found[0])
        assert watcher.listen() is not None

    asyncio.run(listen())


def test_long_lists_are_cut() -> None:
    """A page is told at most 200 ids of each sort, the newest, and then to look at everything."""
    body = events._body(Change(trials=frozenset(range(1000)), logs=frozenset({7})))
    assert (len(body["trials"]), body["trials"][-1], body["logs"], body["other"]) == (200, 999, [7], True)
    assert events._body(Change(trials=frozenset(range(200))))["other"] is False
