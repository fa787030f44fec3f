"""State as tensors and plain values, and back: what `torch.load(weights_only=True)` reads without trusting the file.

Values it cannot hold as they are become a dict with the key `TYPE`, which says what to make of the rest. Nothing of a
file is ever imported or called: a type that is not in the tables below is refused, when saving and when loading.
"""

from __future__ import annotations

import datetime
import enum
import inspect
import io
import pathlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from determined import errors
from determined._types import Stateful

TYPE = "__determined_type__"
_DEEPEST = 100
_LARGEST = 1 << 2000  # torch writes an int of 256 bytes, and empty bytes, in a form that it cannot read
_AS_THEY_ARE = {type(None), bool, float, str, complex, torch.Size, torch.device, torch.dtype}
_LEAVES = _AS_THEY_ARE | {torch.Tensor, torch.nn.Parameter}
_DATES = {kind.__name__: kind for kind in (datetime.datetime, datetime.date, datetime.time)}
_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "None": None, "list": list, "dict": dict, "set": set, "int": int, "float": float, "str": str, "bool": bool,
    "tuple": tuple,
}  # fmt: skip


def to_plain(value: Any, where: str, *, keeps_code: bool = False) -> Any:
    """Return `value` as tensors and plain values. Tensors are not copied.

    Args:
        value: What a `state_dict()` returned.
        where: What it belongs to, as the user would say it, for the error.
        keeps_code: Functions, and objects with a `state_dict()` of their own, may be part of it: the former are left to
            whoever loads it, and of the latter the state is kept. Schedulers hold such things.

    Raises:
        TypeError: Something in it is neither; the message names the place and the type.
    """
    return _encode(value, where, 0, keeps_code)


def from_plain(value: Any, where: str, *, live: Any = None) -> Any:
    """Return the value that `to_plain` was given.

    Args:
        value: What `to_plain` returned, read from a file.
        where: What it belongs to, for the error.
        live: The same state as it is now; functions and objects that were not saved are taken from here.

    Raises:
        InvalidCheckpointException: It cannot be rebuilt here.
    """
    if isinstance(value, dict):
        if TYPE in value:
            return _decode(value, where, live)
        items = {
            key: from_plain(item, f"{where}[{key!r}]", live=_inside(live, key))
            if isinstance(item, (dict, list, tuple))
            else item
            for key, item in value.items()
        }
        return refill(value, items)
    if type(value) in (list, tuple) and not _holds_small_numbers(value):
        return type(value)([from_plain(item, f"{where}[{i}]", live=_inside(live, i)) for i, item in enumerate(value)])
    return value


def _inside(live: Any, key: Any) -> Any:
    if isinstance(live, Mapping):
        return live.get(key)
    return live[key] if isinstance(live, (list, tuple)) and key < len(live) else None


def refill(like: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict of the same type with these items; attributes of a model's state (`_metadata`) stay."""
    if type(like) is dict:
        return items
    filled = type(like)(items)
    if isinstance(filled, OrderedDict):
        filled.__dict__.update(like.__dict__)
    return filled


def _encode(value: Any, where: str, depth: int, keeps_code: bool) -> Any:
    kind = type(value)
    if _is_readable(value) or isinstance(value, torch.Tensor):
        return value
    if depth > _DEEPEST:
        raise TypeError(f"{where} is nested more than {_DEEPEST} levels deep, or contains itself. Save it flatter.")
    if kind in (dict, OrderedDict, Counter):
        return _encode_dict(value, where, depth, keeps_code)
    if kind in (list, tuple):
        if _holds_small_numbers(value):
            return value if kind is tuple else list(value)
        return kind(_encode_items(value, where, depth, keeps_code))
    if kind is set and all(map(_is_plain_key, value)):
        return value
    if (special := _encode_special(value, where, depth, keeps_code)) is not None:
        return special
    raise TypeError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, and a checkpoint holds tensors, numpy arrays and "
        "plain values only. Save what it is made of instead, or leave it out of state_dict()."
    )


def _encode_items(value: Iterable[Any], where: str, depth: int, keeps_code: bool) -> list[Any]:
    return [
        item if type(item) in _LEAVES else _encode(item, f"{where}[{i}]", depth + 1, keeps_code)
        for i, item in enumerate(value)
    ]


def _encode_dict(value: dict[Any, Any], where: str, depth: int, keeps_code: bool) -> dict[Any, Any]:
    plain = {
        key: item if type(item) in _LEAVES else _encode(item, f"{where}[{key!r}]", depth + 1, keeps_code)
        for key, item in value.items()
    }
    if TYPE not in value and (set(map(type, value)) <= _AS_THEY_ARE or all(map(_is_plain_key, value))):
        return refill(value, plain)
    items = [(_encode(key, f"a key of {where}", depth + 1, keeps_code), item) for key, item in plain.items()]
    return {TYPE: "dict", "items": items}


def _encode_special(value: Any, where: str, depth: int, keeps_code: bool) -> dict[str, Any] | None:
    kind = type(value)
    if kind is int:
        return {TYPE: "int", "value": hex(value)}
    if kind is bytes:
        return {TYPE: "bytes"}
    if kind is np.ndarray:
        return {TYPE: "numpy.ndarray", "value": _array(value, where)}
    if isinstance(value, np.generic):
        return {TYPE: "numpy.scalar", "value": _array(np.asarray(value), where)}
    if isinstance(value, enum.Enum):
        path = f"{kind.__module__}:{kind.__qualname__}"
        return {TYPE: "enum", "class": path, "value": _encode(value.value, where, depth + 1, keeps_code)}
    if kind in (set, frozenset, bytearray):
        return {TYPE: kind.__name__, "items": _encode_items(value, where, depth, keeps_code)}
    if kind is deque:
        return {TYPE: "deque", "items": _encode_items(value, where, depth, keeps_code), "maxlen": value.maxlen}
    if kind is defaultdict:
        factory = next((name for name, made in _FACTORIES.items() if made is value.default_factory), None)
        if factory is not None:
            plain = _encode(dict(value), where, depth + 1, keeps_code)
            return {TYPE: "defaultdict", "factory": factory, "items": plain}
    if kind.__name__ in _DATES and kind is _DATES[kind.__name__] and _has_simple_zone(value):
        return {TYPE: kind.__name__, "value": value.isoformat(), "fold": getattr(value, "fold", 0)}
    if kind is datetime.timedelta:
        return {TYPE: "timedelta", "value": (value.days, value.seconds, value.microseconds)}
    if kind in (range, slice):
        return {TYPE: kind.__name__, "value": (value.start, value.stop, value.step)}
    if isinstance(value, pathlib.PurePath):
        return {TYPE: "path", "value": str(value)}
    if keeps_code and (inspect.isroutine(value) or inspect.isclass(value)):
        return {TYPE: "code", "name": getattr(value, "__qualname__", str(value))}
    if keeps_code and isinstance(value, Stateful):
        state = _encode(value.state_dict(), f"{where}.state_dict()", depth + 1, keeps_code)
        return {TYPE: "stateful", "class": kind.__name__, "state": state}
    return None


def _is_readable(value: Any) -> bool:
    kind = type(value)
    return kind in _AS_THEY_ARE or (kind is int and -_LARGEST < value < _LARGEST) or (kind is bytes and value != b"")


def _holds_small_numbers(value: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether it holds only numbers that need no encoding: random streams have hundreds of them."""
    kinds = set(map(type, value))
    return kinds == {float} or (kinds == {int} and min(value) > -_LARGEST and max(value) < _LARGEST)


def _is_plain_key(key: Any) -> bool:
    return _is_readable(key) or (type(key) is tuple and all(map(_is_plain_key, key)))


def _has_simple_zone(value: Any) -> bool:
    """Return whether its text is complete: a named zone would come back as a mere offset."""
    zone = getattr(value, "tzinfo", None)
    return zone is None or type(zone) is datetime.timezone


def _array(value: np.ndarray[Any, Any], where: str) -> Any:
    """Return an array as a tensor if torch has the type, else as the bytes of an .npy file."""
    if value.dtype.hasobject:
        raise TypeError(f"{where} is a numpy array of objects, which a checkpoint cannot hold. Save a list instead.")
    if value.dtype.isnative:
        try:
            return torch.from_numpy(np.array(value, order="C"))
        except TypeError:  # text, dates, records, long doubles
            pass
    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=False)
    return buffer.getvalue()


def _from_array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, torch.Tensor):
        return value.numpy()
    array: np.ndarray[Any, Any] = np.load(io.BytesIO(value), allow_pickle=False)
    return array


def _decode(value: dict[Any, Any], where: str, live: Any) -> Any:
    kind = value[TYPE]
    try:
        if kind == "code" and live is None:
            raise errors.InvalidCheckpointException(
                f"{where} was the function {value['name']}, which is code and not saved, and nothing here can take its "
                "place."
            )
        if kind == "code":
            return live
        if kind == "stateful":
            return _load_stateful(value, where, live)
        if kind == "enum":
            return _enum(value["class"], where)(from_plain(value["value"], where))
        return _DECODERS[kind](value, where)
    except errors.InvalidCheckpointException:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise errors.InvalidCheckpointException(
            f"{where} was saved as {kind!r} and cannot be rebuilt: {type(problem).__name__}: {problem}."
        ) from problem


def _items(value: dict[Any, Any], where: str) -> list[Any]:
    return [from_plain(item, f"{where}[{i}]") for i, item in enumerate(value["items"])]


_DECODERS: dict[str, Callable[[dict[Any, Any], str], Any]] = {
    "dict": lambda value, where: dict(_items(value, where)),
    "int": lambda value, _: int(value["value"], 16),
    "bytes": lambda *_: b"",
    "numpy.ndarray": lambda value, _: _from_array(value["value"]),
    "numpy.scalar": lambda value, _: _from_array(value["value"])[()],
    "set": lambda value, where: set(_items(value, where)),
    "frozenset": lambda value, where: frozenset(_items(value, where)),
    "bytearray": lambda value, where: bytearray(_items(value, where)),
    "deque": lambda value, where: deque(_items(value, where), value["maxlen"]),
    "defaultdict": lambda v, where: defaultdict(_FACTORIES[v["factory"]], from_plain(v["items"], where)),
    "timedelta": lambda value, _: datetime.timedelta(*value["value"]),
    "range": lambda value, _: range(*value["value"]),
    "slice": lambda value, _: slice(*value["value"]),
    "path": lambda value, _: pathlib.Path(value["value"]),
    "datetime": lambda value, _: datetime.datetime.fromisoformat(value["value"]).replace(fold=value["fold"]),
    "date": lambda value, _: datetime.date.fromisoformat(value["value"]),
    "time": lambda value, _: datetime.time.fromisoformat(value["value"]).replace(fold=value["fold"]),
}


def _enum(path: str, where: str) -> type[enum.Enum]:
    """Return the class if the program has imported it: a file cannot cause an import."""
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        raise errors.InvalidCheckpointException(
            f"{where} is a member of the enum {name} of {module}, which this program has not imported. "
            "Import it before loading, or save the value instead of the member."
        )
    return found


def _load_stateful(value: dict[Any, Any], where: str, live: Any) -> Any:
    if not isinstance(live, Stateful):
        raise errors.InvalidCheckpointException(
            f"{where} was a {value['class']} with a state of its own, and here it is a {type(live).__name__}."
        )
    live.load_state_dict(from_plain(value["state"], where, live=live.state_dict()))
    return live
