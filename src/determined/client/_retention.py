"""Removing the checkpoints that a policy does not keep. Which those are is decided in the store's room."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from determined.client._checkpoint import Storages
from determined.client._session import Session

if TYPE_CHECKING:
    from determined.store.checkpoints import CheckpointRow
    from determined.store.upkeep.retention import Policy


@dataclasses.dataclass(frozen=True)
class Retention:
    """What clearing up did, or would do.

    Args:
        removed: The checkpoints whose files are gone now; with `dry_run`, would be.
        in_use: Those that were left alone: somebody reads them, or has registered them meanwhile, or nobody knows where
            their files are.
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
    from determined.store import checkpoints
    from determined.store.upkeep import retention

    with session.read() as conn:
        unwanted = retention.plan(conn, experiment_id, policy)
        sizes = {uuid: checkpoints.get(conn, uuid).size for uuid in unwanted}
    if dry_run:
        return Retention(unwanted, [], sum(sizes.values()), dry_run=True)
    storages = Storages()

    def delete(row: CheckpointRow) -> bool:
        storage = storages.of(row.uuid, row.storage)
        return storage is not None and storage.delete_unread(row.uuid)

    gone, stayed = retention.remove(session.store, unwanted, delete)
    return Retention(gone, stayed, sum(sizes[uuid] for uuid in gone), dry_run=False)
