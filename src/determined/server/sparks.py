"""Small curves that stand in rows of tables: the searcher metric, in as many points as fit a few pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from determined.store.metrics import drawn

if TYPE_CHECKING:
    import sqlalchemy as sa

POINTS = 60


def sparks(conn: sa.Connection, searched: Mapping[int, tuple[int, str]]) -> dict[int, list[float | None]]:
    """Return the curves of several rows; those of trials that have reported nothing are left out.

    Args:
        conn: Where.
        searched: Rows, each with its trial and the validation metric to draw.
    """
    metrics: dict[str, list[int]] = {}
    for trial_id, metric in searched.values():
        metrics.setdefault(metric, []).append(trial_id)
    found = {
        (curve.trial_id, metric): curve.envelope.mean
        for metric, ids in metrics.items()
        for curve in drawn.draw(conn, ids, [("validation", metric)], drawn.Range(buckets=POINTS))
    }
    return {row: found[what] for row, what in searched.items() if what in found}
