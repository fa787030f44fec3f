"""Clear out the checkpoints of an experiment that has ended, as its policy says, in a process of its own.

Deleting may take long, and the controller must not wait for it: `python -m determined.experiment.controller.collect 7`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys

from determined import artifacts
from determined.experiment.controller import start
from determined.store.checkpoints import CheckpointRow
from determined.store.control import pending
from determined.store.control.pending import PendingEvent
from determined.store.database.connection import Store, open_store
from determined.store.upkeep import retention

logger = logging.getLogger("determined.experiment")


class Collections:
    """The processes that clear out checkpoints. What one could not do, the next controller tries once more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._processes: dict[int, tuple[PendingEvent, subprocess.Popen[bytes]]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a process is at work."""
        return bool(self._processes)

    def start(self, told: PendingEvent) -> None:
        """Clear out the checkpoints of an experiment, unless that is under way or there is nothing to clear out."""
        if told.id in self._processes:
            return
        with self._store.read() as conn:
            unwanted = retention.plan(conn, told.experiment_id)
        if not unwanted:
            self._done(told)
            return
        command = [sys.executable, "-m", "determined.experiment.controller.collect", str(told.experiment_id)]
        environment = {**os.environ, "DET_STORE": start.address(self._store)}
        self._processes[told.id] = (told, subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment))

    def poll(self) -> None:
        """Note which processes have ended."""
        for ident, (told, process) in list(self._processes.items()):
            if process.poll() is not None:
                del self._processes[ident]
                if process.returncode != 0:
                    logger.warning(
                        "Checkpoints of experiment %d were not all cleared out; do it with: "
                        "det experiment set gc-policy %d ...", told.experiment_id, told.experiment_id,
                    )  # fmt: skip
                self._done(told)

    def _done(self, told: PendingEvent) -> None:
        with self._store.write() as conn:
            pending.remove(conn, [told.id])


def collect(store: Store, experiment_id: int) -> tuple[list[str], list[str]]:
    """Delete the checkpoints that the experiment's policy does not keep; return those that are gone, and the others."""
    with store.read() as conn:
        unwanted = retention.plan(conn, experiment_id)
    return retention.remove(store, unwanted, _delete_unread)


def _delete_unread(row: CheckpointRow) -> bool:
    return row.storage is not None and artifacts.open_storage(row.storage).delete_unread(row.uuid)


def main() -> int:
    """Clear out the checkpoints of the experiment that the command line names."""
    _, stayed = collect(open_store(), int(sys.argv[1]))
    return 1 if stayed else 0


if __name__ == "__main__":
    sys.exit(main())
