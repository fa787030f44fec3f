"""TensorBoards that run on their own."""

from __future__ import annotations

from fastapi import APIRouter

from determined.server.answers.common import Done
from determined.server.answers.tensorboards import NewTensorBoard, TensorBoardAnswer, TensorBoards
from determined.server.depends import Client
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["tensorboards"])


@router.get("/tensorboards", **READS)
def tensorboards(client: Client) -> TensorBoards:
    """Return all of them."""
    raise NotImplementedError


@router.post("/tensorboards", **CHANGES)
def start(client: Client, asked: NewTensorBoard) -> TensorBoardAnswer:
    """Start one on experiments or trials."""
    raise NotImplementedError


@router.delete("/tensorboards/{number}", **CHANGES)
def kill(client: Client, number: int) -> Done:
    """End one."""
    raise NotImplementedError
