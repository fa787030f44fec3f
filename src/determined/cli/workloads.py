"""What a trial did, step by step: its reports and checkpoints of one step brought together in one row."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.client import Checkpoint, Trial


@dataclasses.dataclass
class Workload:
    """All that is known about one step of one trial."""

    trial_id: int
    steps: int
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    training_time: datetime.datetime | None = None
    validation: dict[str, Any] = dataclasses.field(default_factory=dict)
    validation_time: datetime.datetime | None = None
    checkpoint: Checkpoint | None = None

    @property
    def report_time(self) -> datetime.datetime | None:
        """When the last of it was reported."""
        times = [self.training_time, self.validation_time, self.checkpoint.report_time if self.checkpoint else None]
        return max((time for time in times if time is not None), default=None)


def workloads(trial: Trial) -> list[Workload]:
    """The steps at which a trial reported or saved something, in order."""
    found: dict[int, Workload] = {}

    def at(steps: int) -> Workload:
        return found.setdefault(steps, Workload(trial.id, steps))

    for report in trial.metrics("training"):
        step = at(report.steps_completed or 0)
        step.training, step.training_time = report.metrics, report.end_time
    for report in trial.metrics("validation"):
        step = at(report.steps_completed or 0)
        step.validation, step.validation_time = report.metrics, report.end_time
    for checkpoint in trial.all_checkpoints():
        at(checkpoint.steps_completed).checkpoint = checkpoint
    return [found[steps] for steps in sorted(found)]
