"""The controller's lease: which process drives the experiments of this store. There is one row, or none."""

from __future__ import annotations

import dataclasses
import datetime
import os
from typing import Any

import sqlalchemy as sa

from determined import _process
from determined.store.control import pending
from determined.store.messages import now
from determined.store.schema import controllers

NAME = "main"
SILENCE = datetime.timedelta(seconds=60)
"""How long a controller on another machine may be silent before it counts as gone."""


@dataclasses.dataclass(frozen=True)
class ControllerRow:
    """The process that holds the lease."""

    holder: str
    node: str
    pid: int
    process_started: float | None
    started_at: datetime.datetime
    last_beat: datetime.datetime
    launcher: str
    info: dict[str, Any]

    @property
    def is_alive(self) -> bool:
        """Whether the process runs: on this machine by its process id, elsewhere by its last heart-beat."""
        if self.node == _process.this_node():
            return _process.is_alive(self.pid, self.process_started)
        return now() - self.last_beat < SILENCE

    @property
    def environment(self) -> dict[str, str]:
        """The variables that chose its launcher: what another controller needs to find the same trials."""
        return dict(self.info.get("environment") or {})

    @property
    def waiting(self) -> dict[int, str]:
        """Why trials wait for nodes of the cluster, by trial; nothing is known once it is dead."""
        reasons = (self.info.get("waiting") or {}) if self.is_alive else {}
        return {int(trial): reason for trial, reason in reasons.items()}


def current(conn: sa.Connection, *, lock: bool = False) -> ControllerRow | None:
    """Return who holds the lease, dead or alive; with `lock`, nobody takes or leaves it until the transaction ends."""
    query = sa.select(controllers).where(controllers.c.name == NAME)
    row = conn.execute(query.with_for_update() if lock else query).mappings().one_or_none()
    return None if row is None else ControllerRow(**{key: value for key, value in row.items() if key != "name"})


def take(conn: sa.Connection, holder: str, *, launcher: str, info: dict[str, Any] | None = None) -> bool:
    """Take the lease for this process, unless a living one has it. Return whether this process has it now."""
    before = current(conn, lock=True)
    is_given = before is not None and (before.node, before.pid) == (_process.this_node(), os.getpid())
    if before is not None and before.holder != holder and before.is_alive and not (is_given and not before.holder):
        return False
    _set(conn, holder, os.getpid(), launcher, info or {})
    return True


def give(conn: sa.Connection, pid: int, info: dict[str, Any] | None = None) -> None:
    """Keep the lease for a process that was just started, so that nobody starts another before it has taken it."""
    _set(conn, "", pid, "", info or {})


def _set(conn: sa.Connection, holder: str, pid: int, launcher: str, info: dict[str, Any]) -> None:
    conn.execute(controllers.delete().where(controllers.c.name == NAME))
    moment = now()
    row = {
        "name": NAME,
        "holder": holder,
        "node": _process.this_node(),
        "pid": pid,
        "process_started": _process.started(pid),
        "started_at": moment,
        "last_beat": moment,
        "launcher": launcher,
        "info": info,
    }
    conn.execute(controllers.insert().values(row))


def beat(conn: sa.Connection, holder: str, info: dict[str, Any] | None = None) -> bool:
    """Record that the holder is alive. Return False if somebody else has taken the lease."""
    fields: dict[str, Any] = {"last_beat": now()} if info is None else {"last_beat": now(), "info": info}
    mine = sa.and_(controllers.c.name == NAME, controllers.c.holder == holder)
    return conn.execute(controllers.update().where(mine).values(fields)).rowcount == 1


def leave(conn: sa.Connection, holder: str, *, even_with_events: bool = False) -> bool:
    """Give the lease back. Return False, and keep it, if events have come: whoever added them counts on the holder."""
    current(conn, lock=True)
    if not even_with_events and pending.waits(conn):
        return False
    mine = sa.and_(controllers.c.name == NAME, controllers.c.holder == holder)
    conn.execute(controllers.delete().where(mine))
    return True
