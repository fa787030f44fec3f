"""EarlierRuns: the newest checkpoint of this script's earlier runs, and their trial, for a loop of the Core API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from determined._info import ClusterInfo
from determined.core._train import TrainContext
from determined.core.recording.link import Link
from determined.core.recording.shipper import HISTORY_SECONDS, Shipper


class EarlierRuns:
    """Earlier runs of this training: same script, same hyperparameters, same storage.

    Args:
        link: Finds them.
        shipper: Is flushed first, so that the store knows this run's own checkpoints.
        train: Reports which checkpoint the run continues from.
        info: Of a managed trial, which has its checkpoint from there.
    """

    def __init__(self, link: Link, shipper: Shipper, train: TrainContext, info: ClusterInfo | None) -> None:
        self._link = link
        self._shipper = shipper
        self._train = train
        self._trial_info = info if info is not None and info.task_type == "TRIAL" else None
        self._found: str | None = None

    def latest(self, stored: Collection[str]) -> str | None:
        """Return the newest checkpoint of theirs that is still stored; None without one. Asks the store."""
        if self._trial_info is not None:
            return self._trial_info.latest_checkpoint
        if not self._shipper.flush(HISTORY_SECONDS):
            return None
        history = self._link.find_checkpoints("latest", "", True)
        self._found = next((one for one in history.found if one in stored), None) if history else None
        return self._found

    def restored(self, storage_id: str, metadata: Mapping[str, Any]) -> None:
        """Report the checkpoint that the run continues from, unless it has reported metrics already.

        One that `latest()` returned makes it the next attempt of that trial; another one is recorded as its parent's.
        """
        steps = metadata.get("steps_completed")
        if self._trial_info is None and not self._train.has_reported and isinstance(steps, int):
            self._train.note_fit(steps, storage_id, continues=True, joins=storage_id == self._found)
