"""Secrets of submitted experiments: what the store redacts, kept in files that only their user may read.

One file per experiment, `$DET_HOME/secrets/<uuid>.json`, mode 0600. A controller reads it when it launches an attempt.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from determined._home import data_directory, make_data_directory
from determined._redact import MASK, redacted
from determined.artifacts.manifest import is_generated_id

Config: TypeAlias = dict[str, Any]
KeyPath: TypeAlias = tuple[str | int, ...]


def keep(config: Mapping[str, Any], uuid: str, home: Path | None = None) -> bool:
    """Write down what the store will not: the values that redaction hides. Return whether there are any.

    Args:
        config: The effective configuration, with its secrets.
        uuid: The experiment's.
        home: The data directory; the user's own by default.

    Example::

        keep({"data": {"secrets": {"t": "abc"}}}, experiment.uuid)  # True
    """
    found = [[list(path), value] for path, value in _hidden(config, redacted(config))]
    place = _place(uuid, home)
    if not found:
        place.unlink(missing_ok=True)
        return False
    if home is None:
        make_data_directory()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.parent.chmod(0o700)
    unfinished = place.with_suffix(f".{os.getpid()}.part")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(found, file)
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)
    return True


def restore(config: Mapping[str, Any], uuid: str, home: Path | None = None) -> Config:
    """Return the configuration with the values that `keep` wrote down; as it is where there are none.

    Example::

        restore({"data": {"secrets": {"t": "********"}}}, experiment.uuid)  # {"data": {"secrets": {"t": "abc"}}}
    """
    whole = copy.deepcopy(dict(config))
    for path, value in _kept(uuid, home):
        with contextlib.suppress(KeyError, IndexError, TypeError):  # the configuration has changed meanwhile
            place: Any = whole
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
    return whole


def restore_hparams(hparams: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's hyperparameters with the constants that the store redacted.

    Args:
        hparams: As the trial's row has them.
        config: The experiment's configuration, as `restore` returned it.
    """
    return cast(dict[str, Any], _with_constants(dict(hparams), config.get("hyperparameters", {})))


def unmasked(typed: Any, masked: Any, whole: Any) -> Any:
    """Return typed values with the secrets of an experiment where its masked ones were left as they were shown.

    Entries of lists are found again by what they show, so that others may be added or removed.

    Args:
        typed: What a person made of the masked configuration.
        masked: The configuration as it is shown.
        whole: The configuration with its secrets.

    Example::

        unmasked({"t": "********", "n": 2}, {"t": "********", "n": 1}, {"t": "abc", "n": 1})  # {"t": "abc", "n": 2}
    """
    if _is_constant(masked) and _is_constant(whole) and not _is_constant(typed):
        masked, whole = masked["val"], whole["val"]
    if isinstance(typed, Mapping) and isinstance(masked, Mapping) and isinstance(whole, Mapping):
        keys = dict(zip(masked, whole, strict=True)) if len(masked) == len(whole) else {}  # names may be masked, too
        names = {key: keys.get(key, key) for key in typed}
        return {names[key]: unmasked(inner, masked.get(key), whole.get(names[key])) for key, inner in typed.items()}
    if isinstance(typed, list) and isinstance(masked, list) and isinstance(whole, list):
        return [_unmasked_entry(i, entry, masked, whole) for i, entry in enumerate(typed)]
    is_left = isinstance(typed, str) and MASK in typed and typed == masked
    return whole if is_left else typed


def _unmasked_entry(index: int, typed: Any, masked: list[Any], whole: list[Any]) -> Any:
    is_here = index < len(masked) and masked[index] == typed
    place = index if is_here or typed not in masked else masked.index(typed)
    return unmasked(typed, masked[place], whole[place]) if place < min(len(masked), len(whole)) else typed


def _is_constant(declared: Any) -> bool:
    return isinstance(declared, Mapping) and declared.get("type") == "const" and "val" in declared


def forget(uuid: str, home: Path | None = None) -> None:
    """Remove the secrets of an experiment that is gone."""
    _place(uuid, home).unlink(missing_ok=True)


def _place(uuid: str, home: Path | None) -> Path:
    if not is_generated_id(uuid):
        raise ValueError(f"{uuid!r} is not the UUID of an experiment.")
    return (home or data_directory()) / "secrets" / f"{uuid}.json"


def _kept(uuid: str, home: Path | None) -> list[tuple[list[str | int], Any]]:
    try:
        return [(path, value) for path, value in json.loads(_place(uuid, home).read_text())]
    except FileNotFoundError:
        return []


def _hidden(value: Any, shown: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and value of everything that is shown otherwise than it is."""
    if value == shown:
        return
    if isinstance(value, Mapping) and isinstance(shown, Mapping) and value.keys() == shown.keys():
        for key, inner in value.items():
            yield from _hidden(inner, shown[key], (*path, key))
    elif isinstance(value, list) and isinstance(shown, list) and len(value) == len(shown):
        for i, inner in enumerate(value):
            yield from _hidden(inner, shown[i], (*path, i))
    else:
        yield path, value


def _with_constants(value: Any, declared: Any) -> Any:
    """Replace masked values by the constants that are declared at the same place."""
    if _is_constant(declared):
        declared = declared["val"]
    if isinstance(value, Mapping) and isinstance(declared, Mapping):
        return {key: _with_constants(inner, declared.get(key)) for key, inner in value.items()}
    if isinstance(value, list) and isinstance(declared, list) and len(value) == len(declared):
        return [_with_constants(*pair) for pair in zip(value, declared, strict=True)]
    is_value = declared is not None and not isinstance(declared, (Mapping, list))
    return declared if is_value and isinstance(value, str) and MASK in value else value
