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
