"""`context.experimental`: switches that older trials look for there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext


class PyTorchExperimentalContext:
    """Switches reached as `context.experimental`."""

    def __init__(self, parent: PyTorchTrialContext) -> None:
        self._parent = parent
        self.wrap_reducer = parent.wrap_reducer  # born here, and older trials still look here

    def use_amp(self, dtype: torch.dtype | None = None) -> None:
        """Train in mixed precision: scaling, unscaling, autocast and `update()` all happen by themselves.

        Call it before the first `wrap_model`.

        Args:
            dtype: `torch.bfloat16` works on any device, this CPU included. By default float16 on a GPU, and full
                precision on a CPU.
        """
        self._parent.use_amp(dtype)

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow torch's own data loaders; shuffling, sharding, repeating and skipping are then up to you."""
        self._parent.checks_datasets = False

    def disable_auto_to_device(self) -> None:
        """Get batches as the loader made them; `context.to_device(batch)` moves one."""
        self._parent.auto_to_device = False
