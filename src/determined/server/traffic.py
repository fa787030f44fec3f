"""Who waits for an answer, so that work in the background can go on between them: two threads that compute make each
other slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable

CALM_SECONDS = 0.02  # who asks several things asks the next within this time
BUSY_SECONDS = 0.5  # then work in the background goes on all the same


class Traffic:
    """Which requests wait for their answers, for work in the background that is to go on between them."""

    def __init__(self) -> None:
        self._waiting: set[object] = set()
        self._last = float("-inf")

    def begin(self, request: object) -> None:
        """Note a request."""
        self._waiting.add(request)

    def end(self, request: object) -> None:
        """Note that its answer has begun, or that there is none."""
        self._waiting.discard(request)
        self._last = time.monotonic()

    def wait_for_calm(self, unless: Callable[[], bool]) -> None:
        """Wait until nobody has waited for `CALM_SECONDS`, but no longer than `BUSY_SECONDS`, and not if `unless`."""
        deadline = time.monotonic() + BUSY_SECONDS
        while (now := time.monotonic()) < deadline and (self._waiting or now < self._last + CALM_SECONDS):
            if unless():
                return
            time.sleep(CALM_SECONDS / 10)
