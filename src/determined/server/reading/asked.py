"""Lists that a browser writes into an address: ids with commas, series as `group:name`."""

from __future__ import annotations

from collections.abc import Sequence

from determined.errors import InvalidValue

MOST_TRIALS = 100


def numbers(what: str, text: str, most: int = MOST_TRIALS) -> list[int]:
    """Return ids that are separated by commas, each once.

    Raises:
        InvalidValue: One is no number, or there are too many.

    Example::

        assert numbers("trials", "3, 1,3") == [3, 1]
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        if not part.strip().isdecimal() or len(part.strip()) > 18:
            raise InvalidValue(f"{what} has {part.strip()[:50]!r}, which is no id. Write numbers with commas: 3,4,7.")
        found[int(part)] = None
    if len(found) > most:
        raise InvalidValue(f"{what} has {len(found)} ids, and {most} at once is the most. Leave some out.")
    return list(found)


def series_names(given: Sequence[str]) -> list[tuple[str, str]]:
    """Return group and name of each `group:name`, each once. A name may have colons, a group has none here.

    Raises:
        InvalidValue: One has no colon.
    """
    found: dict[tuple[str, str], None] = {}
    for text in given:
        group, colon, name = text.partition(":")
        if not colon:
            raise InvalidValue(f"{text[:100]!r} is no series. Write its group and its name: validation:loss.")
        found[group, name] = None
    return list(found)
