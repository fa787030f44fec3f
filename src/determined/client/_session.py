"""The store behind a client: opened when it is first needed, and asked now and then which runs have died."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from determined import store
from determined._left_out import ignored_master
from determined.errors import DeterminedError, StoreUnavailable

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.database.connection import Store
    from determined.store.database.location import StorePlace

logger = logging.getLogger("determined.client")

SETTLE_SECONDS = 5.0


class Session:
    """What every object of one client shares.

    Args:
        place: The store, as `open_store` takes it. One that is named has to be there; the default one is made.
        user: Who works here, for what is created; the user of this machine if None.
    """

    def __init__(self, place: str | os.PathLike[str] | None = None, *, user: str | None = None) -> None:
        self._place = place
        self.user = user or _user()
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._settled_at: float | None = None

    @property
    def place(self) -> StorePlace:
        """Where the store is; it may not be open yet."""
        from determined.store.database.location import find_place

        return find_place(self._place)

    @property
    def store(self) -> Store:
        """The open store."""
        return self.opened(create=self._place is None)

    def opened(self, *, create: bool) -> Store:
        """Return the open store; create one that is not there if `create` is set."""
        with self._lock:
            if self._store is None:
                from determined.store.database.connection import open_store  # SQL is not needed to import a client

                if self._place is None and (said := ignored_master()):
                    logger.warning("%s", said)
                self._store = open_store(self._place, create=create)
            return self._store

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a transaction for reading; first mark runs whose process is gone as ended."""
        self._settle()
        with self.store.read() as conn:
            yield conn

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction for writing: all of it is written, or nothing."""
        with self.store.write() as conn:
            yield conn

    def close(self) -> None:
        """Give back what is open. Using the session again opens the same one, whatever DET_STORE says then."""
        with self._lock:
            if self._store is not None:
                self._store.close()

    def _settle(self) -> None:
        now = time.monotonic()
        if self.store.read_only or (self._settled_at is not None and now - self._settled_at < SETTLE_SECONDS):
            return
        self._settled_at = now
        with contextlib.suppress(StoreUnavailable):  # then a run that died shows as running a little longer
            with self.store.read() as conn:
                going = store.experiments.count(
                    conn, store.experiments.ExperimentFilter(states=["RUNNING"], unmanaged=True)
                )
            if going:
                with self.store.write() as conn:
                    store.trials.settle(conn)


class Stored:
    """An object that was read from a store: what it says of itself are the columns of its row that it declares."""

    _RENAMED: ClassVar[dict[str, str]] = {}  # columns whose fields have other names

    def __init__(self, session: Session, row: Any) -> None:
        self._session = session
        self._take(row)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data.

        Example::

            json.dumps(model.to_dict(), default=str)
        """
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def reload(self) -> None:
        """Read the fields again."""
        with self._session.read() as conn:
            self._take(self._row(conn))

    def _take(self, row: Any) -> None:
        named = {self._RENAMED.get(column, column): value for column, value in vars(row).items()}
        self.__dict__.update({name: named[name] for name in type(self).__annotations__ if name in named})

    def _row(self, conn: sa.Connection) -> Any:
        raise NotImplementedError

    def _update(self, conn: sa.Connection, fields: dict[str, Any]) -> None:
        raise NotImplementedError

    def _change(self, **fields: Any) -> None:
        """Set columns, in one transaction; a function is called with the value that is there."""
        with self._session.write() as conn:
            known = self._row(conn)
            new = {name: value(getattr(known, name)) if callable(value) else value for name, value in fields.items()}
            self._update(conn, new)
            row = self._row(conn)
        self._take(row)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without that user
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def place_of(master: str | None, store: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Return the store that `master` or `store` means; None is the default one.

    Example::

        assert place_of(None, "runs.db") == place_of("runs.db", None) == "runs.db"
    """
    if store is not None:
        return store
    if master is not None and master.startswith(("http://", "https://")):
        raise DeterminedError(
            f"{master} is the address of a server, and runs are kept in a store here. "
            "Leave master out, or name a store: Determined(store='runs.db') or Determined(store='postgresql://...')."
        )
    return master
