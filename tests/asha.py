"""A small ASHA search, driven to its end or part of the way without processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from determined.experiment.controller.loop import Controller
from determined.store.control import controllers
from tests.history import History
from tests.launchers import Running, ScriptedLauncher

ASHA: dict[str, Any] = {
    "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
    "searcher": {
        "name": "adaptive_asha", "metric": "loss", "max_trials": 8, "time_metric": "batches", "max_time": 4,
        "max_concurrent_trials": 4, "divisor": 2,
    },
    "max_restarts": 0,
    "reproducibility": {"experiment_seed": 7},
}  # fmt: skip


def trains(running: Running) -> Iterator[None]:
    """Validate after every batch; the better the closer lr is to 0.01."""
    lr = running.task.hparams["lr"]
    assert isinstance(lr, float)
    for step in range(1, 5):
        yield
        if running.should_stop:
            running.acknowledge()
            return
        running.validate(step, loss=abs(lr - 0.01) + 1.0 / step)


def drive(history: History, rounds: int = 5000) -> None:
    """Drive what there is, so many rounds or to its end."""
    launcher = ScriptedLauncher(history.store, trains)
    controller = Controller(history.store, launcher)
    assert controller.take_lease()
    for _ in range(rounds):
        if not controller.round():
            break
        launcher.wait(0)
    with history.store.write() as conn:
        controllers.leave(conn, controller._holder, even_with_events=True)
