"""`det experiment describe`: tables of experiments, of their trials, and of their steps."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import Percent, show_json

if TYPE_CHECKING:
    from determined.client import Checkpoint, Experiment, Trial


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
    """Return the steps at which a trial reported or saved something, in order."""
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


EXPERIMENT = ["Experiment ID", "State", "Progress", "Started", "Ended", "Name", "Description", "Archived",
              "Resource Pool", "Labels", "Searcher Metric", "Best", "Notes", "Reason"]  # fmt: skip
TRIAL = ["Trial ID", "Experiment ID", "State", "Started", "Ended", "H-Params", "# of Batches", "Best", "Restarts",
         "Reason"]  # fmt: skip
WORKLOAD = ["Trial ID", "# of Batches", "State", "Report Time", "Checkpoint", "Checkpoint Time", "Validation",
            "Validation Time"]  # fmt: skip
RANKS = {"Validation Time": 9, "Checkpoint Time": 8, "Ended": 6, "Restarts": 5, "Started": 4, "Experiment ID": 3}
FILES = ("experiments.csv", "trials.csv", "workloads.csv")


def show(found: Sequence[Experiment], *, with_metrics: bool, form: str, outdir: str | None) -> None:
    """Show experiments as three tables, as one JSON document, or write three files."""
    trials = [trial for experiment in found for trial in experiment.list_trials()]
    steps = [step for trial in trials for step in workloads(trial)]
    tables = [_experiments(found), _trials(trials), _workloads(steps, with_metrics=with_metrics)]
    if outdir:
        Path(outdir).mkdir(parents=True, exist_ok=True)
        for name, table in zip(FILES, tables, strict=True):
            (Path(outdir) / name).write_text(table.to_csv(), encoding="utf-8")
            terminal.say(f"Wrote {Path(outdir) / name}")
    elif form == "json":
        show_json(dict(zip(("experiments", "trials", "workloads"), (t.records() for t in tables), strict=True)))
    else:
        for i, table in enumerate(tables):
            if i:
                terminal.write("\n")
            table.show(form)


def _experiments(found: Sequence[Experiment]) -> Table:
    rows = [
        [e.id, str(e.state), None if e.progress is None else Percent(e.progress), e.start_time, e.end_time, e.name,
         e.description, e.archived, None, sorted(e.labels or ()), e.searcher_metric, e.best_metric, e.notes,
         e.state_reason or None]
        for e in found
    ]  # fmt: skip
    return Table([Column(title) for title in EXPERIMENT], rows, "Experiment", is_description=True)


def _trials(found: Sequence[Trial]) -> Table:
    rows = [
        [t.id, t.experiment_id, str(t.state), t.start_time, t.end_time, t.hparams, t.total_batches, t.best_metric,
         t.restarts, t.state_reason or None]
        for t in found
    ]  # fmt: skip
    return Table([Column(title, rank=RANKS.get(title, 0)) for title in TRIAL], rows, "Trials")


def _workloads(steps: Sequence[Workload], *, with_metrics: bool) -> Table:
    names = [
        (kind, name)
        for kind in ("training", "validation")
        for name in sorted({name for step in steps for name in getattr(step, kind)})
        if with_metrics
    ]
    columns = [*WORKLOAD, *(f"{kind.capitalize()} Metric: {name}" for kind, name in names)]
    rows = [[*_step(step), *(getattr(step, kind).get(name) for kind, name in names)] for step in steps]
    ranks = {**RANKS, "State": 7}
    return Table([Column(title, rank=ranks.get(title, 0)) for title in columns], rows, "Workloads")


def _step(step: Workload) -> list[Any]:
    checkpoint = step.checkpoint
    saved = (str(checkpoint.state), checkpoint.report_time) if checkpoint else (None, None)
    validated = "COMPLETED" if step.validation else None
    return [step.trial_id, step.steps, "COMPLETED", step.report_time, *saved, validated, step.validation_time]
