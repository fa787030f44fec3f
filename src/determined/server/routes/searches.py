"""What a search found: learning curves, hyperparameters against the metric, importance, rungs."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from determined.client import Determined, Experiment
from determined.client._listing import section
from determined.client._search.results import Hyperparameter, Result, SearchResults, learning_curves
from determined.client.following.replay import Climb, Ladder
from determined.errors import InvalidValue, NotFound
from determined.server.answers.experiments import (
    HyperparameterAnswer,
    LearningCurveAnswer,
    LearningCurves,
    RungAnswer,
    Rungs,
    RungTrial,
    SearchAnswer,
    SearchResult,
)
from determined.server.depends import Client
from determined.server.recent import Recent
from determined.server.rules import READS

if TYPE_CHECKING:
    from determined.client._search.importance import Importance
    from determined.experiment.search.rung_table import RungRow

router = APIRouter(tags=["searches"])

MOST_RESULTS = 1000
MOST_CURVES = 200
POINTS = 200  # of one curve

_importances: Recent[Importance] = Recent(16)
_climbs: Recent[tuple[threading.Lock, Climb]] = Recent(8)


@router.get("/experiments/{experiment_id}/curves", **READS)
def curves(
    client: Client,
    experiment_id: int,
    metric: str | None = None,
    top: Annotated[int, Query(ge=1, le=MOST_CURVES)] = 10,
    trials: Annotated[str, Query(max_length=4000)] = "",
) -> LearningCurves:
    """Return the metric of the top trials, or of those with the ids in `trials`; at most 200 points each."""
    experiment = client.get_experiment(experiment_id)
    wanted = _ids(trials)
    try:
        found = experiment.search_results(metric)
    except NotFound as reason:
        return LearningCurves(
            metric=metric or "",
            smaller_is_better=experiment.smaller_is_better,
            curves=[],
            trials_total=experiment.trial_count,
            is_by_length=False,
            said=str(reason),
        )
    chosen = found.top(top) if not wanted else [result for result in found.results if result.trial_id in wanted]
    shown = learning_curves(experiment, [result.trial_id for result in chosen], found.metric, buckets=POINTS)
    answers = [
        LearningCurveAnswer(
            trial_id=result.trial_id,
            steps=curve.steps,
            epochs=[_finite(value) for value in curve.epochs],
            time=curve.time,
            value=[_finite(value) for value in curve.value],
            points=curve.points,
            hparams=_differing(result, found.hyperparameters),
            best=result.value,
            state=result.state,
        )
        for result in chosen
        if (curve := shown.get(result.trial_id)) is not None
    ]
    return LearningCurves(
        metric=found.metric,
        smaller_is_better=found.smaller_is_better,
        curves=answers,
        trials_total=len(found.results),
        is_by_length=found.is_stopping,
        said="",
    )


def _ids(text: str) -> set[int]:
    try:
        found = {int(part) for part in text.split(",") if part.strip()}
    except ValueError:
        raise InvalidValue(
            f"trials is {text[:50]!r}; expected ids of trials with commas between, such as 3,5."
        ) from None
    if len(found) > MOST_CURVES:
        raise InvalidValue(f"trials names {len(found)} trials; at most {MOST_CURVES} are drawn. Choose fewer.")
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _differing(result: Result, names: Sequence[Hyperparameter]) -> dict[str, object]:
    return {each.name: result.hparams[each.name] for each in names if each.name in result.hparams}


@router.get("/experiments/{experiment_id}/search", **READS)
def search(
    client: Client,
    experiment_id: int,
    metric: str | None = None,
    steps: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    margin: Annotated[float, Query(ge=0, le=100)] = 10.0,
) -> SearchAnswer:
    """Return hyperparameters and metric of all trials.

    The value of a trial is its best, or the one at `steps`, give or take `margin` percent.
    """
    from determined.client._search.importance import FEWEST_TRIALS, importance  # loads numpy

    experiment = client.get_experiment(experiment_id)
    try:
        found = experiment.search_results(metric, steps=steps, margin=margin)
    except NotFound as reason:
        return SearchAnswer(
            metric=metric or "",
            smaller_is_better=experiment.smaller_is_better,
            hyperparameters=[],
            results=[],
            trials_total=experiment.trial_count,
            is_uncertain=True,
            said=str(reason),
            steps=steps,
        )
    measured = tuple((result.trial_id, result.value) for result in found.measured)
    weighed = _importances.get(client, (experiment_id, found.metric, measured), lambda: importance(found))
    is_measured = len(found.measured) >= FEWEST_TRIALS
    return SearchAnswer(
        metric=found.metric,
        smaller_is_better=found.smaller_is_better,
        hyperparameters=[_hyperparameter(each, weighed if is_measured else None) for each in found.hyperparameters],
        results=[_result(result, found.hyperparameters) for result in found.results[:MOST_RESULTS]],
        trials_total=len(found.results),
        is_uncertain=weighed.is_uncertain,
        said=_why_empty(experiment, found, margin),
        steps=steps,
    )


def _why_empty(experiment: Experiment, found: SearchResults, margin: float) -> str:
    """Return why there is nothing to compare; empty if there is something."""
    if not found.measured:
        where = "" if found.steps is None else f" within {margin:g} % of step {found.steps:,}"
        return f"No trial of experiment {experiment.id} has a finite {found.metric}{where}."
    if not found.hyperparameters:
        return (
            f"All trials of experiment {experiment.id} have the same hyperparameters, so there is nothing to compare."
        )
    return ""


def _hyperparameter(each: Hyperparameter, weighed: Importance | None) -> HyperparameterAnswer:
    return HyperparameterAnswer(
        name=each.name,
        categories=list(each.categories),
        is_log=each.is_log,
        is_whole=each.is_whole,
        importance=None if weighed is None else weighed.shares[each.name],
    )


def _result(result: Result, names: Sequence[Hyperparameter]) -> SearchResult:
    return SearchResult(
        trial_id=result.trial_id,
        hparams=_differing(result, names),
        value=result.value,
        batches=result.batches,
        state=result.state,
        is_stopped=result.is_stopped,
    )


@router.get("/experiments/{experiment_id}/rungs", **READS)
def rungs(client: Client, experiment_id: int) -> Rungs:
    """Return the rungs of an ASHA search, and what stopping early saved."""
    experiment = client.get_experiment(experiment_id)
    ladder = _ladder(client, experiment)
    if not ladder.rows:
        searcher = section(experiment.config, "searcher").get("name") or "none"
        said = f"The search of experiment {experiment_id} ({searcher}) has no rungs."
        return Rungs(rungs=[], batches_trained=0, batches_full=0, saved=0.0, said=said)
    savings = experiment.savings(ladder)
    ids = experiment.trial_ids()
    return Rungs(
        rungs=[_rung(row, ladder, ids) for row in ladder.rows],
        batches_trained=savings.batches_trained,
        batches_full=savings.batches_full,
        saved=savings.share,
        said=str(savings),
    )


def _rung(row: RungRow, ladder: Ladder, ids: dict[str, int]) -> RungAnswer:
    there = [
        RungTrial(
            trial_id=ids[trial.request_id],
            value=trial.value,
            is_stopped_here=trial.is_stopped_here,
            is_waiting=trial.is_waiting,
        )
        for trial in ladder.trials.get((row.bracket, row.rung), ())
        if trial.request_id in ids
    ]
    return RungAnswer(
        bracket=row.bracket,
        rung=row.rung,
        units=f"{row.units:,} {row.time_metric}",
        arrived=row.arrived,
        passed=row.passed,
        stopped=row.stopped,
        waiting=row.waiting,
        best=row.best,
        trials=there,
    )


def _ladder(client: Determined, experiment: Experiment) -> Ladder:
    """Return the rungs of an experiment; of one that was looked at before only new events are read."""
    lock, climb = _climbs.get(client, experiment.id, lambda: (threading.Lock(), Climb(experiment.id)))
    try:
        with lock:
            return experiment.ladder(climb)
    except BaseException:  # it may have read half of something: begin anew the next time
        _climbs.drop(client, experiment.id)
        raise
