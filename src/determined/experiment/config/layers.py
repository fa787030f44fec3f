"""Layers of configuration become one: command line over file over template over defaults. Pure: mappings in and out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from determined.errors import ConfigError
from determined.experiment.config.experiment_file import load
from determined.experiment.config.problems import Problem, child, shown
from determined.experiment.config.searcher import ALIASES, REMOVED, SEARCHERS, SOURCES, Custom
from determined.experiment.config.storage import STORAGE
from determined.experiment.config.yaml_values import DEEPEST

Layer = Mapping[str, Any]
AUTHENTICATION = (("connection_string",), ("account_url", "credential"))
WARM_START = tuple((source,) for source in SOURCES)


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """Merge several configurations into one, the strongest first.

    Example::

        merged([{"labels": ["a"], "debug": True}, {"labels": ["b"], "debug": False}])
        # {"labels": ["a", "b"], "debug": True}
    """
    found: dict[str, Any] = {}
    for layer in reversed(layers):
        found = _mapping(layer, found, RULES)
    return found


def _either(strong: Any, weak: Any) -> Any:
    """Merge mappings key by key; of anything else return the stronger."""
    if isinstance(strong, Mapping) and isinstance(weak, Mapping):
        return _mapping(strong, weak, {})
    return strong


def _mapping(strong: Layer, weak: Layer, rules: Mapping[str, Callable[[Any, Any], Any]]) -> dict[str, Any]:
    found = dict(weak)
    for key, value in strong.items():
        found[key] = rules.get(key, _either)(value, weak[key]) if key in weak else value
    return found


def _stronger(strong: Any, weak: Any) -> Any:  # noqa: ARG001 - all rules are called alike
    """Return the stronger: two merged lengths would have two units."""
    return strong


def _labels(strong: Any, weak: Any) -> Any:
    if not isinstance(strong, list) or not isinstance(weak, list):
        return strong
    return [*strong, *(label for label in weak if label not in strong)]


def _appended(identity: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a rule that joins lists; a stronger entry replaces the weaker one of the same identity."""

    def rule(strong: Any, weak: Any) -> Any:
        if not isinstance(strong, list) or not isinstance(weak, list):
            return strong
        given = [identity(entry) for entry in strong]
        # The stronger come first, so that a message about entry 2 is about the second in the file; and what one layer
        # says twice stays twice, for the check to find.
        return [*strong, *(entry for entry in weak if identity(entry) not in given)]

    return rule


def _policy(entry: Any) -> Any:
    if not isinstance(entry, Mapping) or entry.get("name") is not None:
        return entry.get("name") if isinstance(entry, Mapping) else entry
    action = entry.get("action")
    return (entry.get("pattern"), action.get("type") if isinstance(action, Mapping) else action)


def _mount(entry: Any) -> Any:
    return entry.get("container_path") if isinstance(entry, Mapping) else entry


def _hyperparameters(strong: Any, weak: Any) -> Any:
    """Merge groups; replace a parameter, which is anything but a group, as a whole."""
    if not all(isinstance(side, Mapping) and "type" not in side for side in (strong, weak)):
        return strong
    return {**weak, **{k: _hyperparameters(v, weak[k]) if k in weak else v for k, v in strong.items()}}


def _searcher(strong: Any, weak: Any) -> Any:
    found = _union(strong, weak, "name", SEARCHERS)
    return _exclusive(found, strong, WARM_START)


def _storage(strong: Any, weak: Any) -> Any:
    found = _union(strong, weak, "type", STORAGE)
    return _exclusive(found, strong, AUTHENTICATION)


def _union(strong: Any, weak: Any, tag: str, kinds: Mapping[str, type[BaseModel]]) -> Any:
    """Merge two sections; keys that only the weaker section's kind has are dropped."""
    if not isinstance(strong, Mapping) or not isinstance(weak, Mapping):
        return strong
    own, other = (kinds.get(_canonical(side.get(tag))) for side in (strong, weak))
    if tag in strong and own is not None and weak.get(tag) in REMOVED:
        weak = {k: v for k, v in weak.items() if k in own.model_fields}
    elif tag in strong and own is not None and other is not own and other is not None:
        weak = {k: v for k, v in weak.items() if k not in other.model_fields or _matters(own, k)}
    return _mapping(strong, weak, {"max_length": _stronger, "sampler_args": _either})


def _matters(kind: type[BaseModel], key: str) -> bool:
    """Return whether this kind has the field and does not ignore it."""
    field = kind.model_fields.get(key)
    return field is not None and not field.exclude


def _canonical(kind: Any) -> str:
    return ALIASES.get(kind, kind) if isinstance(kind, str) else ""


def _exclusive(found: Any, strong: Any, ways: Sequence[Sequence[str]]) -> Any:
    """Where the stronger layer chose one of several ways, drop the keys of the others."""
    if not isinstance(strong, Mapping):
        return found
    chosen = [way for way in ways if any(strong.get(key) is not None for key in way)]
    rest = {key for way in ways if way not in chosen for key in way} if chosen else set()
    return {key: value for key, value in found.items() if key not in rest}


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "labels": _labels,
    "bind_mounts": _appended(_mount),
    "log_policies": _appended(_policy),
    "hyperparameters": _hyperparameters,
    "searcher": _searcher,
    "checkpoint_storage": _storage,
    "min_validation_period": _stronger,
    "min_checkpoint_period": _stronger,
}


FREE = {"data", "hyperparameters", "sampler_args", "args"}  # whose inner nulls are values
OWN = "x-"
OF_CUSTOM = {field.alias or name for name, field in Custom.model_fields.items()}


def without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without nulls and without keys that start with `x-`; null means absent.

    Example::

        without_nulls({"name": None, "data": {"path": None}, "x-note": "mine"})  # {"data": {"path": None}}
    """
    found = {}
    for key, value in values.items():
        if value is not None and not key.startswith(OWN):
            is_custom = key == "searcher" and isinstance(value, dict) and value.get("name") == "custom"
            found[key] = _custom(value) if is_custom else _given(key, value)
    return found


def _given(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_given("", inner) for inner in value]
    return without_nulls(value) if isinstance(value, dict) and key not in FREE else value


def _custom(section: Mapping[str, Any]) -> dict[str, Any]:
    """Keep a custom searcher's own keys, which may be null, and start with anything."""
    return {key: value for key, value in section.items() if value is not None or key not in OF_CUSTOM}


def from_settings(settings: Sequence[str], below: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the layer that settings of `--config key=value` make; later ones win.

    Args:
        settings: Each `key=value`. Keys have dots; a value is YAML; a comma makes a list.
        below: The configuration they change. A key that leads into a declared hyperparameter, such as
            `hyperparameters.lr.minval`, changes that one key and keeps the rest of the declaration.

    Raises:
        ConfigError: A setting has no `=`, an empty key, or a value that is not YAML.

    Example::

        from_settings(["resources.slots_per_trial=2", "labels=a,b"])
        # {"resources": {"slots_per_trial": 2}, "labels": ["a", "b"]}
    """
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        keys = key.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(
                f"--config {setting!r} is not of the form key=value, such as resources.slots_per_trial=2."
            )
        _put(found, keys, setting_value(text, setting), below or {})
    return found


def setting_value(text: str, setting: str = "") -> Any:
    """Return the value of the text after `=`.

    Example::

        setting_value("1e-3,yes")  # [0.001, "yes"]
    """
    text = text.strip()
    is_whole = text[:1] in ("[", "{", '"', "'") or "," not in text
    parts = [text] if is_whole else text.removesuffix(",").split(",")
    try:
        values = [load(part.strip()).values for part in parts]
    except ConfigError as e:
        raise ConfigError(f"--config {setting or text!r} is not YAML: {e}") from None
    return values[0] if is_whole else values


def _put(found: dict[str, Any], keys: Sequence[str], new: Any, below: Any) -> None:
    place, path = found, list(keys)
    in_space = path[0] == "hyperparameters"
    while len(path) > 1:
        key = path.pop(0)
        below = below.get(key) if isinstance(below, Mapping) else None
        if not isinstance(place.get(key), dict):
            is_declared = in_space and isinstance(below, Mapping) and "type" in below
            place[key] = copy.deepcopy(dict(below)) if is_declared and isinstance(below, Mapping) else {}
        place = place[key]
    place[path[0]] = new


def plain(value: Any, path: str, problems: list[Problem], depth: int = 0) -> Any:
    """Return a copy of `value` in JSON types; what is none becomes None, and a problem.

    Example::

        problems = []
        plain({"vals": (1, 2)}, "lr", problems)  # {"vals": [1, 2]}
    """
    if depth > DEEPEST:
        problems.append(Problem(path, f"is nested more than {DEEPEST} deep."))
        return None
    if isinstance(value, Mapping):
        _check_keys(value, path, problems)
        pairs = ((key, inner) for key, inner in value.items() if isinstance(key, str))
        return {key: plain(inner, child(path, key), problems, depth + 1) for key, inner in pairs}
    if isinstance(value, (list, tuple)):
        return [plain(inner, f"{path}[{i}]", problems, depth + 1) for i, inner in enumerate(value)]
    if reason := _unfit(value):
        problems.append(Problem(path, reason))
        return None
    return value


def _check_keys(value: Mapping[Any, Any], path: str, problems: list[Problem]) -> None:
    for key in value:
        if not isinstance(key, str):
            problems.append(Problem(path, f'has the key {shown(key)}, which is not text. Write it in quotes: "{key}".'))
        elif reason := _unfit_text(key):
            problems.append(Problem(path, f"has a key that {reason}"))


def _unfit(value: Any) -> str | None:
    """Return why this value cannot be stored, or None."""
    if value is None or isinstance(value, (bool, int)):
        return None
    if isinstance(value, str):
        return _unfit_text(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f'is {value}, which JSON cannot hold. Write it as text: "{value}".'
    kinds = "text, numbers, true, false, null, lists and mappings"
    return f"is {str(value)[:50]!r}, a {type(value).__name__}; a configuration holds {kinds}."


def _unfit_text(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character, which databases do not keep."
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains half a surrogate pair, which no file can hold."
    return None
