"""What runs now: trials that may have changed, and attempts that hold slots."""

from __future__ import annotations

import sqlalchemy as sa

from determined.store import attempts, experiments, trials
from determined.store.database.connection import Store
from determined.store.overview import running


def make(conn: sa.Connection, *, unmanaged: bool = False) -> int:
    return experiments.create(conn, name="a", config={}, owner="ada", state="ACTIVE", unmanaged=unmanaged)


def test_only_trials_that_may_have_changed_are_read(store: Store) -> None:
    """New ones, those that have not ended, and those that had not when they were read; with their attempts."""
    with store.write() as conn:
        experiment = make(conn)
        first, second = (trials.create(conn, experiment, hparams={}, state="ACTIVE") for _ in range(2))
        attempts.begin(conn, first, slots=2, slot_ids=["0", "1"], state="ASSIGNED")
        found = running.changed(conn, experiment)
        assert [(each.id, len(each.launches)) for each in found] == [(first, 1), (second, 0)]
        assert running.states(found[0].launches) == ["ASSIGNED"]
        for ident in (first, second):
            trials.set_state(conn, ident, "COMPLETED")
        third = trials.create(conn, experiment, hparams={}, state="ACTIVE")
        assert [each.id for each in running.changed(conn, experiment, newest=second, going=[second])] == [second, third]
        trials.set_state(conn, first, "ACTIVE")
        assert [each.id for each in running.changed(conn, experiment, newest=third)] == [first, third]


def test_what_holds_slots(store: Store) -> None:
    """Attempts of managed experiments that have not ended, oldest attempts and other people's runs left out."""
    with store.write() as conn:
        managed, by_hand = make(conn), make(conn, unmanaged=True)
        mine = trials.create(conn, managed, hparams={}, state="ACTIVE")
        first = attempts.begin(conn, mine, slots=1, slot_ids=["0"], state="RUNNING")
        attempts.end(conn, first.allocation_id, exit_code=1)
        attempts.begin(conn, mine, slots=2, slot_ids=["0", "1"], state="STARTING")
        attempts.begin(conn, trials.create(conn, by_hand, hparams={}))
        [holding] = running.holding_slots(conn)
        assert (holding.trial_id, holding.attempt, holding.slots, holding.slot_ids) == (mine, 2, 2, ["0", "1"])
        assert running.live_states(conn, [managed, by_hand]) == {managed: ["STARTING"], by_hand: ["RUNNING"]}
