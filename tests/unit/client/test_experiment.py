"""Experiments through the SDK: fields, order of checkpoints, edits, waiting, and what nobody can do."""

from __future__ import annotations

import threading

import pytest

from determined import client, errors
from determined.client import CheckpointSortBy, Determined, ExperimentSortBy, ExperimentState, OrderBy, TrialSortBy
from determined.store.control import pending
from tests.history import History


def test_fields(history: History, runs: Determined) -> None:
    """7.2: an experiment has its documented fields; labels are a set or None."""
    run = history.run("cifar", config={"searcher": {"metric": "loss"}}, labels=["a", "b"], validation={10: 0.5})
    experiment = runs.get_experiment(run.experiment_id)
    assert (experiment.id, experiment.name, experiment.state) == (run.experiment_id, "cifar", ExperimentState.COMPLETED)
    assert experiment.config == {"searcher": {"metric": "loss"}}
    assert experiment.labels == {"a", "b"}
    assert (experiment.archived, experiment.progress, experiment.description) == (False, 1.0, "")
    assert (experiment.notes, experiment.project_id, experiment.workspace_id) == ("", 1, 1)
    assert (experiment.best_metric, experiment.best_trial_id) == (0.5, run.trial_id)
    assert runs.get_experiment(history.experiment()).labels is None


def test_a_missing_one_says_how_to_find_others(runs: Determined) -> None:
    """An id that is not there is one sentence with what to type."""
    with pytest.raises(errors.NotFound, match=r"There is no experiment 99 .* det experiment ls"):
        runs.get_experiment(99)


def test_objects_keep_their_fields_until_reloaded(history: History, runs: Determined) -> None:
    """7: all objects cache their fields; reload() refreshes."""
    run = history.run(state="RUNNING")
    experiment = runs.get_experiment(run.experiment_id)
    history.end(run, "COMPLETED")
    assert experiment.state == ExperimentState.RUNNING
    experiment.reload()
    assert experiment.state == ExperimentState.COMPLETED


def test_list_experiments(history: History, runs: Determined) -> None:
    """7.1, 5.3: by state, part of the name, label, owner and id, in any order, in pages."""
    one = history.run("Cifar-10", labels=["x"], validation={1: 0.5})
    two = history.run("mnist", labels=["x", "y"], owner="bob", state="ERROR", validation={1: 0.1})
    three = history.run("cifar-100", validation={1: 0.3})

    def found(**which: object) -> list[int]:
        return [experiment.id for experiment in runs.list_experiments(**which)]  # type: ignore[arg-type]

    first, second, third = one.experiment_id, two.experiment_id, three.experiment_id
    assert found() == [first, second, third]
    assert found(name="CIFAR") == [first, third]
    assert found(labels=["x"]) == [first, second]
    assert found(labels=["x", "y"]) == [second]
    assert found(users=["bob"]) == [second]
    assert found(states=[ExperimentState.ERROR]) == [second]
    assert found(states=["COMPLETED"]) == [first, third]
    assert found(experiment_ids=[third, first]) == [first, third]
    assert found(sort_by=ExperimentSortBy.ID, order_by=OrderBy.DESC, limit=2) == [third, second]
    assert found(limit=1, offset=1) == [second]
    assert found(sort_by=ExperimentSortBy.SEARCHER_METRIC_VAL) == [second, third, first]
    assert runs.count_experiments(labels=["x"]) == 2


@pytest.mark.parametrize("order", list(ExperimentSortBy))
def test_every_order_of_experiments_works(history: History, runs: Determined, order: ExperimentSortBy) -> None:
    """7.6: each ExperimentSortBy is an order that the store has."""
    history.run()
    assert len(runs.list_experiments(sort_by=order, order_by=OrderBy.DESC)) == 1


@pytest.mark.parametrize("order", list(TrialSortBy))
def test_every_order_of_trials_works(history: History, runs: Determined, order: TrialSortBy) -> None:
    """7.6: each TrialSortBy is an order that the store has."""
    run = history.run()
    assert [t.id for t in runs.get_experiment(run.experiment_id).list_trials(order)] == [run.trial_id]


def test_trials(history: History, runs: Determined) -> None:
    """7.2: trials in any order, one by one across pages, the best first by what is better."""
    experiment_id = history.experiment(smaller_is_better=False, unmanaged=False, state="COMPLETED")
    made = [history.trial(experiment_id, validation={1: value}) for value in (0.2, 0.9, 0.5)]
    made.append(history.trial(experiment_id))
    experiment = runs.get_experiment(experiment_id)
    ids = [run.trial_id for run in made]
    assert [trial.id for trial in experiment.list_trials()] == ids
    assert [trial.id for trial in experiment.get_trials(order_by=OrderBy.DESC)] == ids[::-1]
    assert [trial.id for trial in experiment.iter_trials(limit=2)] == ids[:2]
    assert [trial.id for trial in experiment.best_trials()] == [ids[1], ids[2], ids[0], ids[3]]
    assert experiment.trial_counts() == {"COMPLETED": 4}
    assert [round(value, 1) for value in experiment.to_pandas()["best_metric"].dropna()] == [0.2, 0.9, 0.5]


def test_long_lists_are_read_in_pages(history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch) -> None:
    """iter_trials neither repeats nor leaves out at the edge of a page."""
    monkeypatch.setattr("determined.client._experiment.PAGE", 2)
    experiment_id = history.experiment()
    ids = [history.trial(experiment_id).trial_id for _ in range(5)]
    experiment = runs.get_experiment(experiment_id)
    assert [trial.id for trial in experiment.iter_trials()] == ids
    assert [trial.id for trial in experiment.iter_trials(limit=3)] == ids[:3]
    assert [trial.id for trial in experiment.iter_trials(limit=4)] == ids[:4]


def test_checkpoints_best_first(history: History, runs: Determined) -> None:
    """P-85: with larger is better, the best first, unvalidated last, only COMPLETED."""
    run = history.run(smaller_is_better=False, validation={1: 0.1, 2: 0.9, 3: 0.5}, checkpoints=[1, 2, 3, 4, 5])
    experiment = runs.get_experiment(run.experiment_id)
    runs.get_checkpoint(run.checkpoints[3]).delete()
    assert [c.steps_completed for c in experiment.list_checkpoints()][:2] == [2, 1]
    assert sorted(c.steps_completed for c in experiment.list_checkpoints()[2:]) == [4, 5]
    assert [c.steps_completed for c in experiment.list_checkpoints(max_results=1)] == [2]
    assert [c.steps_completed for c in experiment.all_checkpoints()] == [1, 2, 3, 4, 5]


def test_checkpoints_in_another_order(history: History, runs: Determined) -> None:
    """7.2: by a CheckpointSortBy, or by the name of a validation metric."""
    values = {1: {"loss": 0.1, "f1": 0.3}, 2: {"loss": 0.2, "f1": 0.9}}
    run = history.run(validation=values, checkpoints=[1, 2, 3])
    experiment = runs.get_experiment(run.experiment_id)
    by_steps = experiment.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC)
    assert [c.steps_completed for c in by_steps] == [3, 2, 1]
    assert [c.steps_completed for c in experiment.list_checkpoints("f1", OrderBy.DESC)] == [2, 1, 3]
    for order in CheckpointSortBy:
        assert len(experiment.list_checkpoints(order, OrderBy.ASC)) == 3


def test_a_metric_may_be_called_like_a_column(history: History, runs: Determined) -> None:
    """7.2: the name of a validation metric is never taken for something else."""
    run = history.run(validation={s: {"time": -s, "state": -s} for s in (1, 2)}, checkpoints=[1, 2])
    experiment = runs.get_experiment(run.experiment_id)
    for name in ("time", "state"):
        assert [c.steps_completed for c in experiment.list_checkpoints(name, OrderBy.ASC)] == [2, 1]


def test_sort_by_needs_order_by(history: History, runs: Determined) -> None:
    """P-86: one without the other is an AssertionError; 7.2: another type is a ValueError."""
    experiment = runs.get_experiment(history.run().experiment_id)
    with pytest.raises(AssertionError, match="go together"):
        experiment.list_checkpoints(sort_by=CheckpointSortBy.UUID)
    with pytest.raises(AssertionError, match="go together"):
        experiment.list_checkpoints(order_by=OrderBy.ASC)
    with pytest.raises(ValueError, match="sort_by is 7"):
        experiment.list_checkpoints(7, OrderBy.ASC)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="smaller_is_better go together"):
        experiment.top_checkpoint("loss")


def test_top_checkpoints_are_of_distinct_trials(history: History, runs: Determined) -> None:
    """7.2: top_n_checkpoints is the best checkpoint of each of the n best trials."""
    experiment_id = history.experiment()
    one = history.trial(experiment_id, validation={1: 0.1, 2: 0.2}, checkpoints=[1, 2])
    two = history.trial(experiment_id, validation={1: 0.3}, checkpoints=[1])
    history.trial(experiment_id, checkpoints=[1])
    experiment = runs.get_experiment(experiment_id)
    assert [c.uuid for c in experiment.top_n_checkpoints(5)] == [one.checkpoints[1], two.checkpoints[1]]
    assert experiment.top_checkpoint().uuid == one.checkpoints[1]
    assert experiment.top_checkpoint("loss", smaller_is_better=False).uuid == two.checkpoints[1]
    empty = runs.get_experiment(history.run().experiment_id)
    with pytest.raises(errors.NotFound, match="no validated checkpoint"):
        empty.top_checkpoint()


def test_edits(history: History, runs: Determined) -> None:
    """4.2: name, description, notes and labels can be changed, unless it is archived."""
    experiment = runs.get_experiment(history.run().experiment_id)
    experiment.set_name("better name")
    experiment.set_description("what it is")
    experiment.set_notes("# Notes")
    experiment.set_labels({"a", "b"})
    experiment.add_label("c")
    experiment.add_label("c")
    experiment.remove_label("a")
    again = runs.get_experiment(experiment.id)
    for seen in (experiment, again):
        assert (seen.name, seen.description, seen.notes) == ("better name", "what it is", "# Notes")
        assert seen.labels == {"b", "c"}
    experiment.archive()
    assert experiment.archived
    with pytest.raises(errors.Refused, match="archived"):
        experiment.set_name("no")
    experiment.unarchive()
    experiment.set_name("yes")
    assert runs.get_experiment(experiment.id).name == "yes"


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_an_experiment_has_a_name(name: object, history: History, runs: Determined) -> None:
    """4.2: what is no name is refused in a sentence, and the old one stays."""
    experiment = runs.get_experiment(history.run("old").experiment_id)
    with pytest.raises(errors.InvalidValue, match=r"is no name|is a text, not"):
        experiment.set_name(name)  # type: ignore[arg-type]
    for change in (experiment.set_description, experiment.set_notes):
        with pytest.raises(errors.InvalidValue, match="is a text, not None"):
            change(None)  # type: ignore[arg-type]
    assert runs.get_experiment(experiment.id).name == "old"


def test_only_what_has_ended_is_archived_or_deleted(history: History, runs: Determined) -> None:
    """4.2: archive and delete are for what has ended."""
    experiment = runs.get_experiment(history.run(state="RUNNING").experiment_id)
    with pytest.raises(errors.Refused, match="RUNNING; only one that has ended"):
        experiment.archive()
    with pytest.raises(errors.Refused, match="RUNNING"):
        experiment.delete()


def test_delete_and_undelete(history: History, runs: Determined) -> None:
    """Issue 6: deleting hides everything at once; for a while it can be brought back as it was."""
    run = history.run(validation={1: 0.5}, checkpoints=[1])
    experiment = runs.get_experiment(run.experiment_id)
    experiment.delete()
    assert runs.list_experiments() == []
    assert [e.id for e in runs.list_experiments(deleted=True)] == [run.experiment_id]
    for look in (lambda: runs.get_experiment(run.experiment_id), lambda: runs.get_trial(run.trial_id)):
        with pytest.raises(errors.NotFound):
            look()
    experiment.reload()  # what one has in hand still works
    experiment.undelete()
    assert runs.get_checkpoint(run.checkpoints[1]).download(history.root / "copy")
    experiment.delete()
    assert runs.undelete_experiment(run.experiment_id).best_metric == 0.5


@pytest.mark.parametrize("action", ["activate", "pause", "cancel", "kill"])
def test_nobody_can_pause_a_plain_run(history: History, runs: Determined, action: str) -> None:
    """P-98: refused with the reason, the process, and what to do instead."""
    history.catch_up()
    run = history.run(state="RUNNING", node="gpu-7", pid=4711)
    experiment = runs.get_experiment(run.experiment_id)
    told = (
        rf"Experiment {run.experiment_id} was started with python train.py, so no controller can {action} it; "
        rf"stop the process \(pid 4711 on gpu-7\), or .*det trial stop {run.trial_id}$"
    )
    with pytest.raises(errors.NoController, match=told):
        getattr(experiment, action)()
    history.end(run)
    with pytest.raises(errors.NoController, match=r"no controller can .* it\. "):
        getattr(experiment, action)()


@pytest.fixture
def no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started: what is asked for waits in the store."""
    monkeypatch.setenv("DET_CONTROLLER", "off")


@pytest.mark.usefixtures("no_controller")
def test_what_is_asked_of_a_submitted_experiment_waits_for_the_controller(history: History, runs: Determined) -> None:
    """4.2: asking for what is already so succeeds and asks nothing; anything else is stored for the controller."""

    def asked() -> list[tuple[str, object]]:
        with history.store.read() as conn:
            return [(each.kind, each.body.get("action", each.trial_id)) for each in pending.read(conn)]

    experiment = runs.get_experiment(history.experiment(unmanaged=False, state="PAUSED"))
    experiment.pause()
    ended = runs.get_experiment(history.experiment(unmanaged=False, state="CANCELED"))
    ended.cancel()
    ended.kill()
    assert asked() == []
    experiment.activate()
    experiment.cancel()
    experiment.kill()
    running = history.trial(experiment.id, state="RUNNING")
    runs.get_trial(running.trial_id).kill()
    assert asked() == [
        ("REQUEST", "activate"), ("REQUEST", "cancel"), ("REQUEST", "kill"), ("KILL_TRIAL", running.trial_id)
    ]  # fmt: skip


@pytest.mark.usefixtures("no_controller")
def test_an_illegal_move_names_the_state(history: History, runs: Determined) -> None:
    """4.1: any other illegal request fails with a message naming the current state."""
    ended = runs.get_experiment(history.experiment(unmanaged=False, state="COMPLETED"))
    with pytest.raises(errors.IllegalMove, match=f"Experiment {ended.id} is COMPLETED, so it cannot become ACTIVE"):
        ended.activate()


def test_wait(history: History, runs: Determined) -> None:
    """7.2: wait() returns how it ended, as soon as it has."""
    run = history.run(state="RUNNING")
    ender = threading.Timer(0.2, history.end, [run, "ERROR"])
    ender.start()
    assert runs.get_experiment(run.experiment_id).wait(interval=0.05) == ExperimentState.ERROR
    ender.join()


def test_waiting_for_a_paused_one_is_refused(history: History, runs: Determined) -> None:
    """P-87: wait() on a paused experiment is a ValueError."""
    experiment = runs.get_experiment(history.experiment(unmanaged=False, state="PAUSED"))
    with pytest.raises(ValueError, match=r"is paused.*Activate it first"):
        experiment.wait()
    with pytest.raises(ValueError, match="Start its script again first"):  # nobody can activate a plain run
        runs.get_experiment(history.run(state="PAUSED").experiment_id).wait()


def test_waiting_is_told_once_a_minute(
    history: History, runs: Determined, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """7.2: a note to stderr each minute."""
    run = history.run(state="RUNNING")
    clock = iter(range(0, 6000, 10))
    rounds = iter(range(1000))

    def sleep(seconds: float) -> None:
        if next(rounds) == 14:
            history.end(run)

    fake = type("time", (), {"monotonic": staticmethod(lambda: float(next(clock))), "sleep": staticmethod(sleep)})
    monkeypatch.setattr("determined.client.following.waiting.time", fake)
    runs.get_experiment(run.experiment_id).wait()
    told = capsys.readouterr().err.splitlines()
    assert 2 <= len(told) <= 3
    assert told[0] == f"Waiting for experiment {run.experiment_id} (RUNNING) ..."


def test_await_first_trial(history: History, runs: Determined) -> None:
    """7.2: the first trial as soon as there is one; RuntimeError if it ends before that."""
    experiment_id = history.experiment(unmanaged=False, state="ACTIVE")
    maker = threading.Timer(0.2, history.trial, [experiment_id])
    maker.start()
    assert runs.get_experiment(experiment_id).await_first_trial(interval=0.05).experiment_id == experiment_id
    maker.join()
    ended = runs.get_experiment(history.experiment(unmanaged=False, state="ERROR"))
    with pytest.raises(RuntimeError, match=r"ended .ERROR. before it had a trial"):
        ended.await_first_trial()


def test_a_run_whose_process_is_gone_is_an_error(history: History, runs: Determined) -> None:
    """4.13: looking at it is enough to notice."""
    run = history.run(state="RUNNING", pid=2**22 + 5, process_started=1.0)
    experiment = runs.get_experiment(run.experiment_id)
    assert experiment.state == ExperimentState.ERROR
    assert experiment.wait() == ExperimentState.ERROR
    assert "without reporting how" in runs.get_trial(run.trial_id).state_reason


def test_events_and_names(history: History, runs: Determined) -> None:
    """4.1: every change of state is kept with its reason; 5.3: the names of metrics by group."""
    run = history.run(state="RUNNING", training={1: {"loss": 1.0, "lr": 0.1}}, validation={1: 0.5})
    history.end(run, "ERROR", "out of memory")
    experiment = runs.get_experiment(run.experiment_id)
    assert any(event.body.get("reason") == "out of memory" for event in experiment.events())
    assert experiment.metric_names() == {"training": ["loss", "lr"], "validation": ["loss"]}


def test_code_of_a_plain_run(history: History, runs: Determined) -> None:
    """A run that was not submitted has no copy of its code, and says where it came from."""
    run = history.run(environment={"git": {"commit": "4f1c22", "dirty": True}})
    with pytest.raises(errors.Refused, match=r"no copy of its code.*/home/ada/train.py at git commit 4f1c22"):
        runs.get_experiment(run.experiment_id).download_code()


def test_event_files_are_removed_and_nothing_else(history: History, runs: Determined) -> None:
    """7.2: delete_tensorboard_files() removes event files, and no other file beside them."""
    place = history.root / "tb"
    (place / "inner").mkdir(parents=True)
    (place / "inner" / "events.out.tfevents.1").touch()
    (place / "mine.txt").touch()
    run = history.run(tensorboard=str(place))
    runs.get_experiment(run.experiment_id).delete_tensorboard_files()
    assert [path.name for path in place.rglob("*")] == ["mine.txt"]


def test_states_are_words() -> None:
    """7.6: members print as their names, ASC and ASCENDING are one, states know whether they are final."""
    assert str(ExperimentState.COMPLETED) == "COMPLETED" == ExperimentState.COMPLETED
    assert OrderBy.ASC is OrderBy.ASCENDING
    assert OrderBy.DESC is OrderBy.DESCENDING
    assert ExperimentState.DELETED.is_terminal
    assert not ExperimentState.STOPPING_CANCELED.is_terminal
    assert client.TrialState.ERROR.is_terminal
    assert not client.TrialState.RUNNING.is_terminal
