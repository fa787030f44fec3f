"""Experiments are made, found, changed, hidden and removed."""

from __future__ import annotations

import datetime

import pytest
import sqlalchemy as sa

from determined import errors
from determined.store import attempts, checkpoints, events, experiments, models, schema, trials
from determined.store.database.connection import Store
from determined.store.experiments import ExperimentFilter
from determined.store.messages import now
from determined.store.upkeep import removal
from tests.unit.store.rooms import START, add_run, finish, minutes, save, validate


def names(store: Store, which: ExperimentFilter | None = None, **order: object) -> list[str]:
    with store.read() as conn:
        return [row.name for row in experiments.find(conn, which, **order)]  # type: ignore[arg-type]


def test_what_was_created_comes_back(store: Store) -> None:
    """Platform 5.1: all fields of a new experiment."""
    config = {"hyperparameters": {"lr": {"val": float("inf")}}, "note": "NaN"}
    with store.write() as conn:
        ident = experiments.create(
            conn,
            name="first",
            config=config,
            owner="ada",
            original_config="name: first",
            labels=["b", "a", "a"],
            script="/x/train.py",
            description="d",
            notes="n",
            start_time=START,
        )
    with store.read() as conn:
        row = experiments.get(conn, ident)
    assert (row.id, row.name, row.owner, row.state) == (1, "first", "ada", "PAUSED")
    assert row.config == config
    assert (row.labels, row.start_time, row.script) == (("a", "b"), START, "/x/train.py")
    assert (row.trial_count, row.best_metric, row.project_id, row.workspace_id) == (0, None, 1, 1)
    assert (row.original_config, row.description, row.notes, row.warnings) == ("name: first", "d", "n", [])


def test_a_missing_experiment_says_what_to_type(store: Store) -> None:
    """The message names the id and the command that lists."""
    with store.read() as conn, pytest.raises(errors.NotFound, match=r"no experiment 7 .* det experiment ls"):
        experiments.get(conn, 7)


def test_find_filters_and_sorts(store: Store) -> None:
    """Platform 5.3: by state, part of the name, label, owner, archived; sorted by any column; in pages."""
    with store.write() as conn:
        experiments.create(conn, name="Apple_1", config={}, owner="ada", labels=["fruit", "red"])
        experiments.create(conn, name="banana%", config={}, owner="bob", labels=["fruit"], state="COMPLETED")
        experiments.create(conn, name="carrot", config={}, owner="ada", script="/x.py")
        experiments.update(conn, 3, archived=True, progress=0.5)
    assert names(store) == ["Apple_1", "banana%", "carrot"]
    assert names(store, ExperimentFilter(name="APPLE_")) == ["Apple_1"]
    assert names(store, ExperimentFilter(name="%")) == ["banana%"]
    assert names(store, ExperimentFilter(labels=["fruit"])) == ["Apple_1", "banana%"]
    assert names(store, ExperimentFilter(labels=["fruit", "red"])) == ["Apple_1"]
    assert names(store, ExperimentFilter(owners=["bob"])) == ["banana%"]
    assert names(store, ExperimentFilter(states=["COMPLETED", "ERROR"])) == ["banana%"]
    assert names(store, ExperimentFilter(archived=False)) == ["Apple_1", "banana%"]
    assert names(store, ExperimentFilter(ids=[3, 1, 99])) == ["Apple_1", "carrot"]
    assert names(store, ExperimentFilter(script="/x.py")) == ["carrot"]
    assert names(store, ExperimentFilter(project_id=2)) == []
    assert names(store, sort_by="name", descending=True) == ["carrot", "banana%", "Apple_1"]
    assert names(store, sort_by="progress") == ["carrot", "Apple_1", "banana%"]
    assert names(store, sort_by="progress", descending=True) == ["carrot", "banana%", "Apple_1"]
    assert names(store, limit=1, offset=1) == ["banana%"]
    assert names(store, offset=2) == ["carrot"]
    with store.read() as conn:
        assert experiments.count(conn, ExperimentFilter(owners=["ada"])) == 2
        with pytest.raises(errors.InvalidValue, match="Cannot sort by 'colour'"):
            experiments.find(conn, sort_by="colour")


def test_find_tells_trials_and_best_metric(store: Store) -> None:
    """Counts and the best value come with the list, smaller or larger being better; bulky fields do not."""
    with store.write() as conn:
        for smaller in (True, False):
            run = add_run(conn, smaller_is_better=smaller)
            for value in (0.5, 0.25):
                other = trials.create(conn, run.experiment_id, hparams={}, state="PAUSED")
                trials.update(conn, other, searcher_metric_value=value)
        rows = experiments.find(conn)
        counts = experiments.trial_counts(conn, [1, 2])
    assert [(row.trial_count, row.best_metric, row.config) for row in rows] == [(3, 0.25, None), (3, 0.5, None)]
    assert counts == {1: {"RUNNING": 1, "PAUSED": 2}, 2: {"RUNNING": 1, "PAUSED": 2}}


def test_states_come_with_events_and_times(store: Store) -> None:
    """Platform 4.1: a reason with every transition, end_time on entering a terminal state, gone on leaving it."""
    with store.write() as conn:
        ident = experiments.create(conn, name="x", config={}, owner="ada", state="ACTIVE")
        experiments.set_state(conn, ident, "ERROR", "it broke", time=minutes(5))
        experiments.set_state(conn, ident, "ERROR", time=minutes(6))  # again: nothing new
        row = experiments.get(conn, ident)
        assert (row.state, row.state_reason, row.end_time) == ("ERROR", "it broke", minutes(5))
        experiments.set_state(conn, ident, "PAUSED", "continued", time=minutes(7))
        assert experiments.get(conn, ident).end_time is None
        found = events.of_experiment(conn, ident)
    assert [event.body["to"] for event in found] == ["ERROR", "PAUSED"]
    assert found[0].body == {"from": "ACTIVE", "to": "ERROR", "reason": "it broke"}
    assert found[0].time == minutes(5)


def test_what_is_completed_is_all_done(store: Store) -> None:
    """P-46: a COMPLETED experiment shows 1.0, whatever was reported last; what failed, how far it came."""
    with store.write() as conn:
        for state in ("COMPLETED", "ERROR"):
            ident = experiments.create(conn, name=state, config={}, owner="ada", state="ACTIVE")
            experiments.update(conn, ident, progress=0.25)
            experiments.set_state(conn, ident, state)
        assert [row.progress for row in experiments.find(conn)] == [1.0, 0.25]


def test_what_the_store_keeps_cannot_be_set(store: Store) -> None:
    """`update` refuses columns that have rules of their own."""
    with store.write() as conn:
        ident = add_run(conn).experiment_id
        for field in ("state", "id", "checkpoint_size", "nonsense"):
            with pytest.raises(errors.InvalidValue, match=field):
                experiments.update(conn, ident, **{field: 1})
        with pytest.raises(errors.NotFound):
            experiments.update(conn, 99, name="x")


def test_labels(store: Store) -> None:
    """Labels are a set; blank ones are refused."""
    with store.write() as conn:
        ident = experiments.create(conn, name="x", config={}, owner="ada")
        experiments.set_labels(conn, ident, ["b", "a", "b"])
        assert experiments.get(conn, ident).labels == ("a", "b")
        experiments.set_labels(conn, ident, ["a"])
        assert experiments.get(conn, ident).labels == ("a",)
        with pytest.raises(errors.InvalidValue):
            experiments.set_labels(conn, ident, ["a", "  "])


def test_a_deleted_experiment_is_hidden_everywhere(store: Store) -> None:
    """Until it is brought back, nothing below it is seen either."""
    with store.write() as conn:
        run = add_run(conn, script="/x.py", external_experiment_id="ext")
        save(conn, run, "u1", 10)
        finish(conn, run)
        experiments.delete(conn, run.experiment_id)
        experiments.delete(conn, run.experiment_id)
        assert experiments.find(conn) == []
        assert experiments.count(conn) == 0
        assert [row.id for row in experiments.find(conn, ExperimentFilter(deleted=True))] == [run.experiment_id]
        assert experiments.find_external(conn, "ext") is None
        assert checkpoints.find(conn, trial_id=run.trial_id) == []
        for look in (
            lambda: experiments.get(conn, run.experiment_id),
            lambda: trials.get(conn, run.trial_id),
            lambda: checkpoints.get(conn, "u1"),
            lambda: attempts.begin(conn, run.trial_id),
        ):
            with pytest.raises(errors.NotFound):
                look()
        experiments.undelete(conn, run.experiment_id)
        assert experiments.get(conn, run.experiment_id).state == "COMPLETED"
        assert checkpoints.get(conn, "u1").size == 10


def test_what_runs_cannot_be_deleted(store: Store) -> None:
    """Platform 4.2: an experiment can be deleted only from a terminal state."""
    with store.write() as conn:
        run = add_run(conn)
        with pytest.raises(errors.Refused, match="RUNNING"):
            experiments.delete(conn, run.experiment_id)


def test_a_registered_checkpoint_keeps_its_experiment(store: Store) -> None:
    """P-64: deleting the experiment, or the checkpoint, is refused until the version is removed."""
    with store.write() as conn:
        run = add_run(conn)
        save(conn, run, "u1", 10)
        finish(conn, run)
        model = models.create(conn, "m", owner="ada")
        models.register(conn, model.id, "u1", owner="ada")
        with pytest.raises(errors.Refused, match="u1 is in the model registry"):
            experiments.delete(conn, run.experiment_id)
        with pytest.raises(errors.Refused, match="u1 is in the model registry"):
            checkpoints.check_deletable(conn, ["u1"])
        assert checkpoints.protected(conn, run.experiment_id) == {"u1"}
        models.delete_version(conn, model.id, 1)
        checkpoints.check_deletable(conn, ["u1"])
        experiments.delete(conn, run.experiment_id)


def test_purge_waits_for_the_window(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go after 7 days, or DET_UNDELETE_DAYS, and the files that were theirs are named."""
    storage = {"type": "shared_fs", "host_path": "/x", "save_trial_best": 3}
    with store.write() as conn:
        for number in range(2):
            run = add_run(conn)
            validate(conn, run, 10, 0.5)
            save(conn, run, f"u{number}", 10, storage=storage)
            finish(conn, run)
        conn.execute(schema.allocations.update().values(tensorboard="/tb"))
        experiments.delete(conn, 1, time=START)
    week = datetime.timedelta(days=7)
    with store.write() as conn:
        assert removal.purge(conn, time=START + week * 0.99).experiment_ids == []
        monkeypatch.setenv("DET_UNDELETE_DAYS", "30")
        assert removal.condemned(conn, START + week).experiment_ids == []
        monkeypatch.delenv("DET_UNDELETE_DAYS")
        expected = removal.condemned(conn, START + week)
        assert removal.purge(conn, time=START + week) == expected
    assert expected.experiment_ids == [1]
    assert expected.tensorboard == ["/tb"]
    gone = expected.checkpoints[0]
    assert (gone.uuid, gone.experiment_id, gone.storage) == ("u0", 1, {"type": "shared_fs", "host_path": "/x"})
    with store.read() as conn:
        for table in (schema.experiments, schema.trials, schema.tasks, schema.metrics, schema.checkpoints):
            assert conn.scalar(sa.select(sa.func.count()).select_from(table)) == 1
        with pytest.raises(errors.NotFound):
            experiments.get(conn, 1, deleted=True)


def test_purge_by_id_takes_only_hidden_ones(store: Store) -> None:
    """An id of something that is not hidden is left alone."""
    with store.write() as conn:
        for _ in range(2):
            finish(conn, add_run(conn))
        experiments.delete(conn, 2)
        assert removal.purge(conn, [1, 2]).experiment_ids == [2]
        assert [row.id for row in experiments.find(conn)] == [1]
        assert experiments.create(conn, name="next", config={}, owner="ada") == 3


def test_a_hidden_experiment_gives_up_its_outside_name(store: Store) -> None:
    """Platform 4.13: the same external id again makes a new experiment; a visible one keeps its own."""
    with store.write() as conn:
        run = add_run(conn, external_experiment_id="ext")
        with pytest.raises(errors.Refused, match="belongs to experiment 1"):
            experiments.create(conn, name="x", config={}, owner="ada", external_experiment_id="ext")
        finish(conn, run)
        experiments.delete(conn, run.experiment_id)
        ident = experiments.create(conn, name="x", config={}, owner="ada", external_experiment_id="ext")
        assert experiments.find_external(conn, "ext") == ident


def test_events_are_read_in_order(store: Store) -> None:
    """After an id, of some kinds."""
    with store.write() as conn:
        run = add_run(conn)
        ids = [events.append(conn, run.experiment_id, kind, {"n": 1}, trial_id=run.trial_id) for kind in "ABA"]
        assert [e.kind for e in events.of_experiment(conn, run.experiment_id, after_id=ids[0])] == ["B", "A"]
        assert [e.id for e in events.of_experiment(conn, run.experiment_id, kinds=("A",), limit=1)] == [ids[0]]
        assert now() - events.of_experiment(conn, run.experiment_id)[-1].time < datetime.timedelta(minutes=1)
