"""Home, the queue, slots, the search box, and which server this is."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request

from determined import store
from determined._version import __version__
from determined.client.following.queue import set_resources
from determined.errors import InvalidValue
from determined.server.answers.common import Done
from determined.server.answers.overview import (
    About,
    ControllerAnswer,
    Hits,
    Home,
    NodeAnswer,
    Queue,
    QueueChange,
    QueuedJob,
    SlotAnswer,
)
from determined.server.depends import Client, Index
from determined.server.reading.finding import hits
from determined.server.reading.home import home as home_of
from determined.server.reading.home import occupied
from determined.server.rules import CHANGES, READS
from determined.store.experiments import ExperimentFilter
from determined.store.messages import now

router = APIRouter(tags=["overview"])


@router.get("/about", **READS)
def about(client: Client, request: Request) -> About:
    """Say which server and store this is."""
    opened = client._session.store
    settings = getattr(request.app.state, "settings", None)
    with client._session.read() as conn:
        known = any(store.experiments.count(conn, ExperimentFilter(deleted=deleted)) for deleted in (False, True))
    return About(
        version=__version__,
        user=client.user,
        store=opened.url,
        is_read_only=opened.read_only or (settings is not None and settings.read_only),
        is_empty=not known,
        time=now(),
    )


@router.get("/home", **READS)
def home(client: Client, index: Index, since: datetime.datetime | None = None) -> Home:
    """Return what runs now, what ended since a moment (a day ago by default), and what failed."""
    return home_of(client, index, since)


@router.get("/queue", **READS)
def queue(client: Client) -> Queue:
    """Return the queue, the slots and the controller."""
    status = dataclasses.asdict(client.controller.status())
    found = occupied(client)
    return Queue(
        jobs=[QueuedJob(**job.to_dict()) for job in client.list_jobs()],
        slots=[SlotAnswer(**slot.to_dict()) for slot in found.slots],
        nodes=[NodeAnswer(**node.to_dict()) for node in found.nodes],
        controller=ControllerAnswer(**{name: status[name] for name in ControllerAnswer.model_fields}),
    )


@router.patch("/queue/{experiment_id}", **CHANGES)
def change_queue(client: Client, experiment_id: int, change: QueueChange) -> Done:
    """Change an experiment's place in the queue."""
    given = change.model_dump(exclude_none=True)
    if not given:
        raise InvalidValue("Nothing says what to change. Send priority, weight or max_slots.")
    changes = {name: None if (name, value) == ("max_slots", 0) else value for name, value in given.items()}
    set_resources(client._session, experiment_id, changes)
    said = ", ".join(f"{name} is {'no limit' if value is None else value}" for name, value in changes.items())
    return Done(said=f"Experiment {experiment_id}: {said}.")


@router.get("/search", **READS)
def search(client: Client, index: Index, q: Annotated[str, Query(max_length=200)]) -> Hits:
    """Find experiments, trials, models and projects by id or by a part of their names."""
    return Hits(hits=hits(client, index, q))
