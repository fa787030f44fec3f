"""Trials over the API."""

from __future__ import annotations

from tests.asking import Asker
from tests.history import History


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
