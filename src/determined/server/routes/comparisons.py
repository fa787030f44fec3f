"""Compare trials: only what differs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from determined.server.answers.comparisons import ComparisonAnswer
from determined.server.depends import Client
from determined.server.rules import READS

router = APIRouter(tags=["comparisons"])


@router.get("/compare", **READS)
def compare(
    client: Client,
    trials: Annotated[str, Query(max_length=4000)] = "",
    experiments: Annotated[str, Query(max_length=4000)] = "",
) -> ComparisonAnswer:
    """Compare up to 50 trials, given by id or as the best trial of experiments."""
    raise NotImplementedError
