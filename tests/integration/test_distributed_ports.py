"""Ranks that are threads, which meet at a real port: how they find each other, and how they part."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed  # noqa: F401  # here, not within the seconds that a rank has to come

from determined.core import DistributedContext
from determined.core.ranks import connection, participant, session
from determined.errors import CollectiveError, CollectiveTimeout
from tests.ranks import each_in_a_thread, free_port, places, run_threads, try_threads


def make(rank: int, port: int, *, size: int = 2, timeout: float = 60, **other: Any) -> DistributedContext:
    return DistributedContext(**{**places(size)[rank], **other}, pub_port=port, timeout=timeout)


def meet(port: int, size: int = 2, **other: Any) -> list[Any]:
    return each_in_a_thread([lambda rank=rank: make(rank, port, size=size, **other) for rank in range(size)], 90)


# Meeting.


def test_ports_are_read_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.3 and 2.5 Better: the port variable counts at the time of the call, and `port_offset` is honoured."""
    with free_port() as port:
        monkeypatch.setenv("INTER_TRAIN_PROCESS_COMM_PORT_1", str(port - 7))

        def one(rank: int) -> int:
            with DistributedContext(**places(2)[rank], port_offset=7, timeout=60) as distributed:
                if rank == 0:
                    socket.create_connection(("127.0.0.1", port)).close()
                return distributed.broadcast(rank)

        assert each_in_a_thread([lambda: one(0), lambda: one(1)], 90) == [0, 0]


def test_ranks_arrive_in_any_order() -> None:
    """Contract 2.2: construction is a sync point: it returns on no rank before the last has come."""
    with free_port() as port:
        returned: dict[int, float] = {}
        came: dict[int, float] = {}

        def one(rank: int) -> None:
            time.sleep(0.3 - 0.15 * rank)
            came[rank] = time.monotonic()
            with make(rank, port, size=3):
                returned[rank] = time.monotonic()

        each_in_a_thread([lambda rank=rank: one(rank) for rank in range(3)], 90)
        assert len(returned) == 3
        assert min(returned.values()) >= max(came.values())


def test_missing_ranks_are_named() -> None:
    """Contract 2.5 Better: a rank that never comes ends construction after the timeout, named on all others."""
    with free_port() as port:
        outcomes = each_in_a_thread([lambda rank=rank: make(rank, port, size=4, timeout=3) for rank in (0, 2)], 90)
    for outcome in outcomes:
        assert isinstance(outcome, CollectiveTimeout)
        assert isinstance(outcome, TimeoutError)
        assert "ranks 1 and 3 of 4 did not arrive within 3 s" in str(outcome)


def test_a_missing_chief_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.5 Better: without a chief, construction ends after the timeout (here from the environment)."""
    monkeypatch.setenv("DET_COLLECTIVE_TIMEOUT", "0.5")
    with (
        free_port() as port,
        pytest.raises(CollectiveTimeout, match=f"rank 0 could not be reached at 127.0.0.1:{port}"),
    ):
        DistributedContext(**places(2)[1], pub_port=port)


def test_a_rank_given_twice_is_named() -> None:
    """Contract 2.2: two participants with one rank are told so, and so is everyone else."""
    with free_port() as port:
        works = [lambda rank=rank: make(rank, port, size=3) for rank in (0, 1, 1)]
        outcomes = each_in_a_thread(works, 90)
    for outcome in outcomes:
        assert isinstance(outcome, CollectiveError)
        assert "rank 1 was given to two participants" in str(outcome)
        assert f"pid {os.getpid()}" in str(outcome)


@pytest.mark.parametrize("told", [{0: 3}, {1: 3}])
def test_ranks_must_agree_on_the_size(told: dict[int, int]) -> None:
    """Contract 2.2: ranks that were told different sizes are named, on every rank."""
    with free_port() as port:
        outcomes = each_in_a_thread(
            [lambda rank=rank: make(rank, port, size=told.get(rank, 2)) for rank in range(2)], 20
        )
    for outcome in outcomes:
        assert isinstance(outcome, CollectiveError)
        assert f"rank 0 was told size={told.get(0, 2)}" in str(outcome)
        assert f"rank 1 was told size={told.get(1, 2)}" in str(outcome)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({1: {"local_rank": 0}}, "ranks 0 and 1 all have cross_rank=0 and local_rank=0"),
        ({1: {"local_size": 1, "local_rank": 0, "cross_rank": 1, "cross_size": 2}}, "told local_size=2"),
    ],
)
def test_ranks_must_agree_on_their_machines(
    other: dict[int, dict[str, int]], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract 2.2: numbers that cannot be one job are named, on every rank."""
    monkeypatch.setenv("DET_JOB_SECRET", "the same for one machine and for several")
    with free_port() as port:
        works = [lambda rank=rank: make(rank, port, **other.get(rank, {}), chief_ip="127.0.0.1") for rank in range(2)]
        outcomes = each_in_a_thread(works, 90)
    for outcome in outcomes:
        assert isinstance(outcome, CollectiveError)
        assert text in str(outcome)


def test_a_taken_port_is_named() -> None:
    """Contract 2.5 Better: if something else has the port, the error names it and what to change."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CollectiveError, match=f"Port {port} .*INTER_TRAIN_PROCESS_COMM_PORT_1"):
            make(0, port)


def test_a_listener_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.5 Better: a program that accepts and never answers does not hang a rank."""
    monkeypatch.setattr(connection, "HANDSHAKE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CollectiveTimeout, match="not rank 0 of a job"):
            make(1, port)
        other.settimeout(60)
        for _ in range(2):  # ends the thread that waits in torch
            other.accept()[0].close()


@pytest.mark.parametrize(
    ("ip", "spans_machines", "expected"),
    [
        ("127.0.0.1", False, "127.0.0.1"),
        ("127.0.0.1", True, "127.0.0.1"),  # as told
        ("localhost", False, "127.0.0.1"),
        ("localhost", True, "0.0.0.0"),  # a name that means this machine only to itself
        ("192.0.2.1", True, "0.0.0.0"),  # an address that is translated on the way
    ],
)
def test_where_the_chief_listens(ip: str, spans_machines: bool, expected: str) -> None:
    """Contract 2.5 Better: the interface that the others need, and no other if that one is known."""
    with free_port() as port, connection._listen(ip, port, spans_machines=spans_machines) as listener:
        assert listener.getsockname() == (expected, port)


def test_the_port_of_another_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.5 Better: a rank that finds another, complete job at its address says so and leaves that job alone."""
    monkeypatch.setattr(session, "FOREIGN_SECONDS", 0.3)
    with free_port() as port:
        first, second = meet(port)
        with pytest.raises(CollectiveError, match="belongs to another job"):
            make(1, port)
        assert each_in_a_thread([lambda: first.allgather(1), lambda: second.allgather(2)], 90) == [[1, 2]] * 2
        each_in_a_thread([first.close, second.close], 90)


def test_one_context_after_another_at_the_same_port() -> None:
    """A rank that is early for the second context waits for its chief instead of joining the first."""
    with free_port() as port:

        def one(rank: int) -> list[Any]:
            found = []
            for turn in range(3):
                with make(rank, port) as distributed:
                    found.append(distributed.broadcast(f"{turn} from {rank}"))
            return found

        expected = ["0 from 0", "1 from 0", "2 from 0"]
        assert each_in_a_thread([lambda: one(0), lambda: one(1)], 90) == [expected, expected]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_connections_are_kept_alive_and_local() -> None:
    """Contract 2.2 and 2.5 Better: keep-alives run while nobody talks, and one machine listens on loopback only."""
    with free_port() as port:
        contexts = meet(port)
        try:
            found = quiet_connections(port)
        finally:
            each_in_a_thread([context.close for context in contexts], 90)
    assert {row[1] for row in found} == {f"0100007F:{port:04X}"}  # 127.0.0.1
    timers = established_timers(found)
    assert len(timers) >= 2
    assert all(timer[:3] == "02:" and int(timer[3:], 16) <= 6000 for timer in timers)  # hundredths of seconds


def quiet_connections(port: int) -> list[list[str]]:
    """One reading in which nothing is on its way to anybody, as between two heart-beats; the last one if none is.

    02 is the keep-alive timer, which runs once all is acknowledged.
    """
    deadline = time.monotonic() + 60
    while True:
        found = connections(port)
        if all(timer[:3] == "02:" for timer in established_timers(found)) or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def connections(port: int) -> list[list[str]]:
    """What the kernel says about the sockets at this port of ours."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row for row in rows if row[1].endswith(f":{port:04X}")]


def established_timers(rows: list[list[str]]) -> list[str]:
    """Which timer runs for each connection there, and when it is due."""
    return [row[5] for row in rows if row[3] == "01"]


def test_anything_like_horovod_says_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.3: `from_horovod` asks six methods, of any object, and takes the chief's address from DET_CHIEF_IP."""

    class Hvd:
        def __init__(self, place: dict[str, int]) -> None:
            self.place = place

        def __getattr__(self, name: str) -> Callable[[], int]:
            return lambda: self.place[name]

    monkeypatch.setenv("DET_CHIEF_IP", "127.0.0.1")
    monkeypatch.setenv("DET_JOB_SECRET", "the same on every machine")
    with free_port() as port:
        monkeypatch.setenv("INTER_TRAIN_PROCESS_COMM_PORT_1", str(port))

        def one(rank: int) -> list[Any]:
            with DistributedContext.from_horovod(Hvd(places(2, [1, 1])[rank]), timeout=60) as distributed:
                assert distributed.get_num_agents() == 2
                return distributed.allgather(distributed.rank)

        assert each_in_a_thread([lambda: one(0), lambda: one(1)], 90) == [[0, 1], [0, 1]]


def test_large_objects_arrive_whole() -> None:
    """Contract 2.2: any picklable object may be sent, also one larger than the store takes at once."""

    def body(distributed: DistributedContext) -> list[bool]:
        large = bytes([distributed.rank]) * (10 << 20)
        expected = [bytes([rank]) * (10 << 20) for rank in range(2)]
        gathered = distributed.gather(large)
        return [
            gathered == (expected if distributed.rank == 0 else None),
            distributed.allgather(large) == expected,
            distributed.broadcast(large) == expected[0],
        ]

    assert run_threads(2, body, over_tcp=True) == [[True] * 3] * 2


# Parting.


def test_closing_twice_is_harmless() -> None:
    """C-18: given close() twice, then no error."""

    def body(distributed: DistributedContext) -> None:
        distributed.close()
        distributed.close()

    run_threads(2, body, over_tcp=True)


def test_a_closed_context_says_so() -> None:
    """Contract 2.2: a collective on a closed context is an error, not a hang."""

    def body(distributed: DistributedContext) -> None:
        distributed.close()
        with pytest.raises(CollectiveError, match=r"broadcast\(\) was called on a closed DistributedContext"):
            distributed.broadcast(1)

    run_threads(2, body, over_tcp=True)


@pytest.mark.parametrize("leaver", [0, 1])
@pytest.mark.parametrize("call", ["allgather", "gather"])
def test_waiting_for_a_rank_that_closed_ends_soon(leaver: int, call: str) -> None:
    """C-84: a rank that fails outside any collective closes without hanging; who waits for it is told which it was."""

    def body(distributed: DistributedContext) -> None:
        if distributed.rank == leaver:
            raise KeyError("a bug")
        getattr(distributed, call)(1)

    outcomes = try_threads(3, body, over_tcp=True)
    for rank, outcome in enumerate(outcomes):
        assert isinstance(outcome, KeyError if rank == leaver else CollectiveError)
        if rank != leaver:
            assert f"rank {leaver} has closed its context" in str(outcome)


def test_the_last_broadcast_is_read_after_the_chief_left() -> None:
    """Contract 2.2: a chief that closes at once waits for its readers, who are slow."""

    def body(distributed: DistributedContext) -> Any:
        if distributed.rank:
            time.sleep(0.2 * distributed.rank)
        return distributed.broadcast(distributed.rank + 7)

    assert run_threads(3, body, over_tcp=True) == [7, 7, 7]


def test_a_finished_rank_may_leave_early() -> None:
    """A worker that made all its calls and left does not disturb those who still read the outcome."""

    def body(distributed: DistributedContext) -> Any:
        found = distributed.allgather(distributed.rank)
        if distributed.rank == 1:
            distributed.close()
        else:
            time.sleep(0.4)
            distributed.rank == 0 and distributed.broadcast("for who is left")
        return found

    assert run_threads(3, body, over_tcp=True) == [[0, 1, 2]] * 3


def test_the_chief_does_not_wait_long_for_idle_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks closed one after the other, chief first, by one thread: ranks that have read all are not waited for."""
    monkeypatch.setattr(participant, "LINGER_SECONDS", 100.0)
    with free_port() as port:
        contexts = meet(port)
        each_in_a_thread([lambda c=c: c.allgather(0) for c in contexts], 90)
        started = time.monotonic()
        for context in contexts:
            context.close()
        assert time.monotonic() - started < 90


def test_closing_from_another_thread_ends_a_wait() -> None:
    """close() never waits for a collective that is under way; that one ends with an error."""
    with free_port() as port:
        chief, worker = meet(port)
        caught: list[Any] = []
        waiting = threading.Thread(target=lambda: caught.extend(each_in_a_thread([lambda: worker.gather(1)], 90)))
        waiting.start()
        time.sleep(0.1)
        worker.close()
        waiting.join(90)
        chief.close()
        assert isinstance(caught[0], CollectiveError)
        assert "close" in str(caught[0])


def test_an_interrupt_in_a_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that leaves a collective by Ctrl-C does not leave the others waiting in it."""

    def body(distributed: DistributedContext) -> None:
        if distributed.rank == 1:
            monkeypatch.setattr(distributed._channel, "_show", interrupt)
        distributed.allgather(1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    outcomes = try_threads(3, body, over_tcp=True)
    assert isinstance(outcomes[1], KeyboardInterrupt)
    assert "rank 1 left allgather(), call 1, before its end: KeyboardInterrupt" in str(outcomes[2])
