"""The one random generator of an experiment: MT19937, bit for bit as numpy's legacy `RandomState(seed)` draws.

The twister itself is the standard library's; what is ours is the seeding, which differs from `random.seed`, and the
draws. numpy is not needed, so a command line that only looks at a search does not load it.
"""

from __future__ import annotations

import base64
import random
import struct
import uuid
from collections.abc import Mapping
from typing import Any

from determined import errors
from determined._types import Json

WORDS = 624
MAX_SEED = 2**32 - 1
MAX_TRIAL_SEED = 2**31 - 1


class Generator:
    """A stream of random numbers that a seed fixes, and that JSON can hold.

    Args:
        seed: 0..2^32-1. The same seed gives the same numbers as `numpy.random.RandomState(seed)`.

    Example::

        generator = Generator(42)
        generator.uniform()         # 0.3745401188473625
        later = Generator.restore(generator.snapshot())
        assert later.uniform() == generator.uniform()
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            raise errors.SearchError(f"The seed is {seed!r}. Use a whole number from 0 to {MAX_SEED}.")
        self._twister = random.Random()
        self._twister.setstate((3, (*_first_words(seed), WORDS), None))

    def word(self) -> int:
        """32 random bits."""
        return self._twister.getrandbits(32)

    def uniform(self) -> float:
        """A double in [0, 1), of 53 bits from two words."""
        return self._twister.random()

    def integer(self, last: int) -> int:
        """Return one of 0..last, all as likely: words masked to the bits of `last`, drawn again until one fits.

        A `last` of 0 draws nothing; one of more than 32 bits draws as many words as it needs, the highest first.
        """
        bits = last.bit_length()
        mask = (1 << bits) - 1
        value = last + 1 if last else 0
        while value > last:
            value = 0
            for _ in range(-(-bits // 32)):
                value = value << 32 | self.word()
            value &= mask
        return value

    def uuid4(self) -> str:
        """A version-4 UUID from four words, little-endian bytes."""
        return str(uuid.UUID(bytes=struct.pack("<4I", *(self.word() for _ in range(4))), version=4))

    def trial_seed(self) -> int:
        """A seed for one trial: 0..2^31-1."""
        return self.integer(MAX_TRIAL_SEED)

    def snapshot(self) -> dict[str, Json]:
        """Return where the stream is, as JSON."""
        *words, position = self._twister.getstate()[1]
        return {"words": base64.b64encode(struct.pack(f"<{WORDS}I", *words)).decode(), "position": position}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Generator:
        """Yield the stream that `snapshot` described."""
        generator = cls(0)
        words = struct.unpack(f"<{WORDS}I", base64.b64decode(state["words"]))
        generator._twister.setstate((3, (*words, state["position"]), None))
        return generator


def _first_words(seed: int) -> list[int]:
    words = [seed]
    for i in range(1, WORDS):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
    return words
