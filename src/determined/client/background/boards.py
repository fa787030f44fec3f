"""TensorBoards that go on without a terminal: start one on trials; the register lists and ends them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from determined.client.background import board_process, ending, event_files
from determined.client.background.records import EndedEarly, Record, Register
from determined.errors import MissingPackage

if TYPE_CHECKING:
    from determined.client import Trial

REGISTER = Register("tensorboards", "TensorBoard", "det tensorboard")
LINKS = "events"
MOST_PORTS = 5


def check_installed() -> None:
    """Raise `MissingPackage` if there is no TensorBoard."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingPackage("TensorBoard is not installed. Type: pip install 'resolute[tensorboard]'")


def start(
    trials: Sequence[Trial], host: str, port: int | None, *, experiments: Sequence[int], named: Sequence[int]
) -> tuple[int, Record]:
    """Start one that outlives this process, and wait until it answers.

    Args:
        trials: What it shows.
        host: Where it listens.
        port: None is the first free one.
        experiments: Those that were named, for the record.
        named: The trials that were named, for the record.

    Raises:
        EndedEarly: It ended before it answered.
    """
    with REGISTER.claimed({"experiments": list(experiments), "trials": list(named)}) as (number, record):
        links = REGISTER.place(number) / LINKS
        links.mkdir()
        event_files.link(trials, links)
        for _ in range(MOST_PORTS):
            chosen = port or board_process.free_port(host)
            if started := _launch(number, record, host, chosen):
                return number, started
            if port or board_process.free_port(host) == chosen:
                break  # the port was not taken meanwhile: it failed for another reason
        failed = EndedEarly(f"TensorBoard ended before it answered on port {chosen}")
        failed.lines = REGISTER.log_lines(number)
        raise failed


def _launch(number: int, record: Record, host: str, port: int) -> Record | None:
    """Start the process and wait until it answers; None if it ends instead."""
    directory = REGISTER.place(number)
    process = REGISTER.spawn(number, board_process.command(directory / LINKS, host, port))
    try:
        record = record.of_process(process.pid, board_process.address(host, port))
        record.write(directory)
        if not board_process.wait_until_up(process, directory / LINKS, host, port):
            return None
    except BaseException:
        ending.end_family(process.pid)
        process.wait()
        raise
    process.returncode = 0  # it outlives us on purpose, so Popen has nothing to warn of
    return record
