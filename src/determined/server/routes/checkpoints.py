"""Checkpoints: list, look at, verify, register, delete."""

from __future__ import annotations

from fastapi import APIRouter

from determined.server.answers.checkpoints import CheckpointAnswer, Checkpoints, Registration, Verified
from determined.server.answers.common import Done
from determined.server.depends import Client
from determined.server.paging import Limit, Offset
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["checkpoints"])


@router.get("/checkpoints", **READS)
def checkpoints(
    client: Client,
    trial_id: int | None = None,
    experiment_id: int | None = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> Checkpoints:
    """Return checkpoints of a trial or an experiment, the newest first."""
    raise NotImplementedError


@router.get("/checkpoints/{uuid}", **READS)
def checkpoint(client: Client, uuid: str) -> CheckpointAnswer:
    """Return a checkpoint with its files."""
    raise NotImplementedError


@router.post("/checkpoints/{uuid}/verify", **READS)
def verify(client: Client, uuid: str) -> Verified:
    """Compare the files with what was saved. Changes nothing."""
    raise NotImplementedError


@router.post("/checkpoints/{uuid}/register", **CHANGES)
def register(client: Client, uuid: str, asked: Registration) -> Done:
    """Make it a version of a model."""
    raise NotImplementedError


@router.delete("/checkpoints/{uuid}", **CHANGES)
def delete(client: Client, uuid: str) -> Done:
    """Delete its files."""
    raise NotImplementedError
