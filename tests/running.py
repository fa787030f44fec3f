"""Experiments that go on, written into a store the way a controller and its trials write them.

search = Search(history, "adaptive_asha")
run = search.start(search.queue(lr=0.1))
history.report(run, "validation", {10: 0.5})
search.end(run)
"""

from __future__ import annotations

import dataclasses
from typing import Any

from determined.store import attempts, experiments, trials
from tests.history import History, Run


@dataclasses.dataclass
class Search:
    """A managed experiment."""

    history: History
    searcher: str = "random"
    resources: dict[str, Any] = dataclasses.field(default_factory=dict)
    name: str = "search"
    state: str = "ACTIVE"
    id: int = 0

    def __post_init__(self) -> None:
        halving = {"max_trials": 16, "time_metric": "batches", "max_time": 16} if "asha" in self.searcher else {}
        config = {
            "entrypoint": "python3 train.py",
            "searcher": {"name": self.searcher, "metric": "loss", **halving},
            "max_restarts": 2,
            "resources": {"slots_per_trial": 1, "priority": 42, "weight": 1, "max_slots": None, **self.resources},
        }
        self.id = self.history.experiment(self.name, config=config, unmanaged=False, state=self.state)

    def queue(self, **hparams: Any) -> Run:
        """Add a trial that waits for slots."""
        with self.history.store.write() as conn:
            trial_id = trials.create(conn, self.id, hparams=hparams, state="ACTIVE", start_time=self.history.tick())
        return Run(self.id, trial_id, None)  # type: ignore[arg-type]  # it has no attempt yet

    def start(self, run: Run, state: str = "RUNNING", *, slots: int = 1, slot_ids: list[Any] | None = None) -> Run:
        """Begin the next attempt of a trial."""
        slot_ids = ["0"] if slot_ids is None else slot_ids
        return self.history.attempt(run, state=state, slots=slots, slot_ids=slot_ids, node="here")

    def end(self, run: Run, state: str = "COMPLETED", reason: str = "The trial ended by itself.") -> None:
        """End an attempt and its trial."""
        self.history.end(run, state, reason)

    def set_state(self, state: str, reason: str = "") -> None:
        """Set the state of the experiment."""
        with self.history.store.write() as conn:
            experiments.set_state(conn, self.id, state, reason, time=self.history.tick())

    def set_allocation(self, run: Run, state: str) -> None:
        """Set the state of the processes of a trial."""
        with self.history.store.write() as conn:
            attempts.set_state(conn, run.attempt.allocation_id, state)

    def set_progress(self, run: Run | None, progress: float) -> None:
        """Set how far a trial is, or the experiment."""
        with self.history.store.write() as conn:
            if run is None:
                experiments.update(conn, self.id, progress=progress)
            else:
                trials.update(conn, run.trial_id, progress=progress)
