"""Compare trials: only what differs."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from determined import store
from determined.client._compare import SECTIONS, described, differences
from determined.errors import NotFound
from determined.experiment.lifecycle import State, shown_state
from determined.server.answers.comparisons import ComparedTrial, ComparisonAnswer, DifferenceAnswer
from determined.server.depends import StoreSession
from determined.server.reading.asked import numbers
from determined.server.rules import READS
from determined.store.experiments import ExperimentRow
from determined.store.overview import running
from determined.store.trials import TrialRow

if TYPE_CHECKING:
    import sqlalchemy as sa

router = APIRouter(tags=["comparisons"])

MOST = 50


@router.get("/compare", **READS)
def compare(
    session: StoreSession,
    trials: Annotated[str, Query(max_length=4000)] = "",
    experiments: Annotated[str, Query(max_length=4000)] = "",
) -> ComparisonAnswer:
    """Compare up to 50 trials, given by id or as the best trial of experiments."""
    ids, owners = numbers("trials", trials, MOST), numbers("experiments", experiments, MOST)
    with session.read() as conn:
        found = _trials(conn, ids, owners)
        configs = {owner: store.experiments.get(conn, owner) for owner in {row.experiment_id for row in found}}
        attempts = store.attempts.newest(conn, [row.id for row in found])
        launches = running.of_trials(conn, [row.id for row in found])
    states = {row.id: running.states(launches.get(row.id, ())) for row in found}
    known = {row.id: described(row, configs[row.experiment_id].config or {}, attempts.get(row.id)) for row in found}
    differing = differences(known).differences
    keys = {part: {key for sections in known.values() for key in sections[part]} for part in SECTIONS}
    return ComparisonAnswer(
        trials=[_compared(row, configs[row.experiment_id], states[row.id]) for row in found],
        differences=[DifferenceAnswer(**vars(each)) for each in differing],
        equal={part: len(keys[part]) - sum(each.section == part for each in differing) for part in SECTIONS},
        hyperparameters=[each.key for each in differing if each.section == "hparams"],
    )


def _trials(conn: sa.Connection, ids: list[int], experiment_ids: list[int]) -> list[TrialRow]:
    """Return what is compared, in the order given; what was deleted meanwhile is left out."""
    best = store.trials.best_ids(conn, experiment_ids) if experiment_ids else {}
    wanted = list(dict.fromkeys([*ids, *(best[each] for each in experiment_ids if each in best)]))[:MOST]
    found = store.trials.get_many(conn, wanted)
    if not found:
        raise NotFound("None of these trials is in this store. Choose two or more in the table of runs.")
    return found


def _compared(row: TrialRow, owner: ExperimentRow, live: list[str]) -> ComparedTrial:
    end = row.end_time or datetime.datetime.now(datetime.timezone.utc)
    return ComparedTrial(
        id=row.id,
        experiment_id=owner.id,
        experiment=owner.name,
        state=shown_state(State.ACTIVE, live) if row.state == "ACTIVE" else row.state,
        batches=row.total_batches,
        best_metric=row.searcher_metric_value,
        searcher_metric=owner.searcher_metric,
        smaller_is_better=owner.smaller_is_better,
        checkpoint_count=row.checkpoint_count,
        start_time=row.start_time,
        seconds=(end - row.start_time).total_seconds(),
    )
