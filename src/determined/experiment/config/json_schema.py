"""The JSON Schema of an experiment file, so that editors complete and check it while it is written.

It is made from the classes that check the file. What only they can say (a minval above its maxval, two sources) is
left to `det experiment validate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined.experiment.config.fields import Fields
from determined.experiment.config.searcher import ALIASES, SEARCHERS
from determined.experiment.config.sections import Length, Section
from determined.experiment.config.storage import STORAGE

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "Experiment of determined"
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": ["integer", "null"], "minimum": 1, "description": "Points on the grid."}
DECLARATIONS: dict[str, Schema] = {
    "const": {"val": {"description": "The value."}},
    "int": {"minval": {"type": "integer"}, "maxval": {"type": "integer"}, "count": COUNT},
    "double": {"minval": NUMBER, "maxval": NUMBER, "count": COUNT},
    "log": {"base": {**NUMBER, "exclusiveMinimum": 0}, "minval": NUMBER, "maxval": NUMBER, "count": COUNT},
    "categorical": {"vals": {"type": "array", "minItems": 1, "description": "The values to choose from."}},
}
LENGTH: Schema = {"minProperties": 1, "maxProperties": 1, "$ref": "#/$defs/Length"}
WORDS: Schema = {"type": "array", "items": {"type": "string"}}
# Fields that take more forms than their class shows.
FORMS: dict[tuple[str, str], Schema] = {
    ("Fields", "entrypoint"): {"anyOf": [{"type": "string", "pattern": r"\S"}, {**WORDS, "minItems": 1}]},
    ("Fields", "hyperparameters"): {"type": "object", "additionalProperties": {"$ref": "#/$defs/hyperparameter"}},
    ("Fields", "min_validation_period"): LENGTH,
    ("Fields", "min_checkpoint_period"): LENGTH,
    ("Environment", "environment_variables"): {"anyOf": [WORDS, {"$ref": "#/$defs/EnvironmentVariables"}]},
    ("LogPolicy", "action"): {
        "anyOf": [
            {"enum": ["cancel_retries", "exclude_node"]},
            {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"enum": ["cancel_retries", "exclude_node"]}},
            },
        ]
    },
}


def schema() -> Schema:
    """Return the schema, draft 2020-12.

    Example::

        schema()["properties"]["searcher"]
    """
    made = Fields.model_json_schema(by_alias=True)
    definitions = {name: _open(name, section) for name, section in made.pop("$defs").items()}
    for name in ("Unnamed", "Removed"):
        definitions.pop(name)
    for kinds in (SEARCHERS, STORAGE):
        for kind, section in kinds.items():
            definitions[section.__name__] = _of_kind(kind, section, definitions[section.__name__])
    definitions["EnvironmentVariables"]["properties"]["gpu"] = {**WORDS, "description": "The same as cuda."}
    definitions["Length"] = _open("Length", Length.model_json_schema())
    definitions["hyperparameter"] = _hyperparameter()
    definitions["Optimizations"]["additionalProperties"] = True
    top = _open("Fields", made)
    top["properties"]["searcher"] = _union("name", {**SEARCHERS, **{a: SEARCHERS[n] for a, n in ALIASES.items()}})
    top["properties"]["checkpoint_storage"] = _union("type", STORAGE, default="directory")
    top |= {"$schema": DRAFT, "title": TITLE, "required": ["entrypoint", "searcher"], "$defs": definitions}
    return top


def _open(name: str, section: Schema) -> Schema:
    """A section in which every key may be null, and keys that start with x- are free."""
    properties = {key: FORMS.get((name, key), field) | _about(field) for key, field in section["properties"].items()}
    for key, field in properties.items():
        if key == "max_length":
            properties[key] = {"anyOf": [{"type": "integer", "minimum": 1}, LENGTH]} | _about(field)
        properties[key] = _nullable(properties[key])
    kind = "object" if name == "Fields" else ["object", "null"]
    return {**section, "type": kind, "properties": properties, "patternProperties": {"^x-": {}}}


def _about(field: Schema) -> Schema:
    return {key: field[key] for key in ("description", "deprecated") if key in field}


def _nullable(field: Schema) -> Schema:
    """Return the field, or null; said so that what editors complain about is the field."""
    default = field.get("default")
    left_out = {"title"} if default is not None and not isinstance(default, dict) else {"title", "default"}
    field = {key: value for key, value in field.items() if key not in left_out}  # sections have their defaults inside
    choices = [choice for choice in field.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        field = {**{key: value for key, value in field.items() if key != "anyOf"}, **choices[0]}
    elif choices:
        return {**field, "anyOf": [*choices, {"type": "null"}]}
    if "enum" in field:
        field = {**field, "enum": [*field["enum"], None]}
    return {**field, "type": [field["type"], "null"]} if isinstance(field.get("type"), str) else field


def _of_kind(kind: str, section: type[Section], made: Schema) -> Schema:
    tag = "name" if "name" in section.model_fields else "type"
    names = [kind, *(alias for alias, name in ALIASES.items() if name == kind)]
    description = (section.__doc__ or "").partition("\n")[0]
    made["properties"] = {tag: {"enum": names, "description": description}} | {
        key: field for key, field in made["properties"].items() if key != tag
    }
    for key in section.REQUIRED:
        made["properties"][key] = _not_null(made["properties"][key])
    # The default storage fills in a directory.
    required = [] if kind == "directory" else list(section.REQUIRED)
    times = {"time_metric", "max_time"}
    if times <= set(required):  # older files have max_length instead
        required = [key for key in required if key not in times]
        made["anyOf"] = [{"required": sorted(times)}, {"required": ["max_length"]}]
    return {**made, "required": required}


def _not_null(field: Schema) -> Schema:
    return {**field, "type": field["type"][0]} if isinstance(field.get("type"), list) else field


def _union(tag: str, kinds: Mapping[str, type[Section]], default: str | None = None) -> Schema:
    """One of several sections; `if` rather than `oneOf`, so that editors complain about the kind that was meant."""
    cases = [
        {
            "if": {"properties": {tag: {"const": kind}}, "required": [] if kind == default else [tag]},
            "then": {"$ref": f"#/$defs/{section.__name__}"},
        }
        for kind, section in kinds.items()
    ]
    what = "The search method." if tag == "name" else "Where checkpoints go, and which are kept."
    names: Schema = {"enum": list(kinds), "description": "Which one."}
    found: Schema = {"type": "object", "description": what, "properties": {tag: names}, "allOf": cases}
    if default is None:
        return {**found, "required": [tag]}
    return {**found, "type": ["object", "null"], "properties": {tag: {**names, "default": default}}}


def _hyperparameter() -> Schema:
    """A declaration if there is a `type`, a group if it is another mapping, else a constant."""
    cases = [
        {
            "if": {"properties": {"type": {"const": kind}}},
            "then": {
                "properties": {"type": {"const": kind}, **keys},
                "required": [key for key in keys if key != "count"],
                "additionalProperties": False,
            },
        }
        for kind, keys in DECLARATIONS.items()
    ]
    declaration = {"properties": {"type": {"enum": list(DECLARATIONS)}}, "allOf": cases}
    return {
        "description": "A value, {type: int, minval: 1, maxval: 4}, or a group of hyperparameters.",
        "if": {"type": "object"},
        "then": {
            "if": {"required": ["type"]},
            "then": declaration,
            "else": {"additionalProperties": {"$ref": "#/$defs/hyperparameter"}},
        },
    }
