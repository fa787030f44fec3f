"""What a search found: learning curves, hyperparameters against the metric, importance, rungs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from determined.server.answers.experiments import LearningCurves, Rungs, SearchAnswer
from determined.server.depends import Client
from determined.server.rules import READS

router = APIRouter(tags=["searches"])


@router.get("/experiments/{experiment_id}/curves", **READS)
def curves(
    client: Client,
    experiment_id: int,
    metric: str | None = None,
    top: Annotated[int, Query(ge=1, le=200)] = 10,
    trials: Annotated[str, Query(max_length=4000)] = "",
) -> LearningCurves:
    """Return the metric of the top trials, or of those with the ids in `trials`; at most 200 points each."""
    raise NotImplementedError


@router.get("/experiments/{experiment_id}/search", **READS)
def search(
    client: Client,
    experiment_id: int,
    metric: str | None = None,
    steps: int | None = None,
    margin: Annotated[float, Query(ge=0, le=100)] = 10.0,
) -> SearchAnswer:
    """Return hyperparameters and metric of all trials.

    The value of a trial is its best, or the one at `steps`, give or take `margin` percent.
    """
    raise NotImplementedError


@router.get("/experiments/{experiment_id}/rungs", **READS)
def rungs(client: Client, experiment_id: int) -> Rungs:
    """Return the rungs of an ASHA search, and what stopping early saved."""
    raise NotImplementedError
