"""Seeds derived from a key, so that random numbers of a batch do not depend on what was drawn before.

A key is a few words and numbers, such as ("batch", seed, epoch, position). Nothing here has state.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def digest(*key: int | str, size: int = 32) -> bytes:
    """Return `size` bytes (at most 64) that depend on `key` alone, on any machine and in any release."""
    return hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=size).digest()


def derive_seed(*key: int | str) -> int:
    """Return a seed below 2**63 for `key`."""
    return int.from_bytes(digest(*key, size=8), "little") >> 1


def seed_streams(*key: int | str) -> None:
    """Seed the process's streams of `random`, `numpy` and `torch` (CPU) for `key`. Costs about 10 microseconds."""
    words = digest(*key)
    random.seed(words[:16])
    np.random.seed(int.from_bytes(words[16:20], "little"))  # an array of words would cost five times as much
    # torch.manual_seed() also asks every accelerator, which costs 100 microseconds and has no place in a worker.
    torch.default_generator.manual_seed(int.from_bytes(words[24:32], "little") >> 1)
