"""Rules between keys of an experiment file, which no single field can check.

They read plain values, so that they report problems even where other parts of the file are wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from determined.artifacts.config import from_config
from determined.errors import StorageConfigError
from determined.experiment.config.explain import removed
from determined.experiment.config.fields import Fields
from determined.experiment.config.legacy import is_trial_class
from determined.experiment.config.problems import Problem
from determined.experiment.config.searcher import REMOVED, SOURCES, Optuna, Removed, Unnamed
from determined.experiment.config.storage import Azure

EXAMPLES = {
    "name": "name: adaptive_asha", "metric": "metric: validation_loss", "max_trials": "max_trials: 16",
    "time_metric": "time_metric: epochs", "max_time": "max_time: 16", "num_rungs": "num_rungs: 4",
    "container_path": "container_path: /data/checkpoints", "host_path": "host_path: /data",
    "bucket": "bucket: my-models", "container": "container: my-models",
}  # fmt: skip
TIME = ("time_metric", "max_time")


def contradictions(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for keys that exclude each other: part of the check of shape."""
    yield from _policies(values.get("log_policies"))
    yield from _mounts(values.get("bind_mounts"))
    yield from _searcher(_section(values, "searcher"))
    yield from _storage(_section(values, "checkpoint_storage"))
    yield from _profiling(_section(values, "profiling"))
    yield from _records(values)


def _section(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if isinstance(found, Mapping) else {}


def _entries(values: Any) -> list[Mapping[str, Any]]:
    return [entry if isinstance(entry, Mapping) else {} for entry in values] if isinstance(values, list) else []


def _policies(values: Any) -> Iterator[Problem]:
    entries = _entries(values)
    names = Counter(entry["name"] for entry in entries if isinstance(entry.get("name"), str))
    for i, entry in enumerate(entries):
        if entry and "name" not in entry and not {"pattern", "action"} <= entry.keys():
            yield Problem(f"log_policies[{i}]", "needs a name, or both a pattern and an action.")
        name = entry.get("name")
        if isinstance(name, str) and names[name] > 1:
            yield Problem(
                f"log_policies[{i}].name", f"is {name!r}, which {names[name]} policies are called. Rename one."
            )
            names[name] = 0


def _mounts(values: Any) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, entry in enumerate(_entries(values)):
        place = entry.get("container_path")
        if isinstance(place, str) and place in seen:
            yield Problem(
                f"bind_mounts[{i}].container_path", f"is {place!r}, like that of a mount before it. Rename one."
            )
        if isinstance(place, str):
            seen.add(place)


def _searcher(values: Mapping[str, Any]) -> Iterator[Problem]:
    if all(values.get(source) is not None for source in SOURCES):
        yield Problem("searcher", f"has both {SOURCES[0]} and {SOURCES[1]}. Keep one of them.")
    named = [key for key in ("method", "class", "entrypoint") if values.get(key) is not None]
    if values.get("name") == "custom" and len(named) > 1:
        yield Problem("searcher", f"has both {' and '.join(named)}, which mean the same. Keep one of them.")


def _storage(values: Mapping[str, Any]) -> Iterator[Problem]:
    kind = values.get("type")
    if kind == "shared_fs" and isinstance(values.get("host_path"), str):
        section = {key: values[key] for key in ("type", "host_path", "storage_path") if key in values}
        try:
            from_config(section, container_root=None)
        except StorageConfigError as e:
            if "storage_path" in str(e):
                yield Problem(
                    "checkpoint_storage.storage_path", str(e).removeprefix("checkpoint_storage.storage_path ")
                )
    if kind == "azure" and "connection_string" in values and {"account_url", "credential"} & values.keys():
        reason = "authenticates in two ways. Keep connection_string, or account_url with credential."
        yield Problem("checkpoint_storage", reason)


def _profiling(values: Mapping[str, Any]) -> Iterator[Problem]:
    begin, end = values.get("begin_on_batch"), values.get("end_after_batch")
    if isinstance(begin, int) and isinstance(end, int) and begin > end:
        reason = f"is {begin}, and has to be at most end_after_batch, which is {end}."
        yield Problem("profiling.begin_on_batch", reason)


def _records(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that a length in records comes with global_batch_size, which turns it into batches."""
    lengths: dict[str, Any] = {}
    searcher = _section(values, "searcher")
    if searcher.get("name") in ("single", "random", "grid"):  # elsewhere records are of no use, whatever the batch
        lengths["searcher.max_length"] = searcher.get("max_length")
    if is_trial_class(values.get("entrypoint")):
        lengths |= {key: values.get(key) for key in ("min_validation_period", "min_checkpoint_period")}
    for path, length in lengths.items():
        counts_records = isinstance(length, Mapping) and bool(length.get("records"))
        if counts_records and "global_batch_size" not in _section(values, "hyperparameters"):
            reason = "is in records, which needs hyperparameters.global_batch_size. Add it, or use batches or epochs."
            yield Problem(path, reason)


def missing(fields: Fields, *, managed: bool) -> Iterator[Problem]:
    """Yield a problem for each required key that no layer gave: the check of completeness."""
    if managed and fields.entrypoint is None:
        yield Problem("entrypoint", 'is missing. Say what to run, for example "entrypoint: python3 train.py".')
    if (fields.workspace == "") != (fields.project == ""):
        given, absent = ("workspace", "project") if fields.workspace else ("project", "workspace")
        reason = f"is given without {absent}. Give both workspace and project, or neither."
        yield Problem(given, reason)
    yield from _missing_in_searcher(fields)
    storage = fields.checkpoint_storage
    for key in storage.REQUIRED:
        if getattr(storage, key) is None:
            yield Problem(f"checkpoint_storage.{key}", f'is missing. Add for example "{EXAMPLES[key]}".')
    if isinstance(storage, Azure) and storage.connection_string is None and storage.account_url is None:
        yield Problem("checkpoint_storage", "needs connection_string, or account_url with credential.")
    for i, mount in enumerate(fields.bind_mounts):
        for key in mount.REQUIRED:
            if getattr(mount, key) is None:
                yield Problem(f"bind_mounts[{i}].{key}", "is missing. A mount has host_path and container_path.")


def _missing_in_searcher(fields: Fields) -> Iterator[Problem]:
    searcher = fields.searcher
    if searcher is None:
        yield Problem("searcher", 'is missing. Add for example "searcher: {name: single, metric: validation_loss}".')
        return
    name = "a searcher" if isinstance(searcher, Unnamed) else str(searcher.name)
    absent = [key for key in searcher.REQUIRED if getattr(searcher, key) is None]
    if isinstance(searcher, Optuna):
        absent += _incomplete_stopping(searcher)
    if len(TIME) == len(times := [key for key in TIME if key in absent]):
        length = getattr(searcher, "max_length", None)
        reason = f"{name} needs time_metric and max_time"
        if length is not None:
            reason += "; max_length stands for both only in batches or epochs"
        yield Problem(
            "searcher", f'{reason}. Add for example "{EXAMPLES["time_metric"]}" and "{EXAMPLES["max_time"]}".'
        )
        absent = [key for key in absent if key not in times]
    for key in absent:
        yield Problem(f"searcher.{key}", f'is missing, and {name} needs it. Add for example "{EXAMPLES[key]}".')


def _incomplete_stopping(searcher: Optuna) -> list[str]:
    keys = ("time_metric", "max_time", "num_rungs")
    is_wanted = any(getattr(searcher, key) is not None for key in (*keys, "divisor"))
    return [key for key in keys if is_wanted and getattr(searcher, key) is None]


def outdated(fields: Fields) -> Iterator[Problem]:
    """Yield a problem for a searcher that was removed: the check of currency."""
    if isinstance(fields.searcher, Removed):
        assert fields.searcher.name in REMOVED
        yield Problem("searcher.name", removed(fields.searcher.name))
