"""Layers of configuration become one: command line over file over template over defaults. Pure: mappings in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from determined.experiment.config.searcher import ALIASES, REMOVED, SEARCHERS, SOURCES
from determined.experiment.config.storage import STORAGE

Layer = Mapping[str, Any]
AUTHENTICATION = (("connection_string",), ("account_url", "credential"))
WARM_START = tuple((source,) for source in SOURCES)


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """One configuration from several, the strongest first.

    Example::

        merged([{"labels": ["a"], "debug": True}, {"labels": ["b"], "debug": False}])
        # {"labels": ["a", "b"], "debug": True}
    """
    found: dict[str, Any] = {}
    for layer in reversed(layers):
        found = _mapping(layer, found, RULES)
    return found


def _either(strong: Any, weak: Any) -> Any:
    """Mappings merge key by key; of anything else the stronger stays."""
    if isinstance(strong, Mapping) and isinstance(weak, Mapping):
        return _mapping(strong, weak, {})
    return strong


def _mapping(strong: Layer, weak: Layer, rules: Mapping[str, Callable[[Any, Any], Any]]) -> dict[str, Any]:
    found = dict(weak)
    for key, value in strong.items():
        found[key] = rules.get(key, _either)(value, weak[key]) if key in weak else value
    return found


def _stronger(strong: Any, weak: Any) -> Any:  # noqa: ARG001 - all rules are called alike
    """Lengths say one unit, and merging two of them would say two."""
    return strong


def _labels(strong: Any, weak: Any) -> Any:
    if not isinstance(strong, list) or not isinstance(weak, list):
        return strong
    return [*strong, *(label for label in weak if label not in strong)]


def _appended(identity: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Lists of entries that have an identity: a stronger entry takes the place of the weaker one."""

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
    """Groups merge; a parameter, which is anything that is not a group, is replaced as a whole."""
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
    """The stronger kind decides; what only the weaker kind has is dropped, what both have merges."""
    if not isinstance(strong, Mapping) or not isinstance(weak, Mapping):
        return strong
    own, other = (kinds.get(_canonical(side.get(tag))) for side in (strong, weak))
    if tag in strong and own is not None and weak.get(tag) in REMOVED:
        weak = {k: v for k, v in weak.items() if k in own.model_fields}
    elif tag in strong and own is not None and other is not own and other is not None:
        weak = {k: v for k, v in weak.items() if k not in other.model_fields or _matters(own, k)}
    return _mapping(strong, weak, {"max_length": _stronger, "sampler_args": _either})


def _matters(kind: type[BaseModel], key: str) -> bool:
    """Whether this kind has the field, other than to ignore it."""
    field = kind.model_fields.get(key)
    return field is not None and not field.exclude


def _canonical(kind: Any) -> str:
    return ALIASES.get(kind, kind) if isinstance(kind, str) else ""


def _exclusive(found: Any, strong: Any, ways: Sequence[Sequence[str]]) -> Any:
    """Where the stronger layer chose one of several ways, the others do not shine through."""
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
