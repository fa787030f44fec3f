"""A store as a whole: its size, checks, vacuum, export and import, and purging what was deleted."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from determined import _home, store
from determined.client._files import Storages, remove_event_files
from determined.client._session import Session
from determined.errors import StorageConfigError, UnsafePath

logger = logging.getLogger("determined.client")


@dataclasses.dataclass(frozen=True)
class Purged:
    """What is gone for good.

    Args:
        experiments: Ids of the experiments.
        checkpoints: Ids of the checkpoints whose files were removed.
        skipped: A sentence per checkpoint that was left alone, because what is recorded of it leads out of its storage.
            Its experiment stays.
    """

    experiments: list[int]
    checkpoints: list[str]
    skipped: list[str] = dataclasses.field(default_factory=list)


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

    def info(self) -> dict[str, Any]:
        """Return where it is, its size, and the number of rows.

        Example::

            client.connect().store.info()["counts"]["experiments"]
        """
        return dataclasses.asdict(store.upkeep.checks.info(self._session.store))

    def check(self, *, files: bool = False) -> list[str]:
        """Return everything that is wrong with it, one sentence each; an empty list if nothing is. Nothing is changed.

        Args:
            files: Also look whether the files of all complete checkpoints are there.

        Example::

            assert client.connect().store.check() == []
        """
        path = self._session.place.path
        if path is not None and path.exists() and (broken := store.upkeep.checks.check_file(path)):
            return broken  # it might not even open
        found = store.upkeep.checks.check(self._session.store)
        return [*found, *_missing_files(self._session)] if files else found

    def vacuum(self) -> tuple[int, int]:
        """Remove for good what was deleted long enough ago, and give the space back. Others wait meanwhile.

        Returns:
            Bytes before and after.

        Example::

            before, after = client.connect().store.vacuum()
        """
        self.purge()
        return store.upkeep.checks.vacuum(self._session.store)

    def export(
        self,
        path: str | os.PathLike[str],
        experiment_ids: Sequence[int] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Write experiments, with all that is recorded of them, to a file that any store can take in.

        Files of checkpoints stay where they are; the file says where.

        Args:
            path: The file. It appears when it is complete.
            experiment_ids: Which; all by default.
            progress: Told how many are written and how many there are, at the end.

        Returns:
            How many were written.

        Example::

            client.connect().store.export("runs.det", [7, 8])
        """
        number = store.upkeep.portable.export(self._session.store, path, experiment_ids)
        if progress is not None:
            progress(number, number)
        return number

    def import_(
        self, path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> dict[int, int]:
        """Take in the experiments of a file under new ids. What is here already is left as it is.

        A store that is not there yet is made, so this is also the way to move one, to PostgreSQL for example.

        Args:
            path: What `export` wrote.
            progress: Told how many came in and how many there were, at the end.

        Returns:
            New ids by old ones.

        Example::

            client.connect().store.import_("runs.det")
        """
        done = store.upkeep.portable.import_from(self._session.opened(create=True), path)
        if progress is not None:
            progress(len(done.experiments), len(done.experiments) + len(done.skipped))
        return {old: new for old, new in done.experiments.items() if old not in done.skipped}

    def purge(self) -> Purged:
        """Remove, with all their files, the experiments that were deleted longer ago than they can be brought back.

        Example::

            client.connect().store.purge().experiments
        """
        return purge(self._session)


def _missing_files(session: Session) -> Iterator[str]:
    """Yield a sentence per complete checkpoint that has no files."""
    storages = Storages()
    with session.read() as conn:
        rows = store.checkpoints.find(conn, sort_by="time")
    for row in rows:
        try:
            storage = storages.of(row.storage)
            is_missing = storage is not None and not storage.exists(row.uuid)
        except (UnsafePath, StorageConfigError) as e:
            yield f"Checkpoint {row.uuid!a} of trial {row.trial_id} has no place where its files could be: {e}"
            continue
        if storage is not None and is_missing:
            yield f"Checkpoint {row.uuid} of trial {row.trial_id} is COMPLETED, and has no files in {storage.url}."


def purge(session: Session) -> Purged:
    """Remove files, then rows: after an interruption in between, the next purge finds the rows again."""
    from determined.experiment.submission import secret_values

    with session.read() as conn:
        found = store.upkeep.removal.condemned(conn)
    if not found.experiment_ids:
        return Purged([], [])
    storages, removed, skipped, kept = Storages(), [], [], set()
    for checkpoint in found.checkpoints:
        try:
            storage = storages.of(checkpoint.storage)
            if storage is not None:
                storage.delete(checkpoint.uuid)
                removed.append(checkpoint.uuid)
        except (UnsafePath, StorageConfigError) as e:  # nothing of ours, and the rest need not wait for it
            kept.add(checkpoint.experiment_id)
            skipped.append(
                f"Checkpoint {checkpoint.uuid!a} is skipped, and its experiment {checkpoint.experiment_id} stays: {e}"
            )
            logger.warning("%s", skipped[-1])
    for directory in found.tensorboard:
        remove_event_files(directory)
    with session.write() as conn:
        gone = store.upkeep.removal.purge(conn, [i for i in found.experiment_ids if i not in kept])
    for uuid in gone.experiment_uuids:
        secret_values.forget(uuid)
    for sha256 in filter(str.isalnum, gone.code):  # unpacked copies, which `launchers.working_directory` has made
        shutil.rmtree(_home.data_directory() / "code" / sha256, ignore_errors=True)
    return Purged(gone.experiment_ids, removed, skipped)


def purge_quietly(session: Session) -> None:
    """Purge, and log a failure instead of raising: the next purge tries again."""
    try:
        purge(session)
    except Exception as e:  # noqa: BLE001  storage of all kinds
        logger.warning("Could not remove what was deleted earlier: %s", e)
