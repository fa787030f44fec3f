"""Turn pydantic's errors into sentences: the value, what it has to be, and what to type."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from determined._redact import is_secret
from determined.experiment.config.problems import Problem, child, shown
from determined.experiment.config.searcher import ALIASES, REMOVED, SEARCHERS
from determined.experiment.config.sections import is_retired
from determined.experiment.config.storage import STORAGE

UNIONS = ("searcher", "checkpoint_storage")  # pydantic puts the chosen type into the path, users do not
EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "int_parsing": "a whole number",
    "float_type": "a number", "bool_type": "true or false", "string_type": "text",
    "list_type": "a list, such as [{value}]", "dict_type": "a mapping, such as {{key: value}}",
    "model_type": "a mapping, such as {{key: value}}", "model_attributes_type": "a mapping, such as {{key: value}}",
    "greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}", "greater_than": "more than {gt}",
    "string_too_short": "some text", "string_pattern_mismatch": "a plain name",
}  # fmt: skip
UNKNOWN = {
    "resources.slots": 'is gone. Say how many slots each trial gets: "slots_per_trial: 2".',
    "searcher.budget": "belonged to searchers that are gone. Use max_trials and max_time with adaptive_asha.",
    "searcher.train_stragglers": "belonged to searchers that are gone. Remove it.",
    "internal": "was never for users. Remove it.",
}


def problems(error: ValidationError, model: type[BaseModel]) -> Iterator[Problem]:
    """Yield one problem for each error that pydantic found while reading `model`."""
    for found in error.errors(include_url=False):
        location = found["loc"]
        path = _path(location)
        if found["type"] == "extra_forbidden":
            yield Problem(path, _unknown(str(location[-1]), path, _owner(model, location[:-1]), location))
        elif found["type"] == "union_tag_invalid":
            yield _unknown_kind(path, found["input"])
        else:
            yield Problem(path, _reason(found, path, str(location[-1]) if location else ""))


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for i, key in enumerate(location):
        if i != 1 or location[0] not in UNIONS:
            path = child(path, key)
    return path


def _reason(found: Mapping[str, Any], path: str, key: str) -> str:
    kind, value, details = found["type"], found["input"], found.get("ctx", {})
    if is_secret(key):
        return "has to be text. Write it in quotes."
    if path in ("data", "checkpoint_storage") and kind in EXPECTED:  # the value may hold secrets
        return f"has to be {EXPECTED[kind].format()}."
    if kind == "value_error":
        return str(details["error"])
    if kind == "literal_error":
        return f"is {shown(value)}, and has to be one of {details['expected'].replace(' or ', ', ')}."
    expected = EXPECTED.get(kind, f"otherwise ({found['msg']})").format(value=shown(value), **details)
    hint = ""
    if kind == "string_type" and isinstance(value, (int, float)):
        hint = f' Write it in quotes: "{shown(value)}".'
    elif kind == "bool_type" and isinstance(value, str):
        hint = " Write it without quotes; yes, no, on and off are text."
    elif kind in ("int_type", "float_type") and isinstance(value, str):
        hint = " Write digits only, without quotes."
    return f"is {shown(value)}, and has to be {expected}.{hint}"


def _unknown_kind(path: str, section: Mapping[str, Any]) -> Problem:
    """Return the problem of an unknown searcher name or storage type."""
    tag, known = ("name", [*SEARCHERS, *ALIASES]) if path == "searcher" else ("type", list(STORAGE))
    given = section.get(tag)
    reason = f"is {shown(given)}, and has to be one of {', '.join(known)}.{close(given, known)}"
    return Problem(child(path, tag), reason)


def _unknown(key: str, path: str, owner: type[BaseModel] | None, location: Sequence[str | int]) -> str:
    if path in UNKNOWN:
        return UNKNOWN[path]
    if location[0] in UNIONS:
        others: Mapping[str, type[BaseModel]] = SEARCHERS if location[0] == "searcher" else STORAGE
        if owners := [name for name, other in others.items() if key in names(other)]:
            return f"belongs to {', '.join(owners)}, not to {location[1]}. Remove it."
    known = names(owner) if owner else []
    return f"is not a known key.{close(key, owner.model_fields if owner else ()) or _listing(known)}"


def _listing(known: Sequence[str]) -> str:
    return f" It may be {', '.join(known)}." if known and len(known) <= 12 else " Remove it."


def close(given: Any, known: Iterable[str]) -> str:
    """Return `Did you mean searcher?` if a known name is close to the given one."""
    near = difflib.get_close_matches(str(given).lower(), list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near and near[0] != given else ""


def names(model: type[BaseModel]) -> list[str]:
    """Return the keys that are not retired."""
    return [field.alias or name for name, field in model.model_fields.items() if not is_retired(field)]


def _owner(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the class of the section that a path leads to."""
    if len(location) > 1 and location[0] in UNIONS:
        return {**SEARCHERS, **STORAGE}.get(str(location[1]))
    found: type[BaseModel] | None = model
    for key in location:
        if isinstance(key, str) and found is not None and key in found.model_fields:
            found = _section_in(found.model_fields[key].annotation)
    return found


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((s for part in typing.get_args(annotation) if (s := _section_in(part))), None)


def removed(name: str) -> str:
    assert name in REMOVED
    return f"is {name!r}, which was removed. Use adaptive_asha with max_trials, time_metric and max_time."
