"""The table of experiments and the flat table of trials."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from determined.server.answers.tables import Columns, Kind, Sparks, Table, TableQuestion
from determined.server.depends import Client
from determined.server.rules import READS

router = APIRouter(tags=["tables"])


@router.get("/tables/{kind}/columns", **READS)
def columns(client: Client, kind: Kind, project_id: int | None = None, experiment_id: int | None = None) -> Columns:
    """Return the columns that a table can show."""
    raise NotImplementedError


@router.post("/tables/{kind}/rows", **READS)
def rows(client: Client, kind: Kind, question: TableQuestion) -> Table:
    """Return a page of rows, filtered and sorted."""
    raise NotImplementedError


@router.get("/tables/{kind}/sparks", **READS)
def sparks(client: Client, kind: Kind, ids: Annotated[str, Query(max_length=4000)]) -> Sparks:
    """Return small curves of the searcher metric for the rows with these ids (comma-separated, at most 200)."""
    raise NotImplementedError
