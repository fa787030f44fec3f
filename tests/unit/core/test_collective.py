"""Ranks that are threads: what they exchange, and what happens when they do not do the same."""

from __future__ import annotations

import os
import pickle
import random
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from determined.core import DistributedContext
from determined.core.ranks import signing
from determined.core.ranks.session import Session
from determined.errors import CheckpointNotFound, CollectiveError, CollectiveTimeout
from tests.ranks import each_in_a_thread, run_threads, try_threads

CALLS = ("gather", "allgather", "broadcast", "gather_local", "allgather_local", "broadcast_local")


def call_all(distributed: DistributedContext) -> list[Any]:
    return [getattr(distributed, call)(f"v{distributed.rank}") for call in CALLS]


# What is returned.


def test_four_ranks_on_two_machines() -> None:
    """C-10: each collective returns exactly what the table in 2.2 says."""
    everyone, first, second = ["v0", "v1", "v2", "v3"], ["v0", "v1"], ["v2", "v3"]
    assert run_threads(4, call_all, machines=[2, 2]) == [
        [everyone, everyone, "v0", first, first, "v0"],
        [None, everyone, "v0", None, first, "v0"],
        [None, everyone, "v0", second, second, "v2"],
        [None, everyone, "v0", None, second, "v2"],
    ]


def test_machines_of_different_size() -> None:
    """C-17: with machines of 2 and 1 processes construction succeeds and all collectives work."""
    everyone = ["v0", "v1", "v2"]
    assert run_threads(3, call_all, machines=[2, 1]) == [
        [everyone, everyone, "v0", ["v0", "v1"], ["v0", "v1"], "v0"],
        [None, everyone, "v0", None, ["v0", "v1"], "v0"],
        [None, everyone, "v0", ["v2"], ["v2"], "v2"],
    ]


def test_lists_are_ordered_by_rank() -> None:
    """C-12: ranks that enter in reverse order are still listed by rank."""

    def body(distributed: DistributedContext) -> Any:
        time.sleep(0.1 * (2 - distributed.rank))
        return distributed.allgather(distributed.rank)

    assert run_threads(3, body) == [[0, 1, 2]] * 3


def test_a_thousand_rounds_at_uneven_speed() -> None:
    """C-16: 1000 allgathers from 3 ranks of different speed return values of one round; other calls fit between."""

    def body(distributed: DistributedContext) -> int:
        pace, right = random.Random(distributed.rank), 0
        for turn in range(1000):
            if pace.random() < 0.02 * distributed.rank:
                time.sleep(0.002)
            right += distributed.allgather((distributed.rank, turn)) == [(rank, turn) for rank in range(3)]
            if turn % 10 == 0:
                right += distributed.broadcast(turn + distributed.rank) == turn
        return right

    assert run_threads(3, body) == [1100] * 3


def test_the_chief_gets_its_own_object_back() -> None:
    """Contract 2.2: the chief's own contribution is returned by reference, others by copy."""
    shared = [1]

    def body(distributed: DistributedContext) -> list[bool]:
        gathered = distributed.gather(shared) or [None]
        return [
            gathered[0] is shared,
            distributed.allgather(shared)[distributed.rank] is shared,
            distributed.broadcast(shared) is shared,
        ]

    assert run_threads(2, body) == [[True, True, True], [False, False, False]]


@pytest.mark.parametrize("call", ["gather", "allgather"])
def test_nobody_leaves_before_all_have_come(call: str) -> None:
    """Contract 2.2: gather and allgather complete on no rank before all ranks have contributed."""

    def body(distributed: DistributedContext) -> tuple[float, float]:
        time.sleep(0.3 if distributed.rank == 2 else 0)
        came = time.monotonic()
        getattr(distributed, call)(None)
        return came, time.monotonic()

    times = run_threads(3, body)
    assert min(returned for _, returned in times) >= max(came for came, _ in times)


def test_a_broadcast_does_not_wait_for_readers() -> None:
    """Contract 2.2: the chief may be many broadcasts ahead."""
    sent = threading.Event()

    def body(distributed: DistributedContext) -> list[int]:
        if distributed.rank:
            assert sent.wait(90)
        found = [distributed.broadcast(turn + distributed.rank) for turn in range(100)]
        sent.set()
        return found

    assert run_threads(2, body) == [list(range(100))] * 2


def test_the_store_does_not_fill_up() -> None:
    """After 1000 rounds, or 1000 broadcasts, the store holds about as many keys as after a few."""
    ahead = threading.Semaphore(5)

    def keys(distributed: DistributedContext) -> int:
        distributed.allgather(None)
        found = distributed._channel.session.connection.store.num_keys() if distributed.rank == 0 else 0
        distributed.allgather(None)
        return found

    def body(distributed: DistributedContext) -> list[int]:
        found = [keys(distributed)]
        for turn in range(500):
            distributed.allgather(turn)
            distributed.gather_local(turn)
        found.append(keys(distributed))
        for turn in range(1000):
            if distributed.rank == 0:
                assert ahead.acquire(timeout=90)
            distributed.broadcast(bytes(9 << 20 if turn == 500 else 300_000) if turn % 100 == 0 else turn)
            if distributed.rank == 1:
                ahead.release()
            if turn % 50 == 0:
                found.append(distributed._channel.session.connection.store.num_keys())
        return [*found, keys(distributed)]

    counts = run_threads(2, body)[0]
    assert max(counts) <= min(counts) + 40


# What goes wrong.


@pytest.mark.parametrize(
    "calls",
    [
        ("gather", "broadcast"),
        ("broadcast", "gather"),
        ("gather", "allgather"),
        ("allgather", "gather_local"),
        ("gather_local", "allgather"),
    ],
)
def test_different_calls_are_named_on_every_rank(calls: tuple[str, str]) -> None:
    """Contract 2.5 Better: when ranks 0 and 1 call different things, the error on all names both ranks and calls."""

    def body(distributed: DistributedContext) -> None:
        distributed.allgather(0)
        getattr(distributed, calls[1 if distributed.rank == 1 else 0])(distributed.rank)
        distributed.allgather(1)  # where a chief that need not wait finds out

    outcomes = try_threads(3, body)
    for outcome in outcomes:
        assert isinstance(outcome, CollectiveError)
        assert not isinstance(outcome, CollectiveTimeout)
        text = str(outcome)
        assert "call 2" in text or "call 1 on its machine" in text
        assert "rank 1 called" in text or "where rank 1 called" in text
        assert all(f"{call}()" in text for call in calls)


def test_why_a_rank_has_left_is_told_even_if_it_was_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.5 Better: one that fails and leaves between two looks of another is not said to have merely closed."""
    find_abort, looks = Session.find_abort, []

    def look(session: Session) -> CollectiveError | None:
        if threading.current_thread().name != "rank-1" or looks:
            return find_abort(session)
        looks.append("just before rank 0 fails and leaves")
        while not session.connection.has(session.path("left", 0)):
            time.sleep(0.005)
        return None

    def body(distributed: DistributedContext) -> None:
        if distributed.rank == 0:
            monkeypatch.setattr(distributed._channel, "_show", interrupt)
        else:
            monkeypatch.setattr(Session, "find_abort", look)
        distributed.allgather(1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    assert "rank 0 left allgather(), call 1, before its end: KeyboardInterrupt" in str(try_threads(2, body)[1])
    assert looks


def test_one_call_too_many_is_named() -> None:
    """Contract 2.5 Better: a rank that skips a call makes an error on all, not a wrong value."""

    def body(distributed: DistributedContext) -> None:
        if distributed.rank == 0:
            distributed.broadcast("only some ranks get here")
        distributed.allgather(distributed.rank)

    for outcome in try_threads(2, body):
        assert isinstance(outcome, CollectiveError)
        assert "rank 1 called allgather(), call 1, where rank 0 called" in str(outcome) or (
            "rank 0 called broadcast(), call 1, where rank 1 called allgather(), call 1" in str(outcome)
        )


def test_after_a_failure_the_context_stays_failed() -> None:
    """A session that has failed says why at every later call, at once."""

    def body(distributed: DistributedContext) -> str:
        with pytest.raises(CollectiveError):
            distributed.gather(1) if distributed.rank else distributed.allgather(1)
        with pytest.raises(CollectiveError, match=r"since an earlier call failed: .*gather") as caught:
            distributed.broadcast(1)
        return str(caught.value)

    run_threads(2, body)


@pytest.mark.parametrize(("call", "sender"), [("gather", 1), ("allgather", 0), ("allgather", 1), ("broadcast", 0)])
def test_what_cannot_be_pickled_hangs_nobody(call: str, sender: int) -> None:
    """Contract 2.5 Better: the sender gets the pickling error, the others one that names it; the next call works."""

    def body(distributed: DistributedContext) -> tuple[str, Any]:
        with pytest.raises((TypeError, CollectiveError)) as caught:
            getattr(distributed, call)(threading.Lock() if distributed.rank == sender else 1)
        return f"{type(caught.value).__name__}: {caught.value}", distributed.allgather(distributed.rank)

    for rank, (text, afterwards) in enumerate(run_threads(3, body)):
        assert afterwards == [0, 1, 2]
        if rank == sender:
            assert text == "TypeError: cannot pickle '_thread.lock' object"
        else:
            assert text.startswith(
                f"CollectiveError: The object for {call}(), call 1, could not be pickled by rank {sender}"
            )


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


def test_what_cannot_be_unpickled_says_who_sent_it() -> None:
    """An object that fails to load names its sender; the ranks stay together."""

    def body(distributed: DistributedContext) -> list[int]:
        with pytest.raises(CollectiveError, match=r"What rank 1 sent to allgather.* ValueError"):
            distributed.allgather(Unreadable() if distributed.rank == 1 else 0)
        return distributed.allgather(distributed.rank)

    assert run_threads(2, body) == [[0, 1]] * 2


def test_a_late_rank_is_named_after_the_timeout() -> None:
    """Contract 2.5 Better: a rank that does not come in time is named, with the call, on every other rank."""
    came, gave_up = threading.Event(), threading.Barrier(3, timeout=90)

    def body(distributed: DistributedContext) -> None:
        channel: Any = distributed._channel
        show = channel._show
        try:
            if distributed.rank == 0:
                assert came.wait(90)
                channel.allgather("allgather", 0, limit=0.4)
            elif distributed.rank == 1:
                channel._show = lambda *said: (show(*said), came.set())
                distributed.allgather(0)
        finally:
            gave_up.wait()

    for outcome in try_threads(3, body)[:2]:
        assert isinstance(outcome, CollectiveTimeout)
        assert "rank 2 did not come to allgather(), call 1, within 0.4 s" in str(outcome)


# On top of the others.


def test_what_the_chief_does_reaches_all() -> None:
    """run_on_chief runs once; its result is everywhere."""
    ran: list[int] = []

    def body(distributed: DistributedContext) -> int:
        return distributed.run_on_chief(lambda: ran.append(distributed.rank) or 41 + len(ran))

    assert run_threads(3, body) == [42] * 3
    assert ran == [0]


class Picky(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_what_the_chief_raises_reaches_all() -> None:
    """run_on_chief raises the chief's error everywhere: the same type if it can be sent, else one that tells it."""

    def body(distributed: DistributedContext) -> list[str]:
        found = []
        for error in (CheckpointNotFound("none there"), Picky(1, 2), SystemExit(3)):

            def fail(error: BaseException = error) -> None:
                raise error

            with pytest.raises(BaseException) as caught:  # looked at below
                distributed.run_on_chief(fail)
            found.append(f"{type(caught.value).__name__}: {caught.value}")
        return [*found, distributed.broadcast("still together")]

    chief, other = run_threads(2, body)
    assert chief == ["CheckpointNotFound: none there", "Picky: 1 and 2", "SystemExit: 3", "still together"]
    assert other == [
        "CheckpointNotFound: none there",
        "CollectiveError: rank 0 failed in run_on_chief() with Picky: 1 and 2",
        "CollectiveError: rank 0 failed in run_on_chief() with SystemExit: 3",
        "still together",
    ]


def test_all_go_on_or_none() -> None:
    """agree() raises on every rank if one failed: its own error there, one that names it elsewhere."""

    def body(distributed: DistributedContext) -> str:
        distributed.agree(None)
        with pytest.raises((OSError, CollectiveError)) as caught:
            distributed.agree(OSError("disk full") if distributed.rank == 1 else None)
        distributed.agree(None)
        return f"{type(caught.value).__name__}: {caught.value}"

    told = "CollectiveError: rank 1 failed with OSError: disk full. See the output of that rank."
    assert run_threads(3, body) == [told, "OSError: disk full", told]


# Who may speak.


def test_a_rank_with_another_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.5 Better: ranks whose secrets differ do not meet, and are told why."""
    secrets = {"rank-0": b"right", "rank-1": b"wrong"}
    monkeypatch.setattr(signing, "job_secret", lambda one_machine: secrets[threading.current_thread().name])
    for outcome in try_threads(2, lambda distributed: None):
        assert isinstance(outcome, CollectiveError)
        assert "not signed with the secret of this job" in str(outcome)
        assert "DET_JOB_SECRET" in str(outcome)


class Trap:
    sprung = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "sprung", True)


@pytest.mark.parametrize("machines", [[2], [1, 1]])
def test_a_forged_message_is_not_unpickled(machines: list[int]) -> None:
    """Contract 2.5 Better: what others write into the store is refused before anything in it is unpickled."""
    was_read = threading.Event()

    def body(distributed: DistributedContext) -> None:
        if distributed.rank == 1:
            session = distributed._channel.session
            path = session.path("job", 1)
            session.connection.set(path, signing.sign(b"guess", path, pickle.dumps(Trap())))
            assert was_read.wait(90)
        else:
            try:
                distributed.gather(0)
            finally:
                was_read.set()

    outcome = try_threads(2, body, machines=machines)[0]
    assert isinstance(outcome, CollectiveError)
    assert "rank 1 is not signed" in str(outcome)
    assert not Trap.sprung


def test_a_message_cannot_be_replayed() -> None:
    """Contract 2.5 Better: a signature holds for one meeting, one place and one call."""

    def body(distributed: DistributedContext) -> tuple[str, bytes, bytes]:
        distributed.allgather("a message")
        session = distributed._channel.session
        path = session.path("job", distributed.rank)
        record = session.connection.get(path)
        distributed.allgather(None)
        return path.partition("/")[2], session.key, record

    one, other = run_threads(2, body)[1], run_threads(2, body)[1]
    assert one[0] == other[0]
    assert one[1] != other[1]  # one user's key, two meetings


def test_the_key_file_is_private_and_made_once(tmp_path: Path, home: Path) -> None:
    """On one machine the secret is a file of this user's that others cannot read; ranks that make it at once agree."""
    found = each_in_a_thread([lambda: signing.job_secret(one_machine=True)] * 8, 90)
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert [path.name for path in home.iterdir()] == [signing.KEY_FILE]
    assert stat.S_IMODE((home / signing.KEY_FILE).stat().st_mode) == 0o600


def refused(one_machine: bool) -> str:
    with pytest.raises(CollectiveError) as caught:
        signing.job_secret(one_machine=one_machine)
    return str(caught.value)


def test_no_job_is_without_a_secret(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Contract 2.5 Better: signing is never optional. What stands in its way is a sentence with what to type."""
    assert "DET_JOB_SECRET is not set, and ranks on several machines" in refused(one_machine=False)
    assert "with `openssl rand -hex 32`, and on every machine `export DET_JOB_SECRET=`" in refused(one_machine=False)
    own = signing.job_secret(one_machine=True)
    key = home / signing.KEY_FILE
    key.chmod(0o644)
    assert f"can be read by others. Delete it with `rm {key}`" in refused(one_machine=True)
    key.chmod(0o600)
    assert signing.job_secret(one_machine=True) == own
    key.write_bytes(b"")
    assert f"has 0 bytes instead of 32. Delete it with `rm {key}`" in refused(one_machine=True)
    monkeypatch.setenv("DET_JOB_SECRET", "told")
    assert signing.job_secret(one_machine=False) == signing.job_secret(one_machine=True) == b"told"


def test_where_the_data_directory_cannot_be_written_the_key_lies_in_a_private_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A read-only home does not stop training on one machine; a directory that others made is not trusted."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("DET_HOME", os.fspath(tmp_path / "file" / "below"))
    monkeypatch.setattr("tempfile.tempdir", os.fspath(tmp_path))
    first = signing.job_secret(one_machine=True)
    assert len(first) == 32
    assert signing.job_secret(one_machine=True) == first
    (private,) = tmp_path.glob("determined-*")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    private.chmod(0o755)
    text = refused(one_machine=True)
    assert f"{private} is not a directory of this user's alone. Set DET_HOME to a directory" in text


def test_threads_of_one_process_may_share_a_context() -> None:
    """Two threads that share a context take turns; each call is still one call."""

    def body(distributed: DistributedContext) -> int:
        inner = each_in_a_thread([lambda: [distributed.allgather("x") for _ in range(50)]] * 2, 90)
        return sum(len(found) for found in inner)

    assert run_threads(2, body) == [100, 100]


def test_ranks_keep_their_place() -> None:
    """A context is what its numbers say."""

    def body(d: DistributedContext) -> tuple[int, ...]:
        return (d.get_rank(), d.get_size(), d.get_local_rank(), d.local_size, d.cross_rank, d.get_num_agents())

    found = run_threads(3, body, machines=[1, 2])
    assert found == [(0, 3, 0, 1, 0, 2), (1, 3, 0, 2, 1, 2), (2, 3, 1, 2, 1, 2)]
