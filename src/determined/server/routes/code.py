"""The code snapshot of an experiment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from determined.server.answers.code import CodeFile, CodeTree
from determined.server.depends import Client
from determined.server.rules import READS

router = APIRouter(tags=["code"])


@router.get("/experiments/{experiment_id}/code", **READS)
def tree(client: Client, experiment_id: int) -> CodeTree:
    """Return the files of its snapshot."""
    raise NotImplementedError


@router.get("/experiments/{experiment_id}/code/file", **READS)
def file(client: Client, experiment_id: int, path: Annotated[str, Query(max_length=2000)]) -> CodeFile:
    """Return the text of one file."""
    raise NotImplementedError


@router.get("/experiments/{experiment_id}/code/download", response_class=Response, **READS)
def download(client: Client, experiment_id: int) -> Response:
    """Return the snapshot as .tar.gz."""
    raise NotImplementedError
