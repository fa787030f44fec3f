"""A store is described, checked, compacted, and carried from one database to another."""

from __future__ import annotations

import dataclasses
import gzip
import math
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from determined import errors
from determined.store import attempts, checkpoints, experiments, logs, schema, trials, workspaces
from determined.store.database.connection import Store, open_store
from determined.store.messages import LogLine, MetricReport
from determined.store.metrics import curves, metric_reports
from determined.store.upkeep import checks, portable
from tests.unit.store.rooms import add_run, finish, save, validate

SECRET = {"type": "s3", "bucket": "b", "secret_key": "hush"}


def fill(store: Store) -> None:
    """Two experiments with something of everything."""
    with store.write() as conn:
        project = workspaces.create_project(conn, workspaces.create_workspace(conn, "vision"), "cats")
        config = {"checkpoint_storage": SECRET, "searcher": {"metric": "loss"}}
        run = add_run(
            conn,
            name="first é",
            labels=["a", "b"],
            project_id=project,
            config=config,
            original_config="checkpoint_storage: {type: s3, secret_key: hush, bucket: b}",
            external_experiment_id="ext",
        )
        reports = [MetricReport("training", {"loss": 1 / steps, "odd": math.nan}, steps) for steps in range(1, 100)]
        metric_reports.append(conn, run, reports)
        validate(conn, run, 50, 0.5)
        metric_reports.append(conn, run, [MetricReport("cpu", {"load": 0.5})])
        save(conn, run, "u1", 50, storage=SECRET)
        save(conn, run, "u2", 60, storage=SECRET)
        logs.append(conn, run, [LogLine("hello", "stdout"), LogLine("ERROR: no", "stderr", 1)])
        trials.set_metadata(conn, run.trial_id, {"k": [1, 2]})
        again = attempts.begin(conn, run.trial_id, run_name="again", environment={"git": "abc"})
        metric_reports.append(conn, again, [MetricReport("training", {"loss": 7.0}, 61)])
        checkpoints.set_state(conn, "u2", "DELETED")
        finish(conn, again)
        add_run(conn, name="second", parent_id=run.experiment_id)


def picture(store: Store) -> list[Any]:
    """All that a user sees of all experiments, without ids."""
    found = []
    with store.read() as conn:
        for row in experiments.find(conn):
            whole = experiments.get(conn, row.id)
            trial = trials.of_experiment(conn, row.id)[0]
            shown = dataclasses.asdict(whole)
            for name in ("id", "project_id", "workspace_id", "parent_id", "best_trial_id"):
                shown[name] = shown[name] is not None
            project = workspaces.get_project(conn, whole.project_id)
            about = {k: v for k, v in dataclasses.asdict(trial).items() if not k.endswith("id")}
            reports = [
                (r.group, r.attempt, r.steps, repr(r.metrics), r.time) for r in metric_reports.rows(conn, [trial.id])
            ]
            points = curves.points(conn, trial.id, "training", "loss")
            envelope = curves.envelope(conn, trial.id, "training", "loss", buckets=10)
            saved = [
                (c.uuid, c.steps, c.state, c.size, c.storage, c.searcher_metric, c.task_id.partition(".")[2])
                for c in checkpoints.find(conn, trial_id=trial.id, states=None, sort_by="uuid")
            ]
            said = [str(line) for line in logs.read(conn, trial.id)]
            runs = [
                (a.attempt, a.run_name, a.state, a.environment, a.allocation_id.partition(".")[2])
                for a in attempts.of_trial(conn, trial.id)
            ]
            found.append([shown, project.name, about, reports, points, envelope, saved, said, runs])
    return found


def test_a_copy_goes_from_any_store_to_any(store: Store, store_place: str, tmp_path: Path) -> None:
    """Everything that users see arrives, on SQLite and PostgreSQL, under new ids; no secret is in either."""
    fill(store)
    assert "hush" not in str(picture(store))
    file = tmp_path / "copy.gz"
    assert portable.export(store, file) == 2
    assert "hush" not in gzip.decompress(file.read_bytes()).decode()
    other = open_store(store_place)
    with other.write() as conn:
        finish(conn, add_run(conn, name="here before"))
        experiments.delete(conn, 1)  # so that ids differ
    assert portable.import_from(other, file) == portable.Imported({1: 2, 2: 3}, [])
    assert picture(other) == picture(store)
    assert checks.check(other) == []
    again = portable.import_from(other, file)
    assert (again.experiments, again.skipped) == ({}, [1, 2])
    with other.read() as conn:
        assert experiments.count(conn) == 2
        assert experiments.get(conn, 3).parent_id == 2
    other.close()


def test_a_copy_tells_no_secrets(store: Store, tmp_path: Path) -> None:
    """P-09: what a user keeps under `data.secrets` is in no file that may be handed on, in whatever notation."""
    config = {"data": {"secrets": {"token": ["hush", {"pin": "hash"}]}, "path": "/d"}}
    with store.write() as conn:
        add_run(conn, config=config, original_config="data: {path: /d, secrets: {token: [hush, {pin: 'ha\\x73h'}]}}")
    portable.export(store, tmp_path / "copy.gz")
    written = gzip.decompress((tmp_path / "copy.gz").read_bytes()).decode()
    assert "hush" not in written
    assert "hash" not in written
    assert "x73" not in written
    assert '"path"' in written


def test_a_copy_of_an_older_store_tells_no_secrets(sqlite_store: Store, tmp_path: Path) -> None:
    """Issue 11, point 4: rows that were written in clear by an older version leave redacted."""
    with sqlite_store.write() as conn:
        run = add_run(conn)
        save(conn, run, "u1", 5, storage={"type": "s3", "bucket": "b"})
        older = '{"type": "s3", "bucket": "b", "secret_key": "hush", "endpoint_url": "http://me:hush@h"}'
        conn.execute(sa.text("UPDATE storage_backends SET config = :told"), {"told": older})
        conn.execute(sa.text("UPDATE experiments SET config = :told, original_config = 'token: hush'"), {"told": older})
    portable.export(sqlite_store, tmp_path / "copy.gz")
    assert "hush" not in gzip.decompress((tmp_path / "copy.gz").read_bytes()).decode()


def test_a_copy_of_some(store: Store, tmp_path: Path) -> None:
    """By id; an id that is not there is an error, and no file appears."""
    fill(store)
    assert portable.export(store, tmp_path / "one.gz", [2]) == 1
    with pytest.raises(errors.NotFound):
        portable.export(store, tmp_path / "none.gz", [9])
    assert sorted(path.name for path in tmp_path.glob("*.gz*")) == ["one.gz"]


def test_files_that_are_no_copy(sqlite_store: Store, tmp_path: Path) -> None:
    """Missing, something else, torn, or of a later version: a sentence, and nothing half taken in."""
    fill(sqlite_store)
    good, torn, other, later = (tmp_path / name for name in ("good", "torn", "other", "later"))
    portable.export(sqlite_store, good)
    torn.write_bytes(good.read_bytes()[:-300])
    other.write_bytes(gzip.compress(b'{"a": 1}\n'))
    later.write_bytes(gzip.compress(b'{"format": "resolute-experiments", "version": 99}\n'))
    target = open_store(tmp_path / "target.db")
    for path, kind in (
        (torn, errors.StoreError),
        (other, errors.StoreError),
        (later, errors.StoreTooNew),
        (tmp_path / "missing", errors.NotFound),
        (sqlite_store.path, errors.StoreError),
    ):
        with pytest.raises(kind):
            portable.import_from(target, str(path))
    with target.read() as conn:
        assert experiments.count(conn) <= 1
    assert checks.check(target) == []
    target.close()


def test_info(store: Store) -> None:
    """Place, size, layout and counts."""
    fill(store)
    found = checks.info(store)
    assert (found.place, found.id, found.version) == (str(store.place), store.id, schema.VERSION)
    assert found.size > 10_000
    assert (found.counts["experiments"], found.counts["checkpoints"], found.counts["logs"]) == (2, 2, 2)
    assert found.deleted == 0


def test_a_sound_store_has_no_problems(store: Store) -> None:
    """After all kinds of work."""
    fill(store)
    assert checks.check(store) == []


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ("UPDATE trials SET checkpoint_count = 5 WHERE id = 1", "Trial 1 says it has 5 checkpoints"),
        ("UPDATE experiments SET checkpoint_size = 5 WHERE id = 2", "Experiment 2 says it has 0 checkpoints of 5"),
        ("UPDATE metrics SET archived = false", "Trial 1 has 2 visible reports of training at step 61"),
        ("UPDATE metric_series SET points = 1 WHERE name = 'odd'", "training/odd of trial 1 says it has 1 points"),
        ("DELETE FROM metric_cells WHERE level = 0", "roll-ups of the curve training/loss of trial 1"),
        ("DELETE FROM metric_series WHERE name = 'loss'", "The curve training/loss of trial 1 is missing"),
        ("UPDATE metrics SET attempt = 9 WHERE steps = 50 AND metric_group = 'validation'", "has not begun"),
        ("UPDATE checkpoints SET trial_id = 2 WHERE uuid = 'u1'", "Checkpoint u1 belongs to one trial"),
    ],
)
def test_problems_are_found(store: Store, harm: str, sentence: str) -> None:
    """Each of our own promises, when broken, is told in a sentence."""
    fill(store)
    with store.write() as conn:
        conn.execute(sa.text(harm))
    assert any(sentence in problem for problem in checks.check(store)), checks.check(store)


def test_a_damaged_file_is_examined(sqlite_store: Store) -> None:
    """`det store check` tells what SQLite finds, also where the store cannot be opened."""
    fill(sqlite_store)
    path = sqlite_store.path
    assert path is not None
    checks.vacuum(sqlite_store)
    sqlite_store.close()
    content = bytearray(path.read_bytes())
    content[40 * 1024 : 44 * 1024] = b"\xa5" * 4096
    path.write_bytes(content)
    assert checks.check_file(path)
    path.write_bytes(b"\xa5" * 8192)
    assert "not an SQLite database" in checks.check_file(path)[0]


def test_lost_references_are_found(sqlite_store: Store) -> None:
    """Rows that refer to nothing, however they came."""
    fill(sqlite_store)
    assert sqlite_store.path is not None
    engine = sa.create_engine(f"sqlite:///{sqlite_store.path}", poolclass=sa.NullPool)
    with engine.begin() as conn:
        conn.execute(sa.text("DELETE FROM trials WHERE id = 1"))
    assert any("refers to a row of trials" in problem for problem in checks.check(sqlite_store))


def test_vacuum_gives_space_back(store: Store) -> None:
    """Bytes before and after."""
    with store.write() as conn:
        run = add_run(conn)
        logs.append(conn, run, [LogLine("x" * 1000, "stdout") for _ in range(2000)])
    with store.write() as conn:
        conn.execute(schema.logs.delete())
    before, after = checks.vacuum(store)
    assert before >= 2_000_000
    if store.is_sqlite:
        assert after < 500_000
    assert checks.check(store) == []
