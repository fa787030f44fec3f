"""Trials: look at one, its reports and its life; stop or kill."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from determined.server.answers.common import Outcomes
from determined.server.answers.trials import Reports, Timeline, TrialAnswer, TrialBulk
from determined.server.depends import Client
from determined.server.paging import Limit, Offset
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["trials"])


@router.get("/trials/{trial_id}", **READS)
def trial(client: Client, trial_id: int) -> TrialAnswer:
    """Return a trial."""
    raise NotImplementedError


@router.post("/trials/actions", **CHANGES)
def act(client: Client, asked: TrialBulk) -> Outcomes:
    """Stop trials at their next checkpoint, or kill them."""
    raise NotImplementedError


@router.get("/trials/{trial_id}/reports", **READS)
def reports(
    client: Client,
    trial_id: int,
    which: Literal["all", "validation", "checkpoint"] = "all",
    offset: Offset = 0,
    limit: Limit = 100,
) -> Reports:
    """Return what it reported, step by step, the newest first."""
    raise NotImplementedError


@router.get("/trials/{trial_id}/timeline", **READS)
def timeline(client: Client, trial_id: int) -> Timeline:
    """Return the moments of its life: attempts, checkpoints, validations, changes of state."""
    raise NotImplementedError
