"""Watches the store for changes and tells the open streams: one thread, however many browsers, asleep without any."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import threading
import time
from typing import TYPE_CHECKING

from determined.client._session import Session
from determined.errors import DeterminedError
from determined.store.overview import changes
from determined.store.overview.changes import Change

if TYPE_CHECKING:
    from determined.store.database.connection import Store

logger = logging.getLogger("determined.server")

MOST_LISTENERS = 64
FILE_SECONDS = 0.2  # a file is asked by a PRAGMA; a server by a query
SERVER_SECONDS = 0.5
LOST_SECONDS = 1.0
JOIN_SECONDS = 3.0
FIRST_SECONDS = 5.0  # how long a stream waits for the first look; a store that does not answer takes longer
OTHER_SECONDS = 5.0  # while runs report: an edit that hides behind their rows is seen this late


@dataclasses.dataclass
class News:
    """What one stream has not been told yet."""

    change: Change = dataclasses.field(default_factory=Change)
    is_available: bool | None = None  # None: as before
    reason: str = ""


class Listener:
    """One open stream. What happens while it is not read is merged, so that a slow reader costs nothing."""

    def __init__(self) -> None:
        self._news = News()
        self._woken = asyncio.Event()
        self.is_over = False

    def tell(self, *, change: Change | None = None, available: tuple[bool, str] | None = None) -> None:
        """Add news. Runs in the event loop."""
        if change is not None:
            self._news.change |= change
        if available is not None:
            self._news.is_available, self._news.reason = available
        self._woken.set()

    def end(self) -> None:
        """Let the stream end."""
        self.is_over = True
        self._woken.set()

    async def news(self, seconds: float) -> News | None:
        """Return what is new; None if nothing happens for so long."""
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except asyncio.TimeoutError:
            return None
        self._woken.clear()
        found, self._news = self._news, News()
        return found


class Watcher:
    """Looks at one store, and tells listeners what changed.

    Args:
        session: The store. A connection of its own is opened: its marks mean nothing on another one.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._listeners: set[Listener] = set()
        self._lock = threading.Condition()
        self._is_wanted = False
        self._is_stopped = False
        self._is_edited = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._has_looked = asyncio.Event()
        self._available: tuple[bool, str] = (True, "")
        self._lately: collections.deque[tuple[float, Change]] = collections.deque(maxlen=64)

    def start(self) -> None:
        """Begin; runs in the event loop, to which news are brought."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="det-ui-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all streams and the thread."""
        self.end_streams()
        with self._lock:
            self._is_stopped = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join(timeout=0.3)  # one that hangs in a lost connection ends with the process

    def listen(self) -> Listener | None:
        """Return a new listener; None if there are too many."""
        if len(self._listeners) >= MOST_LISTENERS:
            return None
        listener = Listener()
        self._listeners.add(listener)
        if not self._available[0]:
            listener.tell(available=self._available)
        for moment, change in self._lately:  # a page asks for what it shows a little before it listens
            if time.monotonic() - moment < JOIN_SECONDS:
                listener.tell(change=change)
        self._want()
        return listener

    async def first_look(self) -> None:
        """Wait until the store was looked at once: whatever is stored from then on is told."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._has_looked.wait(), FIRST_SECONDS)

    def leave(self, listener: Listener) -> None:
        """Forget a listener."""
        self._listeners.discard(listener)
        self._want()

    def end_streams(self) -> None:
        """Let all streams end now."""
        self._has_looked.set()
        for listener in list(self._listeners):
            listener.end()

    def end_streams_soon(self) -> None:
        """The same, from a signal handler or another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: there are none
                self._loop.call_soon_threadsafe(self.end_streams)

    def tell_edit(self) -> None:
        """Note that this server has changed something itself."""
        self._is_edited = True

    def _want(self) -> None:
        with self._lock:
            self._is_wanted = bool(self._listeners)
            self._lock.notify()

    def _spread(self, change: Change | None, available: tuple[bool, str] | None) -> None:
        if change is not None:
            self._lately.append((time.monotonic(), change))
        for listener in self._listeners:
            listener.tell(change=change, available=available)

    def _tell(self, change: Change | None = None, available: tuple[bool, str] | None = None) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._spread, change, available)

    def _run(self) -> None:
        looker = _Looker(self._session)
        assert self._loop is not None
        while True:
            pause = self._look(looker)
            if not self._has_looked.is_set():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._has_looked.set)
            with self._lock:
                self._lock.wait_for(lambda: self._is_stopped, timeout=pause)
                self._lock.wait_for(lambda: self._is_stopped or self._is_wanted)
                if self._is_stopped:
                    break
        looker.close()

    def _look(self, looker: _Looker) -> float:
        """Look once, tell, and return how long to wait."""
        edited, self._is_edited = self._is_edited, False
        try:
            change = looker.look(edited=edited)
        except Exception as error:
            if not isinstance(error, DeterminedError):
                logger.warning("Watching the store failed.", exc_info=True)
            self._set_available(False, str(error) or type(error).__name__)
            looker.is_lost = True
            return LOST_SECONDS
        self._set_available(True, "")
        if change:
            self._tell(change=change)
        return looker.pause

    def _set_available(self, is_available: bool, reason: str) -> None:
        if (is_available, reason) != self._available:
            self._available = (is_available, reason)
            self._tell(available=self._available)


class _Looker:
    """What the thread remembers of the store between two looks."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store: Store | None = None
        self._mark: object = None
        self._seen: changes.Marks | None = None
        self._store_id = ""
        self._is_owed = False  # an edit may hide behind rows that were told
        self.is_lost = False
        self._told_at = 0.0

    @property
    def pause(self) -> float:
        return FILE_SECONDS if self._store is not None and self._store.is_sqlite else SERVER_SECONDS

    def look(self, *, edited: bool) -> Change:
        """Return what is new."""
        store = self._opened()
        mark = store.change_mark()
        change = Change()
        if self.is_lost:  # whatever was shown meanwhile may be old
            self._mark, edited = None, True
        if mark != self._mark or not store.is_sqlite:  # a server counts edits a little after they were stored
            is_first = self._seen is None
            change = self._difference(store)
            self._mark = mark
            # A file does not say what was written: beside what is new, something may have been edited. A server does,
            # and experiments are written to all the time while trials report how far they are.
            self._is_owed = self._is_owed or change.other or (store.is_sqlite and not is_first)
        self.is_lost = False
        return self._with_other(change, edited=edited)

    def _with_other(self, change: Change, *, edited: bool) -> Change:
        now = time.monotonic()
        if self._is_owed and now - self._told_at >= OTHER_SECONDS:
            edited = True
        if edited:
            self._is_owed, self._told_at = False, now
        return dataclasses.replace(change, other=edited)

    def _difference(self, store: Store) -> Change:
        with store.read() as conn:
            if self._seen is None or store.id != self._store_id:  # at first, or when another one has its place
                is_first = self._seen is None
                self._seen, self._store_id, self._told_at = changes.marks(conn), store.id, 0.0
                return Change(other=not is_first)
            self._seen, change = changes.since(conn, self._seen)
            return change

    def _opened(self) -> Store:
        if self._store is None:
            from determined.store.database.connection import open_store

            place = self._session.store.place
            self._store = open_store(place.address, create=False)
        return self._store

    def close(self) -> None:
        """Give back the connection."""
        if self._store is not None:
            self._store.close()
