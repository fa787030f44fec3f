"""Removing the checkpoints that a policy does not keep. Which those are is decided in the store's room."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from determined.artifacts import Storage
from determined.client._checkpoint import storage_of
from determined.client._session import Session
from determined.errors import CheckpointStateException

if TYPE_CHECKING:
    from determined.store.checkpoints import CheckpointRow
    from determined.store.retention import Policy


@dataclasses.dataclass(frozen=True)
class Retention:
    """What clearing up did, or would do.

    Args:
        removed: The checkpoints whose files are gone now; with `dry_run`, would be.
        in_use: Those that were left alone, because somebody reads them or has registered them meanwhile.
        size: Bytes of the removed ones.
        dry_run: Whether it was only a look.

    Example::

        print(experiment.apply_retention(save_trial_best=1, dry_run=True).size)
    """

    removed: list[str]
    in_use: list[str]
    size: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


def apply(session: Session, experiment_id: int, policy: Policy | None, *, dry_run: bool) -> Retention:
    """Remove what a policy does not keep; None is what the experiment's config says."""
    from determined.store import checkpoints, retention

    with session.read() as conn:
        unwanted = retention.plan(conn, experiment_id, policy)
        sizes = {uuid: checkpoints.get(conn, uuid).size for uuid in unwanted}
    if dry_run:
        return Retention(unwanted, [], sum(sizes.values()), dry_run=True)
    gone, stayed = retention.remove(session.store, unwanted, Remover())
    return Retention(gone, stayed, sum(sizes[uuid] for uuid in gone), dry_run=False)


class Remover:
    """Deletes the files of checkpoints that nobody reads, each storage opened once."""

    def __init__(self) -> None:
        self._storages: dict[str, Storage] = {}

    def __call__(self, row: CheckpointRow) -> bool:
        key = json.dumps(row.storage, sort_keys=True)
        try:
            if key not in self._storages:
                self._storages[key] = storage_of(row.uuid, row.storage)
        except CheckpointStateException:  # nobody knows where its files are, so they stay
            return False
        return self._storages[key].delete_unread(row.uuid)
