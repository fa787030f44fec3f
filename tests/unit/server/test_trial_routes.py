"""Trials over the API."""

from __future__ import annotations

import collections
import math

import pytest

from determined.store import attempts
from tests.asking import Asker
from tests.history import History
from tests.running import Search


def test_a_trial_has_what_its_page_shows(history: History, page: Asker) -> None:
    """A trial's answer holds its place, its metrics, its checkpoints and the line that loads the best."""
    run = history.run(
        "digits",
        hparams={"lr": 0.1, "odd": float("nan")},
        training={10: 1.0, 20: 0.5},
        validation={10: 0.9, 20: 0.7},
        checkpoints=[10, 20],
        tensorboard="/tb",
    )
    answer = page.get(f"/trials/{run.trial_id}")
    assert answer["experiment"] == "digits"
    assert answer["hparams"] == {"lr": 0.1, "odd": "NaN"}
    assert answer["best_metric"] == 0.7
    assert answer["best_checkpoint"]["uuid"] == run.checkpoints[20]
    assert run.checkpoints[20] in answer["load_line"]
    assert [(each["group"], each["name"], each["points"], each["last"]) for each in answer["metrics"]] == [
        ("training", "loss", 2, 0.5),
        ("validation", "loss", 2, 0.7),
    ]
    assert "python train.py" in answer["actions"]["kill"]
    assert answer["actions"]["tensorboard"] == ""


def test_a_trial_can_be_continued_from_its_checkpoint(history: History, page: Asker) -> None:
    """A trial of any search can go on as a new experiment once it has a checkpoint, and says what is missing before."""
    search = history.experiment(
        "search", config={"searcher": {"name": "adaptive_asha"}}, unmanaged=False, state="COMPLETED"
    )
    bare, saved = history.trial(search), history.trial(search, checkpoints=[10])
    assert page.get(f"/trials/{saved.trial_id}")["actions"]["continue"] == ""
    assert "no complete checkpoint" in page.get(f"/trials/{bare.trial_id}")["actions"]["continue"]
    alone = history.run("digits", checkpoints=[10])
    assert "was not submitted" in page.get(f"/trials/{alone.trial_id}")["actions"]["continue"]


def test_reports_of_a_step_are_one_row(history: History, page: Asker) -> None:
    """8.2: the table of a trial's steps merges all groups, and shows those with a validation or a checkpoint alone."""
    run = history.run(training={10: 1.0, 20: math.nan, 30: 0.5}, validation={20: 0.7}, checkpoints=[30])
    place = f"/trials/{run.trial_id}/reports"
    answer = page.get(place)
    assert [row["steps"] for row in answer["reports"]] == [30, 20, 10]
    assert answer["reports"][1]["values"] == {"training": {"loss": "NaN"}, "validation": {"loss": 0.7}}
    assert (answer["reports"][0]["checkpoint_uuid"], answer["total"]) == (run.checkpoints[30], 3)
    assert [row["steps"] for row in page.get(place, which="validation")["reports"]] == [20]
    assert [row["steps"] for row in page.get(place, which="checkpoint")["reports"]] == [30]
    assert [row["steps"] for row in page.get(place, limit=1, offset=1)["reports"]] == [20]


def test_a_life_is_told_in_order(history: History, page: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts, validations, checkpoints and states are moments, the oldest first; of very many some are shown."""
    monkeypatch.setattr("determined.server.reading.timeline.MOST", 5)
    run = history.run(validation=dict.fromkeys(range(1, 101), 1.0), checkpoints=range(12), state="RUNNING")
    history.end(run, "ERROR", "The process ended with exit code 1.")
    history.attempt(run, node="elsewhere")
    moments = page.get(f"/trials/{run.trial_id}/timeline")["moments"]
    times = [moment["time"] for moment in moments]
    assert times == sorted(times)
    kinds = collections.Counter(moment["kind"] for moment in moments)
    assert kinds["validation"] <= 5
    assert kinds["checkpoint"] <= 5
    said = [moment["said"] for moment in moments]
    assert "ERROR: The process ended with exit code 1." in said
    assert "Attempt 2 started on elsewhere." in said
    assert max(moment["steps"] or 0 for moment in moments if moment["kind"] == "validation") == 100


def test_stopping_and_killing_answer_for_each_trial(history: History, page: Asker) -> None:
    """P-98: a run without a controller is asked to stop, and cannot be killed: each trial has its own sentence."""
    ended, runs = history.run(), history.run(state="RUNNING")
    asked = {"action": "stop", "ids": [ended.trial_id, runs.trial_id, 99]}
    first, second, third = page.send("POST", "/trials/actions", asked)["outcomes"]
    assert (first["is_done"], second["is_done"], third["is_done"]) == (True, True, False)
    assert "has ended" in first["said"]
    assert "no trial 99" in third["said"]
    with history.store.read() as conn:
        assert attempts.get(conn, runs.attempt.allocation_id).preempt_requested
    (killed,) = page.send("POST", "/trials/actions", {"action": "kill", "ids": [runs.trial_id]})["outcomes"]
    assert not killed["is_done"]
    assert f"det trial stop {runs.trial_id}" in killed["said"]
    assert page.get(f"/trials/{runs.trial_id}")["actions"]["kill"] == killed["said"]


def test_a_queued_trial_says_why_it_cannot_be_stopped(history: History, page: Asker) -> None:
    """A trial that waits for slots has no process, and its state is the one that people see."""
    search = Search(history)
    waiting = search.queue(lr=0.1)
    answer = page.get(f"/trials/{waiting.trial_id}")
    assert (answer["state"], answer["slots"], answer["attempts"]) == ("QUEUED", 0, [])
    assert answer["actions"]["stop"] == f"Trial {waiting.trial_id} has no process."
    assert answer["actions"]["kill"] == ""


def test_the_best_checkpoint_is_not_always_at_the_best_validation(history: History, page: Asker) -> None:
    """The best checkpoint is the best of those whose files are there."""
    run = history.run(validation={10: 0.9, 20: 0.7, 30: 0.8}, checkpoints=[10, 30])
    assert page.get(f"/trials/{run.trial_id}")["best_checkpoint"]["uuid"] == run.checkpoints[30]
