"""Checkpoints through the SDK: downloads that are verified and not done twice, metadata, and removal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from determined import errors
from determined.artifacts import open_storage
from determined.client import CheckpointState, Determined, DownloadMode
from tests.history import History


def test_fields(history: History, runs: Determined) -> None:
    """7.4: a checkpoint has its documented fields, and says what it was trained with."""
    run = history.run(config={"name": "x"}, hparams={"lr": 0.1}, validation={5: 0.5}, checkpoints=[5, 6])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    assert (checkpoint.uuid, checkpoint.state) == (run.checkpoints[5], CheckpointState.COMPLETED)
    assert (checkpoint.task_id, checkpoint.allocation_id) == (run.attempt.task_id, run.attempt.allocation_id)
    assert checkpoint.metadata == {"steps_completed": 5}
    assert set(checkpoint.resources) == {"metadata.json", "state_dict.pth"}
    training = checkpoint.training
    assert (training.experiment_id, training.trial_id) == (run.experiment_id, run.trial_id)
    assert (training.experiment_config, training.hparams) == ({"name": "x"}, {"lr": 0.1})
    assert training.validation_metrics == {"loss": 0.5}
    assert runs.get_checkpoint(run.checkpoints[6]).training.validation_metrics == {}


def test_found_by_a_part_of_its_id(history: History, runs: Determined) -> None:
    """As much of its beginning as only it has is enough; nothing like it is one sentence."""
    uuid = history.run(checkpoints=[5]).checkpoints[5]
    assert runs.get_checkpoint(uuid[:8]).uuid == uuid
    with pytest.raises(errors.NotFound, match="There is no checkpoint zzz"):
        runs.get_checkpoint("zzz")


def test_download(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """7.4: into checkpoints/<uuid>, whole; told how far it is."""
    run = history.run(checkpoints=[5])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    (history.root / "elsewhere").mkdir()
    monkeypatch.chdir(history.root / "elsewhere")
    told: list[tuple[int, int]] = []
    path = checkpoint.download(progress=lambda done, total: told.append((done, total)))
    assert path == str(Path("checkpoints") / checkpoint.uuid)
    assert (Path(path) / "state_dict.pth").read_bytes() == b"weights"
    assert json.loads((Path(path) / "metadata.json").read_text()) == {"steps_completed": 5}
    assert told[-1] == (checkpoint.size, checkpoint.size)


def test_a_whole_copy_is_not_fetched_again(history: History, runs: Determined) -> None:
    """7.4: an existing copy (metadata.json present) is reused if it is whole; one that was cut short is completed."""
    run = history.run(checkpoints=[5])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    target = history.root / "copy"
    checkpoint.download(target)
    (target / "state_dict.pth").write_bytes(b"mine")
    with pytest.raises(errors.CheckpointDamaged, match=r"state_dict\.pth has 4 bytes.* Download it again"):
        checkpoint.download(target)
    (target / ".artifacts-manifest").unlink()
    checkpoint.download(target, mode=DownloadMode.MASTER)
    assert (target / "state_dict.pth").read_bytes() == b"mine"
    (target / "metadata.json").unlink()
    checkpoint.download(target, mode="DIRECT")
    assert (target / "state_dict.pth").read_bytes() == b"weights"
    with pytest.raises(ValueError, match="SIDEWAYS"):
        checkpoint.download(target, mode="SIDEWAYS")


def test_a_damaged_one_is_refused(history: History, runs: Determined) -> None:
    """Decision 6: files are verified on the way, and what is wrong is said."""
    run = history.run(checkpoints=[5])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    assert checkpoint.verify() == []
    (history.root / "checkpoints" / checkpoint.uuid / "state_dict.pth").write_bytes(b"WEIGHTS")
    with pytest.raises(errors.CheckpointDamaged, match=r"state_dict\.pth has other content"):
        checkpoint.download(history.root / "copy")
    assert not (history.root / "copy").exists()
    (history.root / "mine").mkdir()
    with pytest.raises(errors.CheckpointDamaged):
        checkpoint.download(history.root / "mine")
    assert (history.root / "mine").exists()  # what the user made stays
    assert len(checkpoint.verify()) == 1


def test_what_has_no_files_is_not_downloaded(history: History, runs: Determined) -> None:
    """7.4: only COMPLETED and PARTIALLY_DELETED can be."""
    run = history.run(checkpoints=[5])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    checkpoint.delete()
    assert (checkpoint.state, checkpoint.resources, checkpoint.size) == (CheckpointState.DELETED, {}, 0)
    assert not (history.root / "checkpoints" / checkpoint.uuid).exists()
    with pytest.raises(errors.CheckpointStateException, match="is DELETED"):
        checkpoint.download(history.root / "copy")
    assert runs.get_experiment(run.experiment_id).checkpoint_count == 0
    checkpoint.delete()  # again is no error


def test_removing_some_files(history: History, runs: Determined) -> None:
    """4.9: removal by glob gives PARTIALLY_DELETED; the rest can be downloaded. Without patterns it only looks."""
    run = history.run(checkpoints=[5])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    checkpoint.remove_files([])
    assert checkpoint.state == CheckpointState.COMPLETED
    checkpoint.remove_files(["*.pth"])
    assert checkpoint.state == CheckpointState.PARTIALLY_DELETED
    assert set(checkpoint.resources) == {"metadata.json"}
    assert (Path(checkpoint.download(history.root / "copy")) / "metadata.json").exists()
    checkpoint.remove_files(["**"])
    assert checkpoint.state == CheckpointState.DELETED


def test_looking_again_notices_that_files_are_gone(history: History, runs: Determined) -> None:
    """`c rm` without a glob refreshes what is known of the files."""
    run = history.run(checkpoints=[5])
    open_storage(history.storage).delete(run.checkpoints[5])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    checkpoint.remove_files([])
    assert checkpoint.state == CheckpointState.DELETED


def test_metadata(history: History, runs: Determined) -> None:
    """7.4: add_metadata merges top-level keys in the store, not in the stored file."""
    run = history.run(checkpoints=[5])
    checkpoint = runs.get_checkpoint(run.checkpoints[5])
    checkpoint.add_metadata({"a": {"x": 1}, "b": 2})
    checkpoint.add_metadata({"a": {"y": 1}})
    checkpoint.remove_metadata(["b", "not there"])
    assert checkpoint.metadata == {"steps_completed": 5, "a": {"y": 1}}
    assert runs.get_checkpoint(checkpoint.uuid).metadata == checkpoint.metadata
    stored = history.root / "checkpoints" / checkpoint.uuid / "metadata.json"
    assert json.loads(stored.read_text()) == {"steps_completed": 5}
    checkpoint.write_metadata_file(history.root / "mine.json")
    assert json.loads((history.root / "mine.json").read_text()) == checkpoint.metadata


def test_metrics_of_a_checkpoint(history: History, runs: Determined) -> None:
    """7.4: what was reported at exactly its steps."""
    run = history.run(training={4: 2.0, 5: 1.0}, validation={5: 0.5}, checkpoints=[5])
    found = runs.get_checkpoint(run.checkpoints[5]).get_metrics()
    assert {report.group: report.metrics for report in found} == {
        "training": {"loss": 1.0},
        "validation": {"loss": 0.5},
    }
    assert len(runs.get_checkpoint(run.checkpoints[5]).get_metrics("validation")) == 1
