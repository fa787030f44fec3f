"""Wait for a store that is unavailable for a while: a server that restarts, a file that another process has locked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from determined import errors

T = TypeVar("T")
PAUSE_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)


def when_available(work: Callable[[], T], seconds: float) -> T:
    """Return what `work` returns, called again for so many seconds while the store is unavailable.

    Raises:
        StoreUnavailable: It still is.

    Example::

        rows = when_available(lambda: read_rows(store), seconds=60)
    """
    deadline = time.monotonic() + seconds
    tries = 0
    while True:
        try:
            return work()
        except errors.StoreUnavailable:
            if time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS[min(tries, len(PAUSE_SECONDS) - 1)])
        tries += 1
