"""Results as lists and tables: plain Python first, a pandas DataFrame for those who have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from determined.errors import MissingPackage

if TYPE_CHECKING:
    import pandas


class Row(Protocol):
    """Something that can be written as one line of a table."""

    def to_dict(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Row)


class Listing(list[T]):
    """A list that can become a table.

    Example::

        client.list_experiments(labels=["cifar"]).to_pandas().sort_values("start_time")
    """

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per object. What is nested has columns with dots in their names, such as `hparams.lr`."""
        return frame(item.to_dict() for item in self)


def frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return a DataFrame of these rows, nested mappings flattened."""
    try:
        import pandas
    except ImportError as e:
        raise MissingPackage("to_pandas() needs pandas, which is not installed. Type: pip install pandas") from e
    return pandas.DataFrame([flat(row) for row in rows])


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings: `{"a": {"b": 1}}` becomes `{"a.b": 1}`; an empty mapping stays a value."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def section(config: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """Return a section of a configuration; empty if it has none: what a plain run says of itself may be anything."""
    found = (config or {}).get(name)
    return found if isinstance(found, dict) else {}
