"""The table of experiments and the flat table of trials."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic_core
from fastapi import APIRouter, Query
from fastapi.responses import Response

from determined.server.answers.tables import Columns, Kind, Sparks, Table, TableQuestion
from determined.server.depends import Client, Index
from determined.server.reading.asked import numbers
from determined.server.rules import READS
from determined.server.sparks import sparks as sparks_of

router = APIRouter(tags=["tables"])

MOST_SPARKS = 200


@router.get("/tables/{kind}/columns", response_model=Columns, **READS)
def columns(index: Index, kind: Kind, project_id: int | None = None, experiment_id: int | None = None) -> Response:
    """Return the columns that a table can show."""
    return _as_json(index.columns(kind, project_id, experiment_id))


@router.post("/tables/{kind}/rows", response_model=Table, **READS)
def rows(index: Index, kind: Kind, question: TableQuestion) -> Response:
    """Return a page of rows, filtered and sorted."""
    return _as_json(index.rows(kind, question))


@router.get("/tables/{kind}/sparks", **READS)
def sparks(client: Client, index: Index, kind: Kind, ids: Annotated[str, Query(max_length=4000)]) -> Sparks:
    """Return small curves of the searcher metric for the rows with these ids (comma-separated, at most 200)."""
    searched = index.searched(kind, numbers("ids", ids, MOST_SPARKS))
    with client._session.read() as conn:
        return Sparks(sparks=sparks_of(conn, searched))


def _as_json(answer: dict[str, Any]) -> Response:
    """Write an answer as it is: it has thousands of cells, and looking at each again would take most of the time."""
    return Response(pydantic_core.to_json(answer, inf_nan_mode="strings"), media_type="application/json")
