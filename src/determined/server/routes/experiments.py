"""Experiments: look at one, edit it, act on one or on many."""

from __future__ import annotations

from fastapi import APIRouter

from determined.server.answers.common import Done, Outcomes
from determined.server.answers.experiments import (
    BulkAction,
    ConfigAnswer,
    Events,
    ExperimentAnswer,
    ExperimentEdit,
)
from determined.server.depends import Client
from determined.server.paging import Limit
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["experiments"])


@router.get("/experiments/{experiment_id}", **READS)
def experiment(client: Client, experiment_id: int) -> ExperimentAnswer:
    """Return an experiment."""
    raise NotImplementedError


@router.patch("/experiments/{experiment_id}", **CHANGES)
def edit(client: Client, experiment_id: int, change: ExperimentEdit) -> Done:
    """Change its name, description, notes or labels."""
    raise NotImplementedError


@router.post("/experiments/actions", **CHANGES)
def act(client: Client, asked: BulkAction) -> Outcomes:
    """Pause, activate, cancel, kill, archive, unarchive, delete or move experiments."""
    raise NotImplementedError


@router.get("/experiments/{experiment_id}/events", **READS)
def events(client: Client, experiment_id: int, before: int | None = None, limit: Limit = 100) -> Events:
    """Return what happened to it, the newest first."""
    raise NotImplementedError


@router.get("/experiments/{experiment_id}/config", **READS)
def config(client: Client, experiment_id: int) -> ConfigAnswer:
    """Return its configuration, as submitted and with all defaults."""
    raise NotImplementedError
