"""Fork, continue and search dialogs, with the checks of `det experiment create`."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from determined.server.answers.submissions import (
    Checked,
    Continue,
    Draft,
    Fork,
    SearchForm,
    StartText,
    Submitted,
    Written,
)
from determined.server.depends import Client
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["submissions"])


@router.get("/experiments/{experiment_id}/draft", **READS)
def draft(
    client: Client,
    experiment_id: int,
    purpose: Literal["fork", "continue", "search"] = "fork",
    trial_id: int | None = None,
) -> StartText:
    """Return the text that a dialog starts with; with a trial, its hyperparameters are constants.

    `continue` with a trial is a new experiment that begins with the trial's last checkpoint: it is submitted as a fork.
    """
    raise NotImplementedError


@router.post("/experiments/{experiment_id}/check", **READS)
def check(client: Client, experiment_id: int, draft: Draft) -> Checked:
    """Check a configuration without submitting it."""
    raise NotImplementedError


@router.post("/experiments/{experiment_id}/search-config", **READS)
def search_config(client: Client, experiment_id: int, form: SearchForm) -> Written:
    """Write the configuration of a search from a form."""
    raise NotImplementedError


@router.post("/experiments/{experiment_id}/fork", **CHANGES)
def fork(client: Client, experiment_id: int, asked: Fork) -> Submitted:
    """Submit its code again, as a new experiment."""
    raise NotImplementedError


@router.post("/experiments/{experiment_id}/continue", **CHANGES)
def continue_experiment(client: Client, experiment_id: int, asked: Continue) -> Submitted:
    """Let it go on after its end."""
    raise NotImplementedError
