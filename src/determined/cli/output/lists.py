"""The lists that several commands show: experiments, trials and checkpoints as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from determined.cli.output.table import Column, Table
from determined.cli.output.values import Bytes, Percent

if TYPE_CHECKING:
    from determined.client import Checkpoint, Determined, Experiment, Trial
    from determined.client._compare import Scores

EXPERIMENT = [
    Column("ID"),
    Column("Owner", rank=7),
    Column("Name"),
    Column("Parent ID", rank=8),
    Column("State"),
    Column("Progress", rank=4),
    Column("Started", rank=2),
    Column("Ended", rank=6),
    Column("Resource Pool", rank=9),
    Column("Searcher Metric", rank=3),
    Column("Best", "best_metric"),
    Column("H-Params", "hparams", rank=1),
]
TRIAL = [
    Column("Trial ID"),
    Column("State"),
    Column("H-Params", "hparams"),
    Column("Started", rank=2),
    Column("Ended", rank=4),
    Column("# of Batches", "total_batches"),
    Column("Searcher Metric", rank=1),
    Column("Best", "best_metric"),
]
CHECKPOINT = [
    Column("Trial ID"),
    Column("# of Batches", "steps_completed"),
    Column("State"),
    Column("Validation Metric", rank=1),
    Column("UUID"),
    Column("Resources", rank=3),
    Column("Size", rank=2),
]


def experiments(
    client: Determined,
    found: Sequence[Experiment],
    form: str,
    scores: Scores | None = None,
    *,
    show_project: bool = False,
    show_archived: bool = False,
) -> Table:
    """Make the list of experiments; `scores` replace the best of each. A table has only hyperparameters that differ."""
    from determined.client._compare import differing

    columns = list(EXPERIMENT)
    known = client.experiment_hparams([e.id for e in found])
    chosen: list[dict[str, Any]] = [known.get(e.id, {}) for e in found]
    if form == "table":
        chosen = differing(chosen)
    bests = [(scores.metric, scores.values.get(e.id)) if scores else (e.searcher_metric, e.best_metric) for e in found]
    rows: list[list[Any]] = [
        [e.id, e.owner, e.name, e.parent_id, e.state.value, None if e.progress is None else Percent(e.progress),
         e.start_time, e.end_time, None, *best, hparams]
        for e, best, hparams in zip(found, bests, chosen, strict=True)
    ]  # fmt: skip
    if show_project:
        columns[:0] = [Column("Workspace"), Column("Project")]
        names = {p.id: (w.name, p.name) for w in client.list_workspaces() for p in w.list_projects()}
        rows = [[*names.get(e.project_id, ("", "")), *row] for e, row in zip(found, rows, strict=True)]
    if show_archived:
        columns.append(Column("Archived"))
        rows = [[*row, e.archived] for e, row in zip(found, rows, strict=True)]
    return Table(columns, rows)


def trials(found: Sequence[Trial], *, with_experiment: bool = False) -> Table:
    """Make the list of trials."""
    columns = [*TRIAL[:1], Column("Experiment ID"), *TRIAL[1:]] if with_experiment else TRIAL
    rows: list[list[Any]] = []
    for t in found:
        row = [t.state.value, t.hparams, t.start_time, t.end_time, t.total_batches, t.searcher_metric, t.best_metric]
        rows.append([t.id, t.experiment_id, *row] if with_experiment else [t.id, *row])
    return Table(columns, rows)


def checkpoints(found: Sequence[Checkpoint]) -> Table:
    """Make the list of checkpoints."""
    rows = [
        [c.trial_id, c.steps_completed, c.state.value, c.searcher_metric, c.uuid, sorted(c.resources), Bytes(c.size)]
        for c in found
    ]
    return Table(CHECKPOINT, rows)
