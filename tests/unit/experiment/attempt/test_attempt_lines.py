"""Lines of an attempt on their way to the store: policies, batches, what waits on disk, and who may go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from determined import errors
from determined.experiment.attempt import log_writer
from determined.experiment.attempt.log_writer import LogWriter
from determined.experiment.attempt.policies import Policies
from determined.store import attempts, experiments, logs, trials
from determined.store.attempts import Attempt
from determined.store.database.connection import Store, open_store
from tests.stores import PostgresServer, name_of


@pytest.fixture
def attempt(sqlite_store: Store) -> Attempt:
    return begin(sqlite_store)


def begin(store: Store) -> Attempt:
    with store.write() as conn:
        experiment_id = experiments.create(conn, name="x", config={}, owner="ada", state="ACTIVE")
        return attempts.begin(conn, trials.create(conn, experiment_id, hparams={}), state="ASSIGNED")


def writer(store: Store, attempt: Attempt, spool: Path, fenced: list[int] | None = None) -> LogWriter:
    return LogWriter(store, attempt, Policies([]), spool, lambda: (fenced if fenced is not None else []).append(1))


def stored(store: Store, attempt: Attempt) -> list[str]:
    with store.read() as conn:
        return [row.text for row in logs.read(conn, attempt.trial_id)]


def test_a_quiet_trial_keeps_no_connection(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: a server has few connections for many trials: an agent whose trial prints nothing gives its own back,
    and takes one again for the next line and for a heart-beat.
    """
    url = postgres.database()
    store = open_store(url)
    mine = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name_of(url)}'"

    def becomes(count: int) -> bool:
        deadline = time.monotonic() + 60
        while postgres.execute(mine)[0][0] != count and time.monotonic() < deadline:
            time.sleep(0.02)
        return time.monotonic() < deadline

    attempt = begin(store)
    store.close()
    monkeypatch.setattr(log_writer, "REST_SECONDS", 1.0)
    lines = writer(store, attempt, tmp_path / "lines")
    lines.put("one", "stdout")
    lines.start()
    assert becomes(1)
    assert becomes(0)
    lines.put("two", "stdout")
    assert becomes(1)
    assert becomes(0)
    lines.close(60)
    assert stored(store, attempt) == ["one", "two"]
    store.close()
    postgres.empty(url)


def test_a_policy_matches_once_per_pattern() -> None:
    """The first line that matches a pattern is new; later ones only where they change the trial's label."""
    policies = Policies([{"name": "a", "pattern": "x.*y"}, {"name": "b", "pattern": "z"}, {"name": "off"}])
    found = [[match.name for match in policies.match(line)] for line in ("..", "x y", "xy", "z", "z", "x-y")]
    assert found == [[], ["a"], [], ["b"], [], ["a"]]


@pytest.mark.timeout(60)
def test_a_pattern_that_begins_with_anything_is_fast() -> None:
    """The default patterns begin with `.*`; on a long line that must not take a time that grows with its square."""
    policies = Policies([{"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"}])
    for _ in range(200):
        assert policies.match("x" * 60_000) == []
    assert policies.match("x" * 60_000 + "CUDA out of memory")
    assert Policies([{"pattern": ".*?a", "action": "cancel_retries"}]).match("a")


def test_lines_wait_in_memory_and_on_disk(
    sqlite_store: Store, attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that the store cannot take yet wait, first in memory and then in a file, and arrive in order."""
    monkeypatch.setattr(log_writer, "IN_MEMORY", 10)
    monkeypatch.setattr(log_writer, "LINES_PER_WRITE", 7)
    lines = writer(sqlite_store, attempt, tmp_path / "lines")
    expected = [f"line {number}" for number in range(100)]
    for text in expected:
        lines.put(text, "stdout")
    assert (tmp_path / "lines").stat().st_size > 0
    lines.close(60)
    assert stored(sqlite_store, attempt) == expected
    assert not (tmp_path / "lines").exists()


def test_what_is_lost_is_said(
    sqlite_store: Store, attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When neither memory nor disk has room, lines are dropped, and one line says how many."""
    monkeypatch.setattr(log_writer, "IN_MEMORY", 2)
    lines = writer(sqlite_store, attempt, tmp_path / "no" / "such" / "directory")
    for number in range(5):
        lines.put(f"line {number}", "stdout")
    lines.close(60)
    *kept, last = stored(sqlite_store, attempt)
    assert kept == ["line 0", "line 1"]
    assert last.startswith("3 lines were lost here")


def test_an_unavailable_store_is_tried_again(
    sqlite_store: Store, attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store cannot be used lines wait; a policy's match that could not be recorded is recorded later."""
    real, failures = logs.append, [errors.StoreUnavailable("locked")] * 2
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", (0.01,) * 5)

    def append(*args: Any, **options: Any) -> None:
        if failures:
            raise failures.pop()
        real(*args, **options)

    monkeypatch.setattr(logs, "append", append)
    policies = Policies([{"name": "label", "pattern": "a line"}])
    lines = LogWriter(sqlite_store, attempt, policies, tmp_path / "lines", lambda: None)
    lines.put("a line", "stdout")
    lines.close(60)
    assert stored(sqlite_store, attempt)[0] == "a line"
    with sqlite_store.read() as conn:
        assert trials.get(conn, attempt.trial_id).log_policy_matched == "label"


@pytest.mark.parametrize("how", ["ended", "replaced"])
def test_an_attempt_that_may_not_go_on_is_told(
    sqlite_store: Store, attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The heart-beat finds out that an attempt was ended by its controller, or replaced by a newer one."""
    monkeypatch.setattr(log_writer, "BEAT_SECONDS", 0.05)
    fenced: list[int] = []
    lines = writer(sqlite_store, attempt, tmp_path / "lines", fenced)
    lines.start()
    time.sleep(0.5)
    assert fenced == []
    with sqlite_store.read() as conn:
        row = attempts.get(conn, attempt.allocation_id)
        assert row.last_activity is not None
        assert row.last_activity > row.start_time
    with sqlite_store.write() as conn:
        if how == "ended":
            attempts.end(conn, attempt.allocation_id, reason="given up")
        else:
            attempts.begin(conn, attempt.trial_id)
    deadline = time.monotonic() + 60
    while not fenced and time.monotonic() < deadline:
        time.sleep(0.02)
    lines.close(60)
    assert fenced == [1]


def test_private_keys_are_not_stored(sqlite_store: Store, attempt: Attempt, tmp_path: Path) -> None:
    """Lines of a private key become stars, also when lines of the other stream come between them."""
    lines = writer(sqlite_store, attempt, tmp_path / "lines")
    for text in ("-----BEGIN PRIVATE KEY-----", "MIIEvQIBADAN", "-----END PRIVATE KEY-----"):
        lines.put(text, "stdout")
        lines.put("on stderr", "stderr")
    lines.close(60)
    assert stored(sqlite_store, attempt) == ["********", "on stderr"] * 3
