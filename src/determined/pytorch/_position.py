"""Where training is right now. The loop moves it; the context and the gradients answer questions from it."""

from __future__ import annotations

import dataclasses

from determined import errors


@dataclasses.dataclass
class Position:
    """The batch being trained, or trained last. Nothing here is saved: see `_state.Progress` for what is."""

    batch_idx: int | None = None
    epoch_idx: int = 0
    epoch_length: int | None = None
    epoch_shift: int = 0  # of `TrainingStream`, for what counts epochs by batch_idx
    starts_epoch: bool = False
    ends_epoch: bool = False

    def current(self, question: str) -> int:
        """The batch's index; `InternalException` before the first batch, naming the question."""
        if self.batch_idx is None:
            raise errors.InternalException(
                f"{question} has no answer before the first training batch. Ask inside train_batch() or later."
            )
        return self.batch_idx
