"""How those who poll the store find out cheaply that nothing was stored."""

from __future__ import annotations

from determined.store import attempts, experiments, trials
from determined.store.database.connection import Store, open_store


def test_a_mark_changes_with_what_is_stored(store: Store) -> None:
    """A mark differs from an earlier one after a transaction of one's own, and after one of somebody else."""
    marks = [store.change_mark()]
    with store.write() as conn:
        experiments.create(conn, name="ours", config={}, owner="ada")
    marks.append(store.change_mark())
    other = open_store(store.place.address)
    with other.write() as conn:
        experiments.create(conn, name="theirs", config={}, owner="ada")
    other.close()
    marks.append(store.change_mark())
    assert len(set(marks)) == 3


def test_a_mark_changes_when_a_long_transaction_ends(store: Store) -> None:
    """What was written before a mark and is committed after it is news after it."""
    other = open_store(store.place.address)
    with other.write() as conn:
        experiments.create(conn, name="theirs", config={}, owner="ada")
        before = store.change_mark()
        assert store.change_mark() == before
    assert store.change_mark() != before
    other.close()


def test_a_mark_stays_while_nothing_is_stored(store: Store) -> None:
    """Two marks are equal if there were only readers between, here and elsewhere."""
    other = open_store(store.place.address)
    before = store.change_mark()
    for reader in (store, other):
        with reader.read() as conn:
            assert experiments.find(conn) == []
    other.close()
    assert store.change_mark() == before


def test_what_runs_is_found_without_reading_what_has_ended(sqlite_store: Store) -> None:
    """The attempts that a controller asks for are found by an index on their state, however many have ended."""
    with sqlite_store.write() as conn:
        ident = experiments.create(conn, name="search", config={}, owner="ada")
        begun = [attempts.begin(conn, trials.create(conn, ident, hparams={}), state="ASSIGNED") for _ in range(3)]
        attempts.end(conn, begun[0].allocation_id)
        assert [row.allocation_id for row in attempts.of_controller(conn)] == [x.allocation_id for x in begun[1:]]
        states = "('PENDING', 'ASSIGNED', 'STARTING', 'RUNNING', 'TERMINATING')"
        plan = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN SELECT * FROM allocations WHERE state IN {states}").all()
    assert "ix_allocations_state" in plan[0][3]
