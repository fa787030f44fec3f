"""`det experiment describe`: three tables, of experiments, of their trials, and of what those did at each step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.cli import terminal
from determined.cli.render import Column, Percent, Table, show_json
from determined.cli.workloads import Workload, workloads

if TYPE_CHECKING:
    from determined.client import Experiment, Trial

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
    steps = [(trial, step) for trial in trials for step in workloads(trial)]
    tables = [_experiments(found), _trials(trials), _workloads(steps, with_metrics=with_metrics)]
    if outdir:
        write_files(tables, Path(outdir))
    elif form == "json":
        show_json(dict(zip(("experiments", "trials", "workloads"), (t.records() for t in tables), strict=True)))
    else:
        for i, table in enumerate(tables):
            if i:
                terminal.write("\n")
            table.show(form)


def write_files(tables: Sequence[Table], directory: Path) -> None:
    """Each table as a CSV file."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in zip(FILES, tables, strict=True):
        (directory / name).write_text(table.to_csv(), encoding="utf-8")
        terminal.say(f"Wrote {directory / name}")


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


def _workloads(steps: Sequence[tuple[Trial, Workload]], *, with_metrics: bool) -> Table:
    names = [
        (kind, name)
        for kind in ("training", "validation")
        for name in sorted({name for _, step in steps for name in getattr(step, kind)})
        if with_metrics
    ]
    columns = [*WORKLOAD, *(f"{kind.capitalize()} Metric: {name}" for kind, name in names)]
    rows = [[*_step(step), *(getattr(step, kind).get(name) for kind, name in names)] for _, step in steps]
    ranks = {**RANKS, "State": 7}
    return Table([Column(title, rank=ranks.get(title, 0)) for title in columns], rows, "Workloads")


def _step(step: Workload) -> list[Any]:
    checkpoint = step.checkpoint
    return [
        step.trial_id,
        step.steps,
        "COMPLETED",
        step.report_time,
        str(checkpoint.state) if checkpoint else None,
        checkpoint.report_time if checkpoint else None,
        "COMPLETED" if step.validation else None,
        step.validation_time,
    ]
