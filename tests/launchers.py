"""A launcher without processes: trials are generators of reports, and each `wait` lets every one take a step.

Its trials go on whatever becomes of the controller, as processes would, so one launcher may serve several in a row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from determined.experiment.launchers.base import TaskSpec
from determined.experiment.slots import Slots
from determined.store import attempts, checkpoints, experiments, trials
from determined.store.attempts import AttemptRow
from determined.store.control import pending
from determined.store.database.connection import Store
from determined.store.messages import CheckpointReport, MetricReport
from determined.store.metrics import metric_reports

Script = Callable[["Running"], Iterator[None]]
"""What a trial does: between two `yield` it reports, and its return value is its exit code."""


@dataclass
class Running:
    """One attempt that runs."""

    store: Store
    task: TaskSpec
    attempt: attempts.Attempt
    is_killed: bool = False
    code: int = 0
    matched_policy: str | None = None

    @property
    def should_stop(self) -> bool:
        with self.store.read() as conn:
            return attempts.get(conn, self.attempt.allocation_id).preempt_requested

    def validate(self, steps: int, **metrics: float) -> None:
        with self.store.write() as conn:
            metric_reports.append(conn, self.attempt, [MetricReport("validation", metrics, steps)])
            self._tell(conn, "VALIDATED", {"metrics": metrics, "steps_completed": steps})

    def save(self, steps: int) -> None:
        uuid = f"{self.attempt.trial_id:04d}-{self.attempt.attempt}-{steps}"
        with self.store.write() as conn:
            report = CheckpointReport(uuid, {"steps_completed": steps}, {"model.pt": 3})
            checkpoints.record(conn, self.attempt, report, None)

    def acknowledge(self) -> None:
        with self.store.write() as conn:
            attempts.acknowledge_preemption(conn, self.attempt.allocation_id)

    def invalid(self) -> None:
        with self.store.write() as conn:
            self._tell(conn, "INVALID_HP", {})

    def end(self) -> None:
        with self.store.write() as conn:
            attempts.end(conn, self.attempt.allocation_id, exit_code=self.code)
            self._tell(conn, "ATTEMPT_ENDED", {"code": self.code, "matched_policy": self.matched_policy})

    def _tell(self, conn: Any, kind: str, body: dict[str, Any]) -> None:
        told = {"trial_id": self.attempt.trial_id, "attempt": self.attempt.attempt}
        pending.append(conn, self.attempt.experiment_id, kind, body, **told)


@dataclass
class ScriptedLauncher:
    """Runs `script` for each attempt, step by step."""

    store: Store
    script: Script
    count: int = 2
    name: str = "scripted"
    started: list[TaskSpec] = field(default_factory=list)
    running: dict[str, tuple[Running, Iterator[None]]] = field(default_factory=dict)
    most_at_once: int = 0

    def slots(self) -> Slots:
        return Slots("cpu", tuple(map(str, range(self.count))))

    def settings(self) -> dict[str, str]:
        return {}

    def waiting(self) -> dict[str, str]:
        return {}

    def start(self, task: TaskSpec) -> None:
        self.started.append(task)
        with self.store.write() as conn:
            row = attempts.get(conn, task.allocation_id)
            attempts.claim(conn, task.allocation_id, node="here", pid=os.getpid(), process_started=None)
            attempts.contacted(conn, task.allocation_id)
        begun = attempts.Attempt(row.allocation_id, row.task_id, row.trial_id, row.experiment_id, row.attempt, None)
        running = Running(self.store, task, begun)
        self.running[task.allocation_id] = (running, self.script(running))
        self.most_at_once = max(self.most_at_once, len(self.running))

    def is_alive(self, attempt: AttemptRow) -> bool:
        return attempt.allocation_id in self.running

    def kill(self, attempt: AttemptRow) -> None:
        if attempt.allocation_id in self.running:
            running, _ = self.running.pop(attempt.allocation_id)
            running.code = 137
            running.end()

    def lose(self, allocation_id: str) -> None:
        """The agent and its processes vanish."""
        del self.running[allocation_id]

    def wait(self, seconds: float) -> None:
        for allocation_id, (running, steps) in list(self.running.items()):
            try:
                next(steps)
            except StopIteration as end:
                del self.running[allocation_id]
                running.code = end.value or running.code
                running.end()


def submit(store: Store, config: dict[str, Any], *, paused: bool = False) -> int:
    """Add an experiment as a submission does."""
    from determined.experiment.config.experiment_config import ExperimentConfig

    checked = ExperimentConfig.parse({"entrypoint": "true", **config})
    effective = checked.effective()
    with store.write() as conn:
        ident = experiments.create(
            conn,
            name=str(effective["name"]),
            config=effective,
            owner="ada",
            searcher_metric=effective["searcher"]["metric"],
            smaller_is_better=effective["searcher"]["smaller_is_better"],
        )
        pending.append(conn, ident, "STARTED")
        if not paused:
            pending.append(conn, ident, "REQUEST", {"action": "activate"})
    return ident


def ask(store: Store, experiment_id: int, kind: str, trial_id: int | None = None, **body: Any) -> None:
    """Add a pending event."""
    with store.write() as conn:
        pending.append(conn, experiment_id, kind, body, trial_id=trial_id)


def states(store: Store, experiment_id: int) -> tuple[str, list[str]]:
    """Return the states of an experiment and of its trials."""
    with store.read() as conn:
        row = experiments.get(conn, experiment_id)
        return row.state, [trial.state for trial in trials.of_experiment(conn, experiment_id)]
