"""What runs reported: rows as they were, and curves in as many buckets as a picture needs."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client._listing import frame
from determined.client._session import Session
from determined.store.metrics import rollups

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class TrialMetrics:
    """One report of a trial.

    Args:
        trial_id: Whose.
        trial_run_id: Which attempt of the trial made it.
        steps_completed: After how many batches; None for samples that belong to no step.
        end_time: When it was made.
        metrics: Name to value.
        group: `training`, `validation`, or a group of the user's.
        batch_metrics: The metrics of single batches, if they were asked for.
        window: How many batches the metrics are averages of; None if that was not said.

    Example::

        for report in trial.iter_metrics("validation"):
            print(report.steps_completed, report.metrics["loss"])
    """

    trial_id: int
    trial_run_id: int
    steps_completed: int | None
    end_time: datetime.datetime
    metrics: dict[str, Any]
    group: str
    batch_metrics: list[dict[str, Any]] | None = None
    window: int | None = None

    @property
    def total_batches(self) -> int | None:
        """An older name of `steps_completed`."""
        return self.steps_completed

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, one level deep for the metrics."""
        return {
            "trial_id": self.trial_id,
            "trial_run_id": self.trial_run_id,
            "group": self.group,
            "steps_completed": self.steps_completed,
            "end_time": self.end_time,
            "window": self.window,
            "metrics": self.metrics,
        }


class Metrics:
    """The reports of some trials. Each loop over it reads the store anew, a few rows at a time.

    Example::

        table = trial.metrics("validation").to_pandas()
        table.set_index("steps_completed")["loss"].min()
    """

    def __init__(
        self,
        session: Session,
        trial_ids: Sequence[int],
        group: str | None = None,
        *,
        first: int | None = None,
        last: int | None = None,
        with_batches: bool = False,
    ) -> None:
        self._session = session
        self._trial_ids = list(trial_ids)
        self._group = group
        self._range = {"first": first, "last": last}
        self._with_batches = with_batches

    def __iter__(self) -> Iterator[TrialMetrics]:
        with self._session.read() as conn:
            found = store.metrics.metric_reports.rows(
                conn, self._trial_ids, self._group, with_batches=self._with_batches, **self._range
            )
            for row in found:
                own = (row.metrics, row.group, row.batch_metrics, row.window)
                yield TrialMetrics(row.trial_id, row.attempt, row.steps, row.time, *own)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a row per report, a column per metric, after `trial_id`, `group`, `steps_completed` and `end_time`.

        Example::

            trial.metrics().to_pandas().groupby("group").size()
        """
        return frame(
            {
                "trial_id": report.trial_id,
                "group": report.group,
                "steps_completed": report.steps_completed,
                "end_time": report.end_time,
                **report.metrics,
            }
            for report in self
        )


@dataclasses.dataclass(frozen=True)
class _Series:
    """One metric of one trial as columns of equal length."""

    trial_id: int
    group: str
    name: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per step, one column per list."""
        columns = {name: value for name, value in vars(self).items() if isinstance(value, list)}
        return frame(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


@dataclasses.dataclass(frozen=True)
class Curve(rollups.Envelope, _Series):
    """A metric over the steps, in buckets, as columns: bucket i holds the reports from `steps[i]` to `ends[i]`.

    `min`, `mean` and `max` are of the finite values, None where there is none; `odd` counts NaN and infinities.
    The mean weighs training metrics by the batches that they are averages of; where reports are few enough to be shown
    singly, averages of a few batches, such as the rest of an epoch, are joined with the next.

    Example::

        curve = trial.curve("loss", buckets=200)
        list(zip(curve.steps, curve.mean))
    """


@dataclasses.dataclass(frozen=True)
class Points(rollups.Points, _Series):
    """A metric exactly as it was reported, as columns, in order of steps; `window` is how many batches it averages.

    Example::

        points = trial.points("loss", first=900, last=1000)
        assert len(points.steps) == len(points.value)
    """
