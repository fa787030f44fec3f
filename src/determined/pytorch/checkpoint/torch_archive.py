"""The archive that `torch.save` writes, checked before anything of it is unpacked.

It is a zip file whose records are stored as they are, each with a CRC-32. torch looks at none of these checksums. Here
all of them are compared, and so is what the file says twice about each record; whatever torch writes always in the same
way has to be so. A file of torch before 1.6 is no archive and has no checksums.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from determined.artifacts import open_plain
from determined.errors import CheckpointDamaged

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_FIRST = b"PK\x03\x04"
_STREAMED = 8  # the flag of a record whose checksum and size follow it
_FULL = 0xFFFFFFFF  # stands for a number that needs 64 bits and is elsewhere
_CHUNK = 1 << 20


class _Record(NamedTuple):
    name: bytes
    twice: tuple[int, ...]  # version, flags, method, time, date
    once: tuple[int, ...]  # what nobody repeats: who wrote it, and attributes
    crc: int
    size: int
    start: int


class _Wrong(ValueError):
    """The archive is damaged. The message is the end of a sentence that begins with "it"."""


def check_archive(path: Path, *, contents: bool) -> None:
    """Refuse a file that would unpack to more than it has, or that is not whole. An older torch's is left alone.

    Args:
        path: The file.
        contents: Also compare every checksum, and all there is between the records. Reads the file once, in pieces.

    Raises:
        CheckpointDamaged: With the reason.
    """
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not _is_archive(file, size):
                return
            records, end = _directory(file, size)
            if contents:
                _check_contents(file, records, end)
    except (_Wrong, struct.error, OSError, ValueError) as wrong:
        said = str(wrong) if isinstance(wrong, _Wrong) else f"cannot be read: {wrong}"
        raise CheckpointDamaged(f"{path} is damaged: it {said}. Use another checkpoint.") from wrong


def _is_archive(file: BinaryIO, size: int) -> bool:
    first = file.read(len(_FIRST))
    if _FIRST.startswith(first):  # whole, or cut off
        return True
    if size > _END.size and _at(file, size - _END.size, 4) == b"PK\x05\x06":
        raise _Wrong("ends like an archive, and does not begin like one")
    return False


def _directory(file: BinaryIO, size: int) -> tuple[list[_Record], int]:
    """Return the records in their order, and where the last one ends; reads the end of the file only."""
    if size < _END.size:
        raise _Wrong(f"has {size} bytes and no end")
    end = _END.unpack(_at(file, size - _END.size, _END.size))
    if end[0] != b"PK\x05\x06" or end[7] or end[1:3] != (0, 0):
        raise _Wrong("has no end, so it was cut off or changed")
    before = size - _END.size
    count, length, start = end[4:7]
    located = _at(file, max(0, before - _LOCATOR.size), _LOCATOR.size)
    if located.startswith(b"PK\x06\x07"):
        _, disk, place, disks = _LOCATOR.unpack(located)
        large = _END64.unpack(_at(file, place, _END64.size))
        count, length, start = large[7:]
        fixed = (b"PK\x06\x06", _END64.size - 12, 0x31E, 45, 0, 0, count)
        if large[:7] != fixed or (disk, disks) != (0, 1) or place != before - _LOCATOR.size - _END64.size:
            raise _Wrong("has another end than torch writes")
        before = place
    if end[3:7] != (min(count, 0xFFFF), min(count, 0xFFFF), min(length, _FULL), min(start, _FULL)):
        raise _Wrong("contradicts itself about its records")
    if start + length != before:
        raise _Wrong("has something between its records and its end")
    records = _records(_at(file, start, length), count)
    if sum(record.size for record in records) > start:
        raise _Wrong(f"would unpack to {sum(record.size for record in records)} bytes, and has {size}")
    return sorted(records, key=lambda record: record.start), start


def _records(listed: bytes, count: int) -> list[_Record]:
    found: list[_Record] = []
    place = 0
    for _ in range(count):
        one = _CENTRAL.unpack_from(listed, place)
        signature, made, needed, flags, method, time, date, crc, packed, size = one[:10]
        named, extra, comment, disk, internal, external, start = one[10:]
        place += _CENTRAL.size
        name, more = listed[place : place + named], listed[place + named : place + named + extra]
        place += named + extra
        size, packed, start = _large(more, size, packed, start)
        if signature != b"PK\x01\x02" or comment or disk:
            raise _Wrong(f"has an entry that torch does not write, number {len(found)}")
        if method or packed != size:
            raise _Wrong(f"has a compressed record {_shown(name)} of {size} bytes, and torch.save() compresses nothing")
        twice, once = (needed, flags, method, time, date), (made, internal, external)
        found.append(_Record(name, twice, once, crc, size, start))
    if place != len(listed):
        raise _Wrong("lists more than it says")
    return found


def _large(extra: bytes, *values: int) -> list[int]:
    """Return the values, with those of 64 bits taken from the extra field."""
    wide = [value for value in values if value == _FULL]
    if not wide and not extra:
        return list(values)
    if extra[:4] != struct.pack("<2H", 1, len(extra) - 4) or len(extra) != 4 + 8 * len(wide):
        raise _Wrong("has a field that torch does not write")
    numbers = iter(struct.unpack(f"<{len(wide)}Q", extra[4:]))
    return [next(numbers) if value == _FULL else value for value in values]


def _check_contents(file: BinaryIO, records: list[_Record], end: int) -> None:
    """Read all records in order: each has to begin where the one before it ends, and to match the directory."""
    has_checksums = any(record.crc for record in records)  # torch can be told to leave them out
    place = 0
    for record, following in zip(records, [*(other.start for other in records[1:]), end], strict=True):
        if record.start != place or record.once != records[0].once:
            raise _Wrong(f"has an entry for {_shown(record.name)} that does not fit the others")
        place = _check_header(file, record) + record.size
        if place > following:
            raise _Wrong(f"has a record {_shown(record.name)} that is cut off")
        if _checksum(file, record.size) != record.crc and has_checksums:
            raise _Wrong(f"has other content in {_shown(record.name)} than was saved (its CRC-32 differs)")
        if record.twice[1] & _STREAMED:
            form = "<4s3I" if following - place == 16 else "<4sI2Q"
            footer = struct.pack(form, b"PK\x07\x08", record.crc, record.size, record.size)
            if file.read(len(footer)) != footer:
                raise _Wrong(f"contradicts itself about {_shown(record.name)}")
            place += len(footer)
    if place != end:
        raise _Wrong("has something after its records")


def _check_header(file: BinaryIO, record: _Record) -> int:
    """Return where the content begins, if its header matches the directory."""
    one = _LOCAL.unpack(_at(file, record.start, _LOCAL.size))
    name, extra = file.read(one[9]), file.read(one[10])
    sizes = (0, 0, 0) if record.twice[1] & _STREAMED else (record.crc, record.size, record.size)
    numbers = tuple(min(number, _FULL) for number in sizes)
    if one[0] != _FIRST or one[1:6] != record.twice or one[6:9] != numbers or name != record.name:
        raise _Wrong(f"contradicts itself about {_shown(record.name)}")
    while extra:
        kind, length = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + length], extra[4 + length :]
        is_padding = kind == 0x4246 and body == b"Z" * length  # "FB": so that contents begin at round places
        is_large = kind == 1 and length % 8 == 0
        known = {record.size, record.start, 0}  # 0 is the packed size, which was not known yet
        is_large = is_large and known >= {number for (number,) in struct.iter_unpack("<Q", body)}
        if not (is_padding or is_large):
            raise _Wrong(f"has a field before {_shown(record.name)} that torch does not write")
    return file.tell()


def _checksum(file: BinaryIO, size: int) -> int:
    checksum = 0
    while size and (chunk := file.read(min(size, _CHUNK))):
        checksum, size = zlib.crc32(chunk, checksum), size - len(chunk)
    return checksum


def _at(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    return file.read(size)


def _shown(name: bytes) -> Any:
    return ascii(name[:80].decode("utf-8", "replace"))
