"""Fields of older experiment files: they keep working where they have a meaning, with one warning each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from determined.experiment.config.fields import Fields
from determined.experiment.config.searcher import AdaptiveAsha, AsyncHalving, Custom, Optuna, WithLength
from determined.experiment.config.sections import BindMount, Length, is_retired
from determined.experiment.config.storage import SharedFs

TRIAL_CLASS = re.compile(r"[A-Za-z0-9_.]+:[A-Za-z0-9_]+")
LAUNCHED_CLASS = re.compile(r"(?:^|\s)--trial[\s=]+[A-Za-z0-9_.]+:[A-Za-z0-9_]+")
LONGEST_DESCRIPTION = 255
WARNINGS = {
    "scheduling_unit": "scheduling_unit is the reporting period of trial-class entrypoints. "
    "In a script, use fit(reporting_period=...).",
    "min_validation_period": "min_validation_period is used by trial-class entrypoints only. "
    "In a script, use fit(validation_period=...).",
    "min_checkpoint_period": "min_checkpoint_period is used by trial-class entrypoints only. "
    "In a script, use fit(checkpoint_period=...).",
    "records_per_epoch": "records_per_epoch is ignored: an epoch is one pass over the chief's training loader.",
    "data_layer": "data_layer is ignored.",
    "security": "security is ignored.",
    "tensorboard_storage": "tensorboard_storage is ignored: event files go to the data directory.",
    "pbs": "pbs is ignored: there is no PBS here.",
}


def with_derived(fields: Fields) -> Fields:
    """Fill in fields that follow from others: ASHA's time from max_length, a custom method from its other names."""
    searcher = fields.searcher
    if isinstance(searcher, (AsyncHalving, AdaptiveAsha)) and (unit := _unit(searcher)):
        assert isinstance(searcher.max_length, Length)
        times = {"time_metric": unit, "max_time": getattr(searcher.max_length, unit)}
        return fields.model_copy(update={"searcher": searcher.model_copy(update=times)})
    if isinstance(searcher, Custom) and searcher.method is None:
        named = searcher.class_ or searcher.entrypoint
        return fields.model_copy(update={"searcher": searcher.model_copy(update={"method": named})})
    if isinstance(searcher, Optuna) and searcher.num_rungs is not None and searcher.divisor is None:
        return fields.model_copy(update={"searcher": searcher.model_copy(update={"divisor": 4})})
    return fields


def _unit(searcher: AsyncHalving | AdaptiveAsha) -> str | None:
    """Return the unit of max_length if it replaces the missing time fields."""
    if searcher.time_metric is not None or searcher.max_time is not None or not isinstance(searcher.max_length, Length):
        return None
    return next((unit for unit in ("batches", "epochs") if getattr(searcher.max_length, unit)), None)


def warnings(given: Fields) -> Iterator[str]:
    """Yield what the user should know about a configuration that works, one sentence each.

    Args:
        given: The fields as the file gave them, before `with_derived`.
    """
    for key, sentence in WARNINGS.items():
        if getattr(given, key) is not None:
            yield sentence
    yield from _entrypoint(given.entrypoint)
    yield from _optimizations(given)
    yield from _profiling(given)
    yield from _searcher(given)
    yield from _containers(given)
    yield from _mounts(given.bind_mounts)
    yield from _advice(given)


def is_trial_class(entrypoint: Any) -> bool:
    """Return whether the entrypoint is a trial class rather than a script."""
    line = " ".join(map(str, entrypoint)) if isinstance(entrypoint, list) else str(entrypoint)
    return bool(TRIAL_CLASS.fullmatch(line) or LAUNCHED_CLASS.search(line))


def _entrypoint(entrypoint: str | list[str] | None) -> Iterator[str]:
    if is_trial_class(entrypoint):
        yield (
            f"entrypoint {entrypoint!r} names a trial class, which is deprecated. "
            "Write a script that calls Trainer.fit(), and run it: python3 train.py."
        )


def _optimizations(given: Fields) -> Iterator[str]:
    if given.optimizations is not None:
        yield "optimizations is used by trial-class entrypoints only; of its keys, those that are about gradients."


def _profiling(given: Fields) -> Iterator[str]:
    yield from _ignored("profiling", given.profiling, "the profiler records the whole run.")


def _searcher(given: Fields) -> Iterator[str]:
    searcher = given.searcher
    if getattr(searcher, "stop_once", None) is not None:
        yield "searcher.stop_once is ignored: use form: stopping or form: promotion."
    if not isinstance(searcher, WithLength) or searcher.max_length is None:
        return
    if not isinstance(searcher, (AsyncHalving, AdaptiveAsha)):
        yield "searcher.max_length is used only where the script gives no length. Use fit(max_length=...)."
    elif unit := _unit(searcher):
        count = getattr(searcher.max_length, unit)
        yield f"searcher.max_length is deprecated: it is read as time_metric: {unit}, max_time: {count}. Write these."
    else:
        yield "searcher.max_length is deprecated: max_time decides how long a trial may train."


def _containers(given: Fields) -> Iterator[str]:
    yield from _ignored("environment", given.environment)
    yield from _ignored("resources", given.resources)
    if given.integrations.pachyderm is not None:
        yield "integrations.pachyderm is ignored."
    if isinstance(given.checkpoint_storage, SharedFs):
        yield from _ignored("checkpoint_storage", given.checkpoint_storage, "checkpoints go to storage_path.")


def _ignored(path: str, section: BaseModel, why: str = "trials run without containers.") -> Iterator[str]:
    """Yield one sentence about all retired fields of a section that were given."""
    fields = type(section).model_fields
    names = [name for name, field in fields.items() if is_retired(field) and getattr(section, name) is not None]
    if names:
        yield f"{', '.join(f'{path}.{name}' for name in names)} {'is' if len(names) == 1 else 'are'} ignored: {why}"


def _mounts(mounts: list[BindMount]) -> Iterator[str]:
    for i, mount in enumerate(mounts):
        host, place = mount.host_path or "", mount.container_path or ""
        if Path(place).is_absolute() and os.path.normpath(place) != os.path.normpath(host):
            yield (
                f"bind_mounts[{i}] is ignored: {place} cannot stand for {host} without a container. "
                "Use the same path on both sides, or a relative container_path."
            )
        else:
            yield from _ignored(f"bind_mounts[{i}]", mount)


def _advice(given: Fields) -> Iterator[str]:
    resources = given.resources
    if resources.max_slots is not None and resources.max_slots < resources.slots_per_trial:
        yield (
            f"resources.max_slots is {resources.max_slots}, less than slots_per_trial ({resources.slots_per_trial}): "
            "no trial starts until you raise it."
        )
    if given.description is not None and len(given.description) >= LONGEST_DESCRIPTION:
        yield f"description has {len(given.description)} characters; lists show fewer than {LONGEST_DESCRIPTION}."
