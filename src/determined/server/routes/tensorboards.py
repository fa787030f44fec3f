"""TensorBoards that run on their own."""

from __future__ import annotations

from fastapi import APIRouter

from determined.client.background import boards, event_files
from determined.client.background.records import EndedEarly, Record
from determined.errors import InvalidValue, MissingPackage, Refused
from determined.server.answers.common import Done
from determined.server.answers.tensorboards import NewTensorBoard, TensorBoardAnswer, TensorBoards
from determined.server.depends import Client
from determined.server.rules import CHANGES, READS

router = APIRouter(tags=["tensorboards"])

HOST = "127.0.0.1"  # whatever the page's own is: TensorBoard asks nobody for a token


@router.get("/tensorboards", **READS)
def tensorboards(client: Client) -> TensorBoards:  # noqa: ARG001
    """Return all of them."""
    found = [_answer(number, record) for number, record in boards.REGISTER.found().items()]
    try:
        boards.check_installed()
    except MissingPackage as missing:
        return TensorBoards(tensorboards=found, said=str(missing))
    return TensorBoards(tensorboards=found, said="")


@router.post("/tensorboards", **CHANGES)
def start(client: Client, asked: NewTensorBoard) -> TensorBoardAnswer:
    """Start one on experiments or trials."""
    if not asked.experiments and not asked.trials:
        raise InvalidValue("TensorBoard needs something to show. Name experiments or trials.")
    boards.check_installed()
    trials, _ = event_files.find_trials(client, asked.experiments, asked.trials)
    try:
        number, record = boards.start(trials, HOST, None, experiments=asked.experiments, named=asked.trials)
    except EndedEarly as failed:
        last = next((line.strip() for line in reversed(failed.lines) if line.strip()), "it printed nothing")
        raise Refused(f"{failed}: {last}") from failed
    return _answer(number, record)


@router.delete("/tensorboards/{number}", **CHANGES)
def kill(client: Client, number: int) -> Done:  # noqa: ARG001
    """End one."""
    was_alive = boards.REGISTER.end(number, boards.REGISTER.get(number))
    return Done(said=f"TensorBoard {number} {'is ended' if was_alive else 'had ended already'}.")


def _answer(number: int, record: Record) -> TensorBoardAnswer:
    return TensorBoardAnswer(
        id=number, address=record.address, is_alive=record.is_alive, started=record.began, pid=record.pid,
        experiments=record.about.get("experiments", []), trials=record.about.get("trials", []),
    )  # fmt: skip
