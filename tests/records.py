"""What the store of a test knows, read in the plainest way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from determined.store import schema
from determined.store.database.connection import Store, open_store
from determined.store.values import load


@contextlib.contextmanager
def opened(place: str | None = None) -> Iterator[Store]:
    """The store, for the length of a block."""
    store = open_store(place)
    try:
        yield store
    finally:
        store.close()


def table(name: str, place: str | None = None) -> list[dict[str, Any]]:
    """All rows of a table, in the order they were made."""
    found = schema.metadata.tables[name]
    order = found.c.get("id", next(iter(found.c)))
    with opened(place) as store, store.read() as conn:
        return [dict(row) for row in conn.execute(sa.select(found).order_by(order)).mappings()]


def reported(group: str, place: str | None = None) -> list[tuple[int, dict[str, Any]]]:
    """The visible metrics of a group: steps and values."""
    visible = (row for row in table("metrics", place) if row["metric_group"] == group and not row["archived"])
    return [(row["steps"], load(row["body"])) for row in visible]


def lines(place: str | None = None) -> list[str]:
    """What was printed."""
    return [row["text"] for row in table("logs", place)]
