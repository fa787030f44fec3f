"""ExperimentalCoreContext: reports which checkpoints a task works with. May change."""

from __future__ import annotations

from typing import Any

from determined.core.recording.shipper import Shipper
from determined.store.messages import CheckpointUseReport


class ExperimentalCoreContext:
    """Links this task to checkpoints and model versions. Reached as `core_context.experimental`."""

    def __init__(self, shipper: Shipper | None = None) -> None:
        self._shipper = shipper or Shipper()

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Say that this task works with a checkpoint, for example to run inference.

        Args:
            checkpoint: An object with a `uuid`, or the storage id itself.
        """
        self._shipper.put(CheckpointUseReport(_storage_id(checkpoint)))

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Say that this task works with a registered model version.

        Args:
            model_version: An object with `checkpoint`, `model_id` and `model_version`.
        """
        checkpoint = getattr(model_version, "checkpoint", None)
        if checkpoint is None:
            raise ValueError(f"{model_version!r} has no checkpoint, so there is nothing to say it uses.")
        self._shipper.put(
            CheckpointUseReport(_storage_id(checkpoint), model_version.model_id, model_version.model_version)
        )


def _storage_id(checkpoint: Any) -> str:
    uuid = checkpoint if isinstance(checkpoint, str) else getattr(checkpoint, "uuid", None)
    if not uuid:
        raise TypeError(f"{checkpoint!r} is no checkpoint: expected a storage id, or an object with a uuid.")
    return str(uuid)
