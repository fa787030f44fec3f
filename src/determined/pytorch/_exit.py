"""Leaving `fit()` early, from anywhere inside it."""

from __future__ import annotations


class ShouldExit(Exception):
    """Raise it in user code to end `fit()` cleanly, with a checkpoint unless told otherwise.

    Of several ranks, all have to raise it, in the same batch. `context.set_stop_requested(True)` on one stops them all.

    Args:
        skip_exit_checkpoint: Leave without saving.

    Example::

        if batch_idx == 100:
            raise pytorch.ShouldExit(skip_exit_checkpoint=True)
    """

    def __init__(self, skip_exit_checkpoint: bool = False) -> None:
        super().__init__("fit() was asked to end" + (" without a checkpoint" if skip_exit_checkpoint else ""))
        self.skip_exit_checkpoint = skip_exit_checkpoint


_ShouldExit = ShouldExit  # what 0.38 calls it
