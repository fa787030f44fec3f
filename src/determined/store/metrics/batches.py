"""Metrics of single batches on their way into one value of a row, and back.

A window of training brings a number per metric and batch, a hundred times as many as its averages. Where they come as
arrays they are kept as they are, which costs next to nothing; otherwise as compressed JSON.
"""

from __future__ import annotations

import array
import json
import struct
import sys
import zlib

from determined._redact import redacted
from determined._types import Json
from determined.store import values
from determined.store.messages import Batches, MetricReport

_MARK = b"C1"  # JSON is compressed, and zlib begins otherwise


def pack(batches: Batches | None) -> bytes | None:
    """Return metrics of batches as bytes; None if there are none.

    Example::

        assert unpack(pack([{"loss": 0.5}])) == [{"loss": 0.5}]
    """
    if not batches:
        return None
    if isinstance(batches, dict):
        columns = {name: column for name, column in batches.items() if isinstance(column, array.array)}
        if len(columns) == len(batches):
            return _pack_columns(columns)
        batches = {name: list(column) for name, column in batches.items()}
    return zlib.compress(values.dump(redacted(batches)).encode(), 1)


def unpack(packed: bytes | None) -> list[dict[str, Json]] | None:
    """Return a dict for each batch; None if there were none."""
    if packed is None:
        return None
    batches = _unpack_columns(packed) if packed.startswith(_MARK) else values.load(zlib.decompress(packed))
    return MetricReport("", {}, batch_metrics=batches).batches()


def _pack_columns(columns: dict[str, array.array[float]]) -> bytes:
    head = json.dumps([[name, column.typecode, len(column)] for name, column in columns.items()])
    text = head.encode()
    return b"".join([_MARK, struct.pack("<I", len(text)), text, *map(_little_endian, columns.values())])


def _unpack_columns(packed: bytes) -> Batches:
    start = len(_MARK) + 4
    (length,) = struct.unpack("<I", packed[len(_MARK) : start])
    place = start + length
    columns = {}
    for name, typecode, count in json.loads(packed[start:place]):
        size = array.array(typecode).itemsize * count
        column = array.array(typecode, packed[place : place + size])
        if sys.byteorder == "big":
            column.byteswap()
        columns[name] = column
        place += size
    return dict(columns)


def _little_endian(column: array.array[float]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()
