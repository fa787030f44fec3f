"""The store itself: how large, whether intact, smaller, elsewhere; and what was deleted, gone for good."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging

from determined.artifacts import Storage
from determined.client._checkpoint import storage_of
from determined.client._files import remove_event_files
from determined.client._session import Session
from determined.errors import CheckpointStateException

logger = logging.getLogger("determined.client")


@dataclasses.dataclass(frozen=True)
class Purged:
    """What is gone for good.

    Args:
        experiments: Ids of the experiments.
        checkpoints: Ids of the checkpoints whose files were removed.
    """

    experiments: list[int]
    checkpoints: list[str]


class StoreCommands:
    """What can be done with a store as a whole. Reached as `Determined.store`.

    Example::

        print(client.connect().store.info())
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._session.store.url

    def purge(self) -> Purged:
        """Remove, with all their files, the experiments that were deleted longer ago than they can be brought back.

        Example::

            client.connect().store.purge().experiments
        """
        return purge(self._session)


def purge(session: Session) -> Purged:
    """Files first, rows then: whoever is interrupted in between finds the rows again."""
    from determined.store import removal

    with session.read() as conn:
        found = removal.condemned(conn)
    if not found.experiment_ids:
        return Purged([], [])
    storages: dict[str, Storage] = {}
    removed = []
    for checkpoint in found.checkpoints:
        key = json.dumps(checkpoint.storage, sort_keys=True)
        with contextlib.suppress(CheckpointStateException):  # nobody knows where its files are
            if key not in storages:
                storages[key] = storage_of(checkpoint.uuid, checkpoint.storage)
            storages[key].delete(checkpoint.uuid)
            removed.append(checkpoint.uuid)
    for directory in found.tensorboard:
        remove_event_files(directory)
    with session.write() as conn:
        gone = removal.purge(conn, found.experiment_ids).experiment_ids
    return Purged(gone, removed)


def purge_quietly(session: Session) -> None:
    """The same on the way, where failing is no reason to stop: the next time tries again."""
    try:
        purge(session)
    except Exception as e:  # noqa: BLE001  storage of all kinds
        logger.warning("Could not remove what was deleted earlier: %s", e)
