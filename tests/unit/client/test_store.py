"""The store as a whole through the SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined import errors
from determined.artifacts import open_storage
from determined.client import Determined
from determined.store.schema import checkpoints
from tests.history import History


def test_info(history: History, runs: Determined) -> None:
    """Where it is and what is in it, as plain data."""
    history.run(training={1: 1.0})
    found = runs.store.info()
    assert found["counts"]["experiments"] == 1
    assert found["kind"] == "sqlite"
    assert str(history.place) in runs.store.url


def test_check(history: History, runs: Determined) -> None:
    """A sound store has no problems; files that are gone are told when asked for."""
    run = history.run(checkpoints=[1])
    assert runs.store.check() == []
    assert runs.store.check(files=True) == []
    open_storage(history.storage).delete(run.checkpoints[1])
    assert runs.store.check() == []
    (problem,) = runs.store.check(files=True)
    assert run.checkpoints[1] in problem


def test_a_damaged_file_is_told(history: History) -> None:
    """A file that SQLite cannot read is a problem in a sentence, not a traceback."""
    history.run(training=dict.fromkeys(range(200), 1.0))
    history.close()
    path = history.root / "runs.db"
    data = bytearray(path.read_bytes())
    data[4096:12288] = b"x" * 8192
    path.write_bytes(data)
    with Determined(store=path) as runs:
        assert runs.store.check() != []


def test_what_was_deleted_goes_for_good(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.2: when the time for second thoughts is over, rows, checkpoints and event files go; nothing else does."""
    place = history.root / "tb"
    place.mkdir()
    (place / "events.out.tfevents.1").touch()
    run = history.run(checkpoints=[1], tensorboard=str(place))
    other = history.run(checkpoints=[1])
    runs.get_experiment(run.experiment_id).delete()
    assert runs.store.purge().experiments == []
    assert place.exists()
    monkeypatch.setenv("DET_UNDELETE_DAYS", "0")
    done = runs.store.purge()
    assert (done.experiments, done.checkpoints) == ([run.experiment_id], run.uuids)
    assert not place.exists()
    assert open_storage(history.storage).list() == other.uuids
    with pytest.raises(errors.NotFound):
        runs.undelete_experiment(run.experiment_id)


def test_without_second_thoughts_deleting_is_for_good(
    history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DET_UNDELETE_DAYS=0: files go at once."""
    monkeypatch.setenv("DET_UNDELETE_DAYS", "0")
    run = history.run(checkpoints=[1])
    runs.get_experiment(run.experiment_id).delete()
    assert open_storage(history.storage).list() == []
    assert runs.list_experiments(deleted=True) == []


def test_a_row_that_leads_out_of_its_storage_is_skipped(
    history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 11: vacuum says so and goes on with the rest; what the row leads to is not touched."""
    outside = history.root / "outside"
    outside.mkdir()
    (outside / "metadata.json").write_text("{}")
    bad, good = history.run(checkpoints=[1, 2]), history.run(checkpoints=[1])
    with history.store.write() as conn:
        rows = checkpoints.update().where(checkpoints.c.uuid == bad.checkpoints[1])
        conn.execute(rows.values(uuid="../outside"))
    (problem,) = runs.store.check(files=True)
    assert problem.startswith(
        f"Checkpoint '../outside' of trial {bad.trial_id} has no place where its files could be: "
    )
    for run in (bad, good):
        runs.get_experiment(run.experiment_id).delete()
    monkeypatch.setenv("DET_UNDELETE_DAYS", "0")
    runs.store.vacuum()
    assert f"Checkpoint '../outside' is skipped, and its experiment {bad.experiment_id} stays: " in caplog.text
    assert [experiment.id for experiment in runs.list_experiments(deleted=True)] == [bad.experiment_id]
    assert open_storage(history.storage).list() == [bad.checkpoints[1]]  # its row now says something else
    assert (outside / "metadata.json").exists()


def test_vacuum(history: History, runs: Determined) -> None:
    """Space is given back; bytes before and after."""
    history.run()
    before, after = runs.store.vacuum()
    assert before > 0
    assert after > 0


def test_export_and_import(history: History, runs: Determined) -> None:
    """Runs travel in a file to another store, under new ids, with all that is recorded of them."""
    run = history.run("traveller", hparams={"lr": 0.1}, validation={1: 0.5}, checkpoints=[1], lines=["hello"])
    told: list[tuple[int, int]] = []
    file = history.root / "runs.det"
    assert runs.store.export(file, [run.experiment_id], progress=lambda *seen: told.append(seen)) == 1
    (history.root / "other").mkdir()
    with History(history.root / "other") as there, Determined(store=there.place) as others:
        there.run("resident")
        ids = others.store.import_(file, progress=lambda *seen: told.append(seen))
        assert list(ids) == [run.experiment_id]
        found = others.get_experiment(ids[run.experiment_id])
        (trial,) = found.list_trials()
        assert (found.name, trial.hparams, trial.best_metric) == ("traveller", {"lr": 0.1}, 0.5)
        assert found.top_checkpoint().verify() == []
        assert [entry.text for entry in trial.iter_log_rows()] == ["hello"]
        assert others.store.import_(file) == {}
    assert told == [(1, 1), (1, 1)]


def test_import_makes_a_store_that_is_not_there(history: History, runs: Determined, tmp_path: Path) -> None:
    """Issue 6: a history moves to a place where nothing was recorded before."""
    history.run(training={1: 1.0})
    runs.store.export(tmp_path / "runs.det")
    with Determined(store=tmp_path / "new" / "other.db") as elsewhere:
        assert elsewhere.store.import_(tmp_path / "runs.det") == {1: 1}
        assert [experiment.id for experiment in elsewhere.list_experiments()] == [1]
