"""Trials through the SDK: metrics, curves, checkpoints, and asking a run to stop."""

from __future__ import annotations

import math

import pytest

from determined import errors
from determined.client import CheckpointSortBy, Determined, OrderBy, TrialState
from determined.store import attempts
from determined.store.messages import MetricReport, Signal
from determined.store.metrics import metric_reports
from tests.history import History


def test_fields(history: History, runs: Determined) -> None:
    """7.3: a trial has its documented fields, and what else is known of it."""
    environment = {"arguments": ["--lr", "0.1"], "git": {"commit": "4f1c22"}}
    run = history.run(hparams={"lr": 0.1}, validation={10: 0.5, 20: 0.7}, environment=environment, tensorboard="/tb/1")
    trial = runs.get_trial(run.trial_id)
    assert (trial.id, trial.experiment_id) == (run.trial_id, run.experiment_id)
    assert (trial.hparams, trial.state) == ({"lr": 0.1}, TrialState.COMPLETED)
    assert trial.summary_metrics["validation_metrics"]["loss"]["count"] == 2
    assert (trial.best_metric, trial.latest_metric_value, trial.searcher_metric) == (0.5, 0.7, "loss")
    assert trial.environment == environment
    assert trial.tensorboard_paths() == ["/tb/1"]
    assert [attempt.exit_code for attempt in trial.attempts()] == [0]
    assert trial.get_experiment().id == run.experiment_id
    trial.set_metadata({"verdict": "keep"})
    assert runs.get_trial(trial.id).metadata == {"verdict": "keep"}


def test_metrics_in_order_of_steps(history: History, runs: Determined) -> None:
    """P-88: rows ordered by steps, and nothing that a resumed run has replaced."""
    run = history.run(state="RUNNING", validation={10: 0.9, 20: 0.8, 30: 0.7})
    history.attempt(run)
    history.report(run, "validation", {20: 0.5, 40: 0.4})
    history.end(run)
    found = list(runs.get_trial(run.trial_id).iter_metrics("validation"))
    assert [(report.steps_completed, report.metrics["loss"]) for report in found] == [(10, 0.9), (20, 0.5), (40, 0.4)]
    assert [report.trial_run_id for report in found] == [1, 2, 2]
    first = found[0]
    assert (first.group, first.total_batches, first.trial_id) == ("validation", 10, run.trial_id)
    assert first.end_time.tzinfo is not None


def test_metrics_are_read_again_by_each_loop(history: History, runs: Determined) -> None:
    """A Metrics can be looped over twice, and becomes a table; NaN and infinities stay what they are."""
    run = history.run(state="RUNNING", training={1: {"loss": math.nan, "lr": 0.1}, 2: {"loss": math.inf}})
    reports = runs.get_trial(run.trial_id).metrics("training")
    assert len(list(reports)) == 2
    history.report(run, "training", {3: 1.0})
    assert len(list(reports)) == 3
    table = reports.to_pandas()
    assert list(table["steps_completed"]) == [1, 2, 3]
    assert math.isnan(table["loss"][0])
    assert table["loss"][1] == math.inf
    assert runs.get_trial(run.trial_id).metric_names() == {"training": ["loss", "lr"]}


def test_batches_are_read_when_asked_for(history: History, runs: Determined) -> None:
    """5.3: bulky batch metrics are not loaded unless asked."""
    run = history.run(state="RUNNING")
    with history.store.write() as conn:
        report = MetricReport("training", {"loss": 1.0}, 2, [{"loss": 0.5}, {"loss": 1.5}])
        metric_reports.append(conn, run.attempt, [report])
    trial = runs.get_trial(run.trial_id)
    assert [found.batch_metrics for found in trial.iter_metrics("training")] == [None]
    (found,) = trial.metrics("training", with_batches=True)
    assert found.batch_metrics == [{"loss": 0.5}, {"loss": 1.5}]


def test_older_names(history: History, runs: Determined) -> None:
    """7.3: names that are deprecated but kept."""
    run = history.run(training={1: 1.0}, validation={1: 0.5}, checkpoints=[1], lines=["a"])
    trial = runs.get_trial(run.trial_id)
    assert [r.group for r in trial.stream_metrics("training")] == ["training"]
    assert [r.group for r in trial.stream_training_metrics()] == ["training"]
    assert [r.group for r in trial.stream_validation_metrics()] == ["validation"]
    assert [c.uuid for c in trial.get_checkpoints()] == run.uuids
    assert len(list(trial.logs())) == 1


def test_metrics_of_several_trials(history: History, runs: Determined) -> None:
    """7.1: iter_trials_metrics goes by trial, then by steps."""
    one, two = history.run(validation={1: 0.1, 2: 0.2}), history.run(validation={1: 0.3})
    found = runs.iter_trials_metrics([two.trial_id, one.trial_id], "validation")
    assert [(r.trial_id, r.steps_completed) for r in found] == [(two.trial_id, 1), (one.trial_id, 1), (one.trial_id, 2)]


def test_curve(history: History, runs: Determined) -> None:
    """5.3: a curve in buckets with min, mean and max, and exact points of a range."""
    run = history.run(training={step: float(step % 10) for step in range(1, 1001)})
    trial = runs.get_trial(run.trial_id)
    curve = trial.curve("loss", "training", buckets=10)
    assert 2 <= len(curve) <= 10
    assert (min(curve.min), max(curve.max), sum(curve.count)) == (0.0, 9.0, 1000)  # type: ignore[type-var]
    assert list(curve.to_pandas()["steps"]) == curve.steps
    points = trial.points("loss", "training", first=998, last=1000)
    assert (points.steps, points.value) == ([998, 999, 1000], [8.0, 9.0, 0.0])
    assert len(points.to_pandas()) == 3


def test_one_checkpoint_is_found_each_way(history: History, runs: Determined) -> None:
    """P-84: with a single checkpoint, latest, best and uuid each give it."""
    run = history.run(validation={5: 0.5}, checkpoints=[5])
    trial = runs.get_trial(run.trial_id)
    uuid = run.checkpoints[5]
    assert trial.select_checkpoint(latest=True).uuid == uuid
    assert trial.select_checkpoint(best=True).uuid == uuid
    assert trial.select_checkpoint(uuid=uuid).uuid == uuid
    assert trial.top_checkpoint().uuid == uuid


def test_latest_and_best_take_the_right_end(history: History, runs: Determined) -> None:
    """D9: latest is the furthest, best the best; sort_by chooses another metric."""
    values = {1: {"loss": 0.1, "f1": 0.2}, 2: {"loss": 0.3, "f1": 0.9}}
    run = history.run(validation=values, checkpoints=[1, 2, 3])
    trial = runs.get_trial(run.trial_id)
    assert trial.select_checkpoint(latest=True).steps_completed == 3
    assert trial.select_checkpoint(best=True).steps_completed == 1
    assert trial.select_checkpoint(best=True, sort_by="f1", smaller_is_better=False).steps_completed == 2
    assert trial.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC, 1)[0].steps_completed == 3


def test_choosing_a_checkpoint_in_two_ways_is_refused(history: History, runs: Determined) -> None:
    """7.3: exactly one way; and one that is not there is named."""
    trial = runs.get_trial(history.run().trial_id)
    for wrong in ({}, {"latest": True, "best": True}):
        with pytest.raises(AssertionError, match="exactly one way"):
            trial.select_checkpoint(**wrong)
    with pytest.raises(AssertionError, match="go with best"):
        trial.select_checkpoint(latest=True, sort_by="loss", smaller_is_better=True)
    with pytest.raises(errors.NotFound, match="no validated checkpoint"):
        trial.top_checkpoint()
    with pytest.raises(errors.NotFound, match="no checkpoint abc"):
        trial.select_checkpoint(uuid="abc")


def test_the_beginning_of_an_id_is_enough(history: History, runs: Determined) -> None:
    """7.3, P-84: lists show eight characters of an id on a terminal, so these have to do."""
    trial = runs.get_trial(history.run(checkpoints=range(1, 18)).trial_id)  # more than first letters
    uuids = [checkpoint.uuid for checkpoint in trial.all_checkpoints()]
    assert trial.select_checkpoint(uuid=uuids[7][:18]).uuid == uuids[7]
    common = next(c for c in "0123456789abcdef" if sum(uuid[0] == c for uuid in uuids) > 1)
    with pytest.raises(ValueError, match="Several checkpoints begin with"):
        trial.select_checkpoint(uuid=common)


def test_a_best_one_that_there_is_not_says_by_what_there_is(history: History, runs: Determined) -> None:
    """7.3: a metric that was not measured is named, with those that were."""
    run = history.run(validation={1: {"loss": 0.5, "f1": 0.25}}, checkpoints=[1])
    for owner in (runs.get_trial(run.trial_id), runs.get_experiment(run.experiment_id)):
        with pytest.raises(errors.NotFound, match=r"validated by 'accuracy', but by f1, loss.*--sort-by f1"):
            owner.top_checkpoint("accuracy", smaller_is_better=False)


def test_stop_asks_the_process_to_leave(history: History, runs: Determined) -> None:
    """A run of `python train.py` is asked through its row to checkpoint and leave; one that has ended is left alone."""
    run = history.run(state="RUNNING")
    with history.store.read() as conn:
        assert attempts.signals(conn, run.attempt.allocation_id) == Signal.NONE
    runs.get_trial(run.trial_id).stop()
    with history.store.read() as conn:
        assert attempts.signals(conn, run.attempt.allocation_id) == Signal.PREEMPT
    ended = history.run()
    runs.get_trial(ended.trial_id).stop()
    with history.store.read() as conn:
        assert attempts.signals(conn, ended.attempt.allocation_id) == Signal.NONE


def test_killing_a_plain_run_is_refused(history: History, runs: Determined) -> None:
    """P-98: with the reason and what to do instead; a submitted one that has ended is left alone."""
    history.catch_up()
    run = history.run(state="RUNNING", node="gpu-7", pid=4711)
    with pytest.raises(errors.NoController, match=rf"Trial {run.trial_id} was started with python train.py.*pid 4711"):
        runs.get_trial(run.trial_id).kill()
    ended = history.trial(history.experiment(unmanaged=False, state="COMPLETED"))
    runs.get_trial(ended.trial_id).kill()


def test_a_run_that_belongs_to_nobody_says_so(history: History, runs: Determined) -> None:
    """A missing trial is one sentence with what to type."""
    with pytest.raises(errors.NotFound, match=r"There is no trial 5 .* det trial ls"):
        runs.get_trial(5)


@pytest.mark.parametrize("ask", ["curve", "points"])
def test_an_unknown_metric_is_said_with_the_nearest(ask: str, history: History, runs: Determined) -> None:
    """`curve("acc")` of a trial that reported no `acc` raises, and names what is near, or what there is."""
    run = history.run(training={1: {"loss": 1.0}}, validation={1: {"accuracy": 0.5}})
    trial = runs.get_trial(run.trial_id)
    with pytest.raises(errors.NotFound, match=f"Trial {run.trial_id} reported no 'acc' .*Did you mean 'accuracy'"):
        getattr(trial, ask)("acc")
    with pytest.raises(errors.NotFound, match=r"no 'loss' in 'validation'.*training"):
        getattr(trial, ask)("loss")
    with pytest.raises(errors.NotFound, match="no 'loss' in 'nogroup'"):
        getattr(trial, ask)("loss", "nogroup")


def test_a_metric_that_may_still_come_is_empty(history: History, runs: Determined) -> None:
    """A trial that runs may report a group later: until then its curves are empty, without an error."""
    run = history.run(state="RUNNING", training={1: {"loss": 1.0}})
    trial = runs.get_trial(run.trial_id)
    assert len(trial.curve("accuracy")) == len(trial.points("accuracy")) == 0
    assert list(trial.metrics("test_set")) == []
    with pytest.raises(errors.NotFound, match="Did you mean 'loss'"):
        trial.curve("los", "training")


def test_an_unknown_group_is_said_with_the_nearest(history: History, runs: Determined) -> None:
    """`metrics("nogroup")` raises where it is called; the groups that every trial may have are never unknown."""
    run = history.run(validation={1: 0.5})
    history.report(run, "test_set", {1: 0.5})
    trial = runs.get_trial(run.trial_id)
    with pytest.raises(errors.NotFound, match=r"no group 'testset'\. Did you mean 'test_set'"):
        trial.metrics("testset")
    with pytest.raises(errors.NotFound, match=r"no group 'nogroup'\. There is: test_set, validation"):
        trial.iter_metrics("nogroup")
    assert list(trial.metrics("training")) == list(trial.metrics("gpu")) == []
