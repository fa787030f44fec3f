"""The end of an attempt is recorded once, and is not lost while the store is unavailable."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined import errors
from determined.experiment.attempt import exit_record
from determined.experiment.attempt.exit_record import Ending
from determined.store import attempts, experiments, trials
from determined.store.control import log_policies, pending
from determined.store.database.connection import Store, open_store


@pytest.fixture
def ending(sqlite_store: Store) -> Ending:
    with sqlite_store.write() as conn:
        experiment_id = experiments.create(conn, name="x", config={}, owner="ada", state="ACTIVE")
        found = attempts.begin(conn, trials.create(conn, experiment_id, hparams={}), state="ASSIGNED")
    who = (found.allocation_id, found.task_id, experiment_id, found.trial_id, found.attempt)
    return Ending(*who, 3, "exit code 3", "2026-01-02T03:04:05+00:00")


def test_it_is_recorded_once(sqlite_store: Store, ending: Ending) -> None:
    """An end that is known is not recorded again: one event, and the first code stays."""
    assert exit_record.record(sqlite_store, ending)
    assert not exit_record.record(sqlite_store, ending)
    with sqlite_store.read() as conn:
        row = attempts.get(conn, ending.allocation_id)
        assert (row.state, row.exit_code, row.exit_reason) == ("TERMINATED", 3, "exit code 3")
        assert [event.body for event in pending.read(conn)] == [{"code": 3, "matched_policy": None}]


def test_a_match_of_an_earlier_attempt_counts(sqlite_store: Store, ending: Ending) -> None:
    """P-48: A policy that cancels retries and has matched is named in the event, with its pattern and line."""
    with sqlite_store.write() as conn:
        who = attempts.Attempt(ending.allocation_id, ending.task_id, ending.trial_id, ending.experiment_id, 1, None)
        log_policies.record(conn, who, pattern="harmless", line="harmless")
        log_policies.record(conn, who, pattern="b.*m", line="boom", name="bomb", action="cancel_retries")
    exit_record.record(sqlite_store, ending)
    with sqlite_store.read() as conn:
        [event] = pending.read(conn)
    assert event.body["matched_policy"] == "log policy 'bomb': pattern 'b.*m' matched the line 'boom'"


def test_it_waits_in_a_file(sqlite_store: Store, ending: Ending, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is unavailable the end is kept in a file, which whoever comes next records; not in another store,
    which may have an attempt of the same name.
    """
    real = exit_record.record

    def fail(store: Store, ending: Ending) -> bool:
        raise errors.StoreUnavailable("locked")

    monkeypatch.setattr(exit_record, "record", fail)
    assert not exit_record.deliver(sqlite_store, str(home), ending, patience=0)
    monkeypatch.setattr(exit_record, "record", real)
    other = open_store(home / "other.db")
    assert not exit_record.recover(other, str(home), ending.allocation_id)
    other.close()
    assert exit_record.recover(sqlite_store, str(home), ending.allocation_id)
    assert not exit_record.recover(sqlite_store, str(home), ending.allocation_id)
    with sqlite_store.read() as conn:
        assert attempts.get(conn, ending.allocation_id).exit_code == 3
        assert len(pending.read(conn)) == 1


def test_it_is_tried_again(sqlite_store: Store, ending: Ending, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is recorded as soon as the store can be used again, and its file is removed."""
    real, failures = exit_record.record, [errors.StoreUnavailable("locked")] * 3
    monkeypatch.setattr(exit_record, "RETRY_SECONDS", (0.01,))

    def sometimes(store: Store, ending: Ending) -> bool:
        if failures:
            raise failures.pop()
        return real(store, ending)

    monkeypatch.setattr(exit_record, "record", sometimes)
    assert exit_record.deliver(sqlite_store, str(home), ending)
    assert list((home / "work").iterdir()) == []
    with sqlite_store.read() as conn:
        assert len(pending.read(conn)) == 1
