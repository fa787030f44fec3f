"""Clearing up through the SDK: what goes, what stays whatever the policy says, and files before rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.artifacts import open_storage
from determined.client import CheckpointState, Determined
from determined.errors import ConfigError
from determined.store import checkpoints
from determined.store.upkeep import retention
from tests.history import History, Run


def vectors(history: History, *, smaller_is_better: bool = True) -> tuple[int, dict[str, str]]:
    """The two trials of platform.md 4.9: names of checkpoints to ids."""
    experiment_id = history.experiment(smaller_is_better=smaller_is_better)
    one = history.trial(experiment_id, validation={200: 0.9, 300: 0.7, 400: 0.8}, checkpoints=[100, 200, 300, 400])
    two = history.trial(experiment_id, validation={100: 0.75, 200: 0.6}, checkpoints=[100, 200, 300])
    return experiment_id, dict(zip(("c1", "c2", "c3", "c4", "c5", "c6", "c7"), [*one.uuids, *two.uuids], strict=True))


def left(history: History) -> set[str]:
    return set(open_storage(history.storage).list())


@pytest.mark.parametrize(
    ("policy", "kept"), [((0, 0, 0), ""), ((2, 0, 0), "c3 c6"), ((0, 1, 1), "c3 c4 c6 c7"), ((1, 0, 1), "c4 c6 c7")]
)
def test_vectors(history: History, runs: Determined, policy: tuple[int, int, int], kept: str) -> None:
    """P-63: equal kept sets; files of the others are gone; rows say DELETED; sizes exclude them."""
    experiment_id, names = vectors(history)
    experiment = runs.get_experiment(experiment_id)
    before = experiment.checkpoint_size
    done = experiment.apply_retention(*policy)
    stay = {names[name] for name in kept.split()}
    assert left(history) == stay
    assert set(done.removed) == set(names.values()) - stay
    assert (done.in_use, done.dry_run) == ([], False)
    states = {c.uuid: c.state for c in experiment.all_checkpoints()}
    assert {uuid for uuid, state in states.items() if state == CheckpointState.COMPLETED} == stay
    assert set(states.values()) <= {CheckpointState.COMPLETED, CheckpointState.DELETED}
    assert experiment.checkpoint_count == len(stay)
    assert experiment.checkpoint_size == before - done.size
    assert experiment.apply_retention(*policy).removed == []


def test_larger_is_better(history: History, runs: Determined) -> None:
    """P-63: where larger is better, "keep the best one" keeps the checkpoint with the largest value."""
    experiment_id, names = vectors(history, smaller_is_better=False)
    runs.get_experiment(experiment_id).apply_retention(1, 0, 0)
    assert left(history) == {names["c2"]}


def test_a_look_changes_nothing(history: History, runs: Determined) -> None:
    """4.9: a preview says what would go."""
    experiment_id, names = vectors(history)
    found = runs.get_experiment(experiment_id).apply_retention(0, 0, 1, dry_run=True)
    assert set(found.removed) == set(names.values()) - {names["c4"], names["c7"]}
    assert found.dry_run
    assert left(history) == set(names.values())


def test_a_local_run_is_cleared_only_when_asked(history: History, runs: Determined) -> None:
    """Issue 6: without a word about keeping in its config, a run of `python train.py` keeps everything."""
    silent = history.run(checkpoints=[1, 2, 3])
    asked = history.run(
        config={"checkpoint_storage": {"save_trial_latest": 2, "save_trial_best": 0}}, checkpoints=[1, 2, 3]
    )
    assert runs.get_experiment(silent.experiment_id).apply_retention().removed == []
    assert runs.get_experiment(asked.experiment_id).apply_retention().removed == [asked.checkpoints[1]]
    submitted = history.experiment(unmanaged=False, state="COMPLETED")
    run = history.trial(submitted, checkpoints=[1, 2, 3])
    assert runs.get_experiment(submitted).apply_retention().removed == [run.checkpoints[1], run.checkpoints[2]]


def test_what_would_be_resumed_stays(history: History, runs: Determined) -> None:
    """4.9: never the newest checkpoint of a trial that is not over, nor of a local run that did not complete."""

    def kept(run: Run) -> list[int]:
        runs.get_experiment(run.experiment_id).apply_retention(0, 0, 0)
        return [steps for steps, uuid in run.checkpoints.items() if uuid in left(history)]

    assert kept(history.run(state="RUNNING", checkpoints=[1, 3, 2])) == [3]
    assert kept(history.run(state="ERROR", checkpoints=[1, 2])) == [2]
    assert kept(history.run(state="COMPLETED", checkpoints=[1, 2])) == []
    failed = history.trial(history.experiment(unmanaged=False, state="ERROR"), state="ERROR", checkpoints=[1])
    assert kept(failed) == []


def test_what_a_trial_started_from_stays(history: History, runs: Determined) -> None:
    """4.9: a warm start is never deleted."""
    base = history.run(checkpoints=[1, 2])
    history.run(warm_start=base.checkpoints[1])
    assert runs.get_experiment(base.experiment_id).apply_retention(0, 0, 0).removed == [base.checkpoints[2]]


def test_what_is_being_read_stays(history: History, runs: Determined) -> None:
    """Issue 6: one being read is passed over, and goes the next time."""
    run = history.run(checkpoints=[1, 2])
    experiment = runs.get_experiment(run.experiment_id)
    with open_storage(history.storage).reading(run.checkpoints[1]):
        done = experiment.apply_retention(0, 0, 0)
    assert (done.removed, done.in_use) == ([run.checkpoints[2]], [run.checkpoints[1]])
    assert runs.get_checkpoint(run.checkpoints[1]).verify() == []
    assert experiment.apply_retention(0, 0, 0).removed == [run.checkpoints[1]]


def test_what_is_registered_in_between_stays(history: History, runs: Determined) -> None:
    """P-64: the registry is asked again before each removal."""
    run = history.run(checkpoints=[1, 2])
    with history.store.read() as conn:
        unwanted = retention.plan(conn, run.experiment_id, retention.Policy(0, 0, 0))
    runs.create_model("digits").register_version(run.checkpoints[2])
    gone, stayed = retention.remove(history.store, unwanted, lambda row: True)
    assert (gone, stayed) == ([run.checkpoints[1]], [run.checkpoints[2]])


def test_a_run_that_ends_does_not_wait_long(history: History) -> None:
    """Issue 6: clearing up at the end of a run is bounded; what is left is left for the next time."""
    run = history.run(checkpoints=[1, 2])
    assert retention.remove(history.store, run.uuids, lambda row: True, seconds=0) == ([], run.uuids)


def test_whoever_dies_in_between_is_finished_by_the_next(history: History, runs: Determined) -> None:
    """Files go first; a row whose files are gone already is set right, and nothing else is lost."""
    run = history.run(checkpoints=[1, 2])
    open_storage(history.storage).delete(run.checkpoints[1])
    done = runs.get_experiment(run.experiment_id).apply_retention(0, 0, 1)
    assert done.removed == [run.checkpoints[1]]
    with history.store.read() as conn:
        assert checkpoints.get(conn, run.checkpoints[1]).state == "DELETED"
        assert checkpoints.get(conn, run.checkpoints[2]).state == "COMPLETED"


def test_other_experiments_are_not_touched(history: History, runs: Determined, tmp_path: Path) -> None:
    """One policy is for one experiment, though all may lie in one directory."""
    other = history.run(checkpoints=[1])
    run = history.run(checkpoints=[1])
    runs.get_experiment(run.experiment_id).apply_retention(0, 0, 0)
    assert left(history) == set(other.uuids)


def test_wrong_numbers(history: History, runs: Determined) -> None:
    """1.5: how many checkpoints to keep is a whole number from 0 up; anything else is refused."""
    experiment = runs.get_experiment(history.run().experiment_id)
    with pytest.raises(ConfigError, match="save_trial_best is -1"):
        experiment.apply_retention(save_trial_best=-1)
