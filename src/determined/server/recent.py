"""Results that are dear to make, kept as long as they are asked for: the last few of each kind, per store."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from determined.client import Determined

T = TypeVar("T")


class Recent(Generic[T]):
    """The results that were asked for last. Two that ask for the same at once may both make it; the first is kept.

    Args:
        most: How many are kept of each store.

    Example::

        importances: Recent[Importance] = Recent(16)
        importances.get(client, key, lambda: importance(found))
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._of_clients: weakref.WeakKeyDictionary[Determined, OrderedDict[Hashable, T]] = weakref.WeakKeyDictionary()

    def get(self, client: Determined, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept under a key; make it if there is nothing."""
        with self._lock:
            known = self._of_clients.setdefault(client, OrderedDict())
            if key in known:
                known.move_to_end(key)
                return known[key]
        made = make()
        with self._lock:
            found = known.setdefault(key, made)
            while len(known) > self._most:
                known.popitem(last=False)
        return found

    def drop(self, client: Determined, key: Hashable) -> None:
        """Forget what is kept under a key."""
        with self._lock:
            self._of_clients.get(client, OrderedDict()).pop(key, None)
