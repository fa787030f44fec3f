"""Close the SQLite connections that a forked child inherits, before it opens its own.

SQLite counts the locks of a process in memory. A child that opens the file beside an inherited connection believes
that it holds a lock which only its parent holds, and whoever closes the file last then removes the log that the child
still writes to: its rows are lost. Closing what was inherited first brings the count back to what is true.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from determined import errors

_left_to_parents: list[object] = []  # not closed here: the parent is in the middle of something with them
_all: weakref.WeakSet[OpenConnections] = weakref.WeakSet()


class OpenConnections:
    """The SQLite connections of one engine, and which of them are at work. Needs no lock, so a fork cannot break it."""

    def __init__(self, engine: sa.Engine, path: Path) -> None:
        self._pid = os.getpid()
        self._path = path
        self._idle: dict[int, sqlite3.Connection] = {}
        self._busy: dict[int, sqlite3.Connection] = {}
        sa.event.listen(engine, "connect", lambda connection, _: self._work(connection))
        sa.event.listen(engine, "checkout", lambda connection, *_: self._work(connection))
        sa.event.listen(engine, "checkin", lambda connection, _: self._rest(connection))
        sa.event.listen(engine, "close", lambda connection, _: self._forget(connection))
        sa.event.listen(engine, "close_detached", self._forget)
        _all.add(self)

    def let_go(self) -> None:
        """Close what was inherited. From now on this is about the connections that the child opens."""
        for connection in list(self._idle.values()):
            connection.close()
        self._idle.clear()
        if self._busy:
            _left_to_parents.extend(self._busy.values())
            raise errors.StoreUnavailable(
                f"The store {self._path} cannot be used in this process: it was forked while a thread used the store. "
                "Start it with the spawn method instead."
            )
        self._pid = os.getpid()

    def _work(self, connection: Any) -> None:
        self._busy[id(connection)] = connection
        self._idle.pop(id(connection), None)

    def _rest(self, connection: Any) -> None:
        if connection is not None:  # None: it broke while at work
            self._idle[id(connection)] = connection
            self._busy.pop(id(connection), None)

    def _forget(self, connection: Any) -> None:
        self._idle.pop(id(connection), None)
        self._busy.pop(id(connection), None)


def let_go_of_inherited(path: Path) -> None:
    """In a child, before it opens a file: close the connections to it that came with the fork."""
    for connections in list(_all):
        if connections._pid != os.getpid() and connections._path == path:
            connections.let_go()
