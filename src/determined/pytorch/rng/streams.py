"""The random streams of this process: python's, numpy's, torch's on the CPU and on this process's device."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from determined.pytorch.rng import seeds

logger = logging.getLogger("determined.pytorch")


class RngState:
    """The states of all random streams of this process, to save and load.

    The keys are those that checkpoints have always had. numpy's words are a tensor, which `np.random.set_state` takes
    as well.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every stream. Draws nothing."""
        name, words, *rest = np.random.get_state()
        state: dict[str, Any] = {
            "cpu_rng_state": torch.get_rng_state(),
            "np_rng_state": (name, torch.from_numpy(np.array(words)), *rest),
            "random_rng_state": random.getstate(),
        }
        if (device := device_kind()) is not None:
            state["gpu_rng_state"] = torch.get_device_module(device).get_rng_state()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore every stream. Warn of one that was not saved or does not exist here, and leave it as it is."""
        name, words, *rest = state_dict["np_rng_state"]
        np.random.set_state((name, np.asarray(words, dtype=np.uint32), *rest))
        version, internal, gauss = state_dict["random_rng_state"]
        random.setstate((version, tuple(internal), gauss))
        torch.set_rng_state(state_dict["cpu_rng_state"].cpu())
        device, saved = device_kind(), state_dict.get("gpu_rng_state")
        if device is not None and saved is not None:
            torch.get_device_module(device).set_rng_state(saved.cpu())
        elif device is not None:
            logger.warning("The checkpoint has no random state for a %s device; its stream goes on as it is.", device)
        elif saved is not None:
            logger.warning("The checkpoint has the random state of an accelerator, and there is none here: ignored.")


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Restore all streams after the block, whatever it draws."""
    state = RngState()
    before = state.state_dict()
    try:
        yield
    finally:
        state.load_state_dict(before)


def derive(seed: int, batches_trained: int, rank: int) -> None:
    """Seed the streams from these three alone, for a rank that has no saved state."""
    seeds.seed_streams("resume", seed, batches_trained, rank)
    if (device := device_kind()) is not None:
        torch.get_device_module(device).manual_seed(seeds.derive_seed("resume", "device", seed, batches_trained, rank))


def device_kind() -> str | None:
    """Return the kind of accelerator that this process trains on; None without one."""
    if not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type
