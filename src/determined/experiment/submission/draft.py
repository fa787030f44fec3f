"""The text that a person starts from who forks, continues or searches around an experiment; nothing is submitted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from determined import errors
from determined._redact import redacted
from determined.experiment.config import experiment_file
from determined.experiment.config.experiment_file import ConfigFile
from determined.experiment.config.searcher import SEARCHERS, SOURCES
from determined.experiment.config.yaml_values import LOADER
from determined.experiment.submission.submit import SubmitRequest, checked_config, written

if TYPE_CHECKING:
    from determined.store.experiments import ExperimentRow

TYPED = "the configuration"
"""What messages call a text that is typed."""


def read_text(text: str) -> ConfigFile | None:
    """Return what a typed text says; None if it says nothing, as comments do.

    Example::

        read_text("name: mnist").values  # {"name": "mnist"}
    """
    return None if not text.strip() or experiment_file.load(text).values is None else experiment_file.parse(text, TYPED)


def of_experiment(row: ExperimentRow) -> ConfigFile:
    """Return an experiment's configuration, secrets masked: as it was written, if that says all of it.

    It does not if a template was below it, if it holds secrets, or if the experiment was continued with other values.
    """
    effective = redacted(row.config or {})
    try:
        file = read_text(row.original_config or "")
        if file is not None and _is_all(file, row, effective):
            return file
    except errors.ConfigError:  # of another release
        pass
    return ConfigFile(TYPED, written(effective), effective)


def _is_all(file: ConfigFile, row: ExperimentRow, effective: Mapping[str, Any]) -> bool:
    again = redacted(checked_config(SubmitRequest(file, row.owner)).effective())
    return _without_seed(again) == _without_seed(effective)


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the seed, which is drawn anew for each that does not say one."""
    return {key: value for key, value in config.items() if key != "reproducibility"}


def with_name(file: ConfigFile, name: str) -> ConfigFile:
    """Return a configuration with another name; the rest of its text stays as it is.

    Example::

        with_name(read_text("name: a  # mine"), "b").text  # "name: b  # mine"
    """
    if file.values.get("name") == name:
        return file
    values = {"name": "", **file.values}
    values["name"] = name
    text = _renamed(file.text, name)
    return replace(file, text=text if text is not None and _says(text, values) else written(values), values=values)


def _says(text: str, values: Mapping[str, Any]) -> bool:
    try:
        return bool(experiment_file.load(text).values == values)
    except errors.ConfigError:  # an anchor was in what is gone
        return False


def _renamed(text: str, name: str) -> str | None:
    """Return the text with another name, or None if it is too odd for that."""
    shown = written({"name": name}).removeprefix("name: ").rstrip("\n")
    if "\n" in shown:
        shown = json.dumps(name, ensure_ascii=False)
    try:
        root = yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError:
        return None
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    for key, value in root.value:
        if key.value == "name":
            start, end = value.start_mark, value.end_mark
            return text[: start.index] + shown + text[end.index :] if start.line == end.line else None
    return f"name: {shown}\n{text}"


def of_trial(file: ConfigFile, trial_id: int, hparams: Mapping[str, Any], *, is_continued: bool = False) -> ConfigFile:
    """Return a configuration of one trial with these hyperparameters.

    Args:
        file: The experiment's.
        trial_id: Which trial it is.
        hparams: Its hyperparameters, secrets masked.
        is_continued: Begin with its newest checkpoint.
    """
    searcher = file.values.get("searcher")
    section = as_method(searcher if isinstance(searcher, Mapping) else {}, "single")
    section = {key: value for key, value in section.items() if key not in SOURCES}
    if is_continued:
        section["source_trial_id"] = trial_id
    values = {**file.values, "hyperparameters": constants(hparams), "searcher": section}
    return ConfigFile(TYPED, written(values), values)


def constants(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Return declarations of values that do not vary; groups stay groups."""
    return {
        name: constants(value) if isinstance(value, Mapping) and value and "type" not in value else constant(value)
        for name, value in hparams.items()
    }


def constant(value: Any) -> Any:
    """Return the declaration of a value that does not vary; a mapping would be taken for a group of them."""
    return {"type": "const", "val": value} if isinstance(value, Mapping) else value


def as_method(searcher: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a searcher section for another method, with the settings that it has, too."""
    known = {field.alias or key for key, field in SEARCHERS[name].model_fields.items()} - {"name"}
    kept = {key: value for key, value in searcher.items() if key in known and value is not None}
    return {"name": name, **kept}


def with_search(
    file: ConfigFile,
    searcher: Mapping[str, Any],
    declared: Sequence[tuple[tuple[str, ...], Any]],
) -> ConfigFile:
    """Return a configuration with another search; keys keep their order.

    Args:
        file: The experiment's.
        searcher: The new section.
        declared: Path and declaration of each hyperparameter.
    """
    tree: dict[str, Any] = {}
    for path, declaration in declared:
        group = tree
        for key in path[:-1]:
            inner = group.setdefault(key, {})
            if not isinstance(inner, dict) or "type" in inner:
                raise errors.InvalidValue(
                    f"{'.'.join(path)} is inside of {key}, which is a hyperparameter, not a group."
                )
            group = inner
        if path[-1] in group:
            raise errors.InvalidValue(f"{'.'.join(path)} is there twice. Keep one of them.")
        group[path[-1]] = declaration
    known = file.values.get("hyperparameters")
    values = {**file.values, "hyperparameters": _in_order_of(tree, known), "searcher": dict(searcher)}
    return ConfigFile(TYPED, written(values), values)


def _in_order_of(tree: Mapping[str, Any], known: Any) -> dict[str, Any]:
    """Return a mapping with its keys in the order of another one, and new ones last."""
    order = known if isinstance(known, Mapping) else {}
    return {
        key: _in_order_of(tree[key], order.get(key)) if isinstance(tree[key], Mapping) else tree[key]
        for key in (*(key for key in order if key in tree), *(key for key in tree if key not in order))
    }
