"""Helpers of all tables: look up a row or raise `NotFound`, and turn rows into dataclasses."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from determined import errors

T = TypeVar("T")
UNREGISTER = "Delete its model first with: det model delete NAME; or only the version, with ModelVersion.delete()."
"""What to type when a registered checkpoint was to be deleted."""
_CHUNK = 500  # ids in one statement: databases limit how many there may be


def required(row: T | None, what: str, ident: object, listing: str) -> T:
    """Return the row, or `NotFound` with what to type."""
    if row is None:
        raise errors.NotFound(f"There is no {what} {ident} in this store. List them with: {listing}")
    return row


def build(kind: type[T], row: sa.RowMapping, **more: Any) -> T:
    """Return a dataclass made from the columns of the same names."""
    known = dict(zip(row.keys(), row.values(), strict=True)) | more
    names: Iterable[str] = kind.__dataclass_fields__  # type: ignore[attr-defined]  # kind is always a dataclass
    return kind(**{name: known[name] for name in names if name in known})


def build_all(kind: type[T], names: Iterable[str], found: Iterable[Sequence[Any]]) -> list[T]:
    """Return a dataclass for each row, by columns of these names; fields without a column have their default."""
    where = {name: index for index, name in enumerate(names)}
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # kind is always a dataclass
    constants = tuple(field.default for field in fields)
    pick = operator.itemgetter(*(where.get(field.name, len(where) + index) for index, field in enumerate(fields)))
    return [kind(*pick((*row, *constants))) for row in found]


def insert(conn: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> int:
    """Add a row and return its id."""
    key = conn.execute(table.insert(), dict(row)).inserted_primary_key
    assert key is not None
    return int(key[0])


def lock_name(conn: sa.Connection, name: str) -> None:
    """Let one transaction at a time look for what has this name and add it. SQLite has one writer in any case."""
    if conn.dialect.name == "postgresql":
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(name, 0))))


def chunks(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the ids, a statement's worth at a time."""
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def check_fields(what: str, given: Iterable[str], known: frozenset[str]) -> None:
    """Refuse to change columns that are kept by the store itself."""
    if unknown := sorted(set(given) - known):
        raise errors.InvalidValue(f"{unknown[0]!r} of {what} cannot be set. Settable are: {', '.join(sorted(known))}.")


def ordering(
    columns: Mapping[str, sa.ColumnElement[Any]], sort_by: str, descending: bool, ident: sa.ColumnElement[Any]
) -> list[sa.ColumnElement[Any]]:
    """Return an order by one column, missing values last either way, then by id so that pages do not overlap."""
    if sort_by not in columns:
        raise errors.InvalidValue(f"Cannot sort by {sort_by!r}. Choose one of: {', '.join(columns)}.")
    column = columns[sort_by]
    if column is ident:
        return [ident.desc() if descending else ident.asc()]
    return [(column.desc() if descending else column.asc()).nulls_last(), ident.desc() if descending else ident.asc()]
