"""Home, the queue, slots, the search box, and which server this is."""

from __future__ import annotations

import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from determined.server.answers.common import Done
from determined.server.answers.overview import About, Hits, Home, Queue, QueueChange
from determined.server.depends import Client
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["overview"])


@router.get("/about", **READS)
def about(client: Client) -> About:
    """Say which server and store this is."""
    raise NotImplementedError


@router.get("/home", **READS)
def home(client: Client, since: datetime.datetime | None = None) -> Home:
    """Return what runs now, what ended since a moment (a day ago by default), and what failed."""
    raise NotImplementedError


@router.get("/queue", **READS)
def queue(client: Client) -> Queue:
    """Return the queue, the slots and the controller."""
    raise NotImplementedError


@router.patch("/queue/{experiment_id}", **CHANGES)
def change_queue(client: Client, experiment_id: int, change: QueueChange) -> Done:
    """Change an experiment's place in the queue."""
    raise NotImplementedError


@router.get("/search", **READS)
def search(client: Client, q: Annotated[str, Query(max_length=200)]) -> Hits:
    """Find experiments, trials, models and projects by id or by a part of their names."""
    raise NotImplementedError
