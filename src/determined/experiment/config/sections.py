"""The smaller sections of an experiment file, one class each, and what all sections share.

Sections are strict: no unknown keys, no conversion of types. Searchers and storage have files of their own.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_serializer,
)

from determined.experiment.config.problems import shown
from determined.experiment.log_pattern import compiled

LARGEST = 2**53 - 1  # what JSON readers hold exactly


def _kept_whole(value: Any, check: Any) -> Any:
    """Check a number as a float, and keep 4 as 4."""
    checked = check(value)
    return value if isinstance(value, int) else checked


Number = Annotated[float, WrapValidator(_kept_whole), PlainSerializer(lambda value: value)]


def kept(default: Any = None, description: str = "", **rules: Any) -> Any:
    """A legacy field that still has an effect; it is shown only where it was given."""
    return Field(default, description=f"Older configurations: {description}", json_schema_extra=_RETIRED, **rules)


def ignored(description: str = "has no effect here.") -> Any:
    """A field that is accepted and left out of the effective configuration."""
    return Field(None, exclude=True, description=f"Ignored: {description}", json_schema_extra=_RETIRED)


_RETIRED: dict[str, Any] = {"deprecated": True}


class Section(BaseModel):
    """A mapping of the experiment file. Required keys may be absent here: completeness is checked after merging."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)
    REQUIRED: ClassVar[tuple[str, ...]] = ()
    SHOWS_NULL: ClassVar[bool] = True  # keys without a value are shown, so that people see what there is

    @model_serializer(mode="wrap")
    def _shown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        retired = {key for key, field in type(self).model_fields.items() if is_retired(field)}
        return {k: v for k, v in shown.items() if v is not None or (self.SHOWS_NULL and k not in retired)}


def is_retired(field: Any) -> bool:
    """Return whether this field exists for older configurations only."""
    return bool(field.json_schema_extra == _RETIRED)


VARIABLE = re.compile(r"[^=\s\0]+=[^\0]*", re.DOTALL)
SLOT_TYPES = ("cpu", "cuda", "rocm")


class Resources(Section):
    """Slots, and the order in which experiments get them."""

    slots_per_trial: int = Field(
        default=1, ge=0, le=LARGEST, description="Slots per trial; 0 is a CPU task that takes none."
    )
    max_slots: int | None = Field(
        default=None, ge=0, le=LARGEST, description="Most slots this experiment uses at once."
    )
    priority: int = Field(default=42, ge=1, le=99, description="Smaller runs first.")
    weight: Number = Field(default=1, gt=0, description="Share of this experiment, for fair-share schedulers.")
    resource_pool: str = Field(default="", description="Where to run; locally there is one pool.")
    is_single_node: bool | None = Field(default=None, description="Whether all slots of a trial are on one machine.")
    shm_size: Any = ignored()
    devices: Any = ignored()
    native_parallel: Any = ignored()
    agent_label: Any = ignored()


def assignments(entries: Any) -> Any:
    """Return `entries` if each is NAME=VALUE; raise a ValueError that names those that are not."""
    given = entries if isinstance(entries, list) else []
    if wrong := [shown(e) for e in given if not isinstance(e, str) or not VARIABLE.fullmatch(e)]:
        raise ValueError(f'has {", ".join(wrong)}, and has to be a list of texts of the form "NAME=VALUE".')
    return entries


class EnvironmentVariables(Section):
    """Lists of NAME=VALUE, one for each type of slot."""

    cpu: list[str] = Field(default_factory=list, description="Set on CPU slots.")
    cuda: list[str] = Field(default_factory=list, description="Set on CUDA slots.")
    rocm: list[str] = Field(default_factory=list, description="Set on ROCm slots.")

    @field_validator("cpu", "cuda", "rocm", mode="before")
    @classmethod
    def _checked(cls, entries: Any) -> Any:
        return assignments(entries)


class Environment(Section):
    """What the processes of a trial find around them."""

    environment_variables: EnvironmentVariables = Field(
        default_factory=EnvironmentVariables, description="NAME=VALUE, as a list, or lists by cpu, cuda and rocm."
    )
    image: Any = ignored()
    force_pull_image: Any = ignored()
    registry_auth: Any = ignored()
    pod_spec: Any = ignored()
    ports: Any = ignored()
    proxy_ports: Any = ignored()
    add_capabilities: Any = ignored()
    drop_capabilities: Any = ignored()

    @field_validator("environment_variables", mode="before")
    @classmethod
    def _by_slot_type(cls, value: Any) -> Any:
        if isinstance(value, list):
            return dict.fromkeys(SLOT_TYPES, assignments(value))
        if isinstance(value, dict) and "gpu" in value:
            if "cuda" in value:
                raise ValueError("has both gpu and cuda, which mean the same. Keep cuda.")
            return {"cuda" if key == "gpu" else key: entries for key, entries in value.items()}
        return value


class LogPolicy(Section):
    """What to do when a log line matches."""

    SHOWS_NULL = False
    name: str | None = Field(default=None, min_length=1, description="Shown on the trial when a line matched.")
    pattern: str | None = Field(
        default=None, description="RE2 pattern, searched in each line; absent: this policy is off."
    )
    action: Literal["cancel_retries", "exclude_node"] | None = Field(
        default=None, description="Beside showing the name."
    )

    @field_validator("action", mode="before")
    @classmethod
    def _unwrapped(cls, value: Any) -> Any:
        return value["type"] if isinstance(value, dict) and value.keys() == {"type"} else value

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            compiled(value)
        return value


class BindMount(Section):
    """A directory of this machine that the trial finds under another name."""

    REQUIRED = ("host_path", "container_path")
    host_path: str | None = Field(default=None, description="Absolute path on this machine.")
    container_path: str | None = Field(default=None, description="Name in the working directory of the trial.")
    read_only: bool | None = ignored()
    propagation: str | None = ignored()

    @field_validator("host_path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not Path(value).is_absolute():
            raise ValueError(f"is {value!r}, and has to be an absolute path, such as /data.")
        return value

    @field_validator("container_path")
    @classmethod
    def _inside(cls, value: str) -> str:
        parts = Path(os.path.normpath(value)).parts
        if not parts or parts[0] == "..":
            raise ValueError(f"is {value!r}, which is not a name inside the working directory. Use for example data.")
        return value


class RetentionPolicy(Section):
    """How long logs are kept."""

    log_retention_days: int = Field(
        default=-1, ge=-1, le=32767, description="-1 keeps logs for ever, 0 until next cleanup."
    )


class Reproducibility(Section):
    """What makes a search repeatable."""

    experiment_seed: int = Field(
        default_factory=lambda: int(time.time()) % 2**31,
        ge=0,
        le=2**31 - 1,
        description="Seed of sampling and of the trials' seeds. By default the time of submission.",
    )


class Profiling(Section):
    """The profiler of system metrics."""

    enabled: bool = Field(default=False, description="Whether to record system metrics.")
    begin_on_batch: int | None = ignored()
    end_after_batch: int | None = ignored()
    sync_timings: bool | None = ignored()


class Webhooks(Section):
    """Which webhooks fire."""

    webhook_id: list[int] | None = Field(default=None, description="By number.")
    webhook_name: list[str] | None = Field(default=None, description="By name.")
    exclude: bool = Field(default=False, description="Whether no webhook fires at all.")


class Integrations(Section):
    """Other systems."""

    webhooks: Webhooks | None = Field(default=None, description="Which webhooks fire.")
    pachyderm: Any = ignored()


class Slurm(Section):
    """Used only where trials run under Slurm."""

    SHOWS_NULL = False
    slots_per_node: int | None = Field(default=None, ge=1, le=LARGEST, description="Slots on each node.")
    gpu_type: str | None = Field(default=None, description="Type of GPU to ask for.")
    sbatch_args: list[str] | None = Field(default=None, description="Further options of sbatch.")


class Length(Section):
    """How long, in exactly one unit."""

    SHOWS_NULL = False
    batches: int | None = Field(default=None, ge=0, le=LARGEST, description="In batches.")
    records: int | None = Field(default=None, ge=0, le=LARGEST, description="In records; needs global_batch_size.")
    epochs: int | None = Field(default=None, ge=0, le=LARGEST, description="In epochs.")


class Optimizations(Section):
    """Passed to trial classes that are entrypoints themselves; all other keys are ignored."""

    model_config = ConfigDict(extra="ignore")
    aggregation_frequency: int | None = kept(None, "batches between two optimizer steps.", ge=1, le=LARGEST)
    average_aggregated_gradients: bool | None = kept(None, "whether gradients are averaged, rather than summed.")
    gradient_compression: bool | None = kept(None, "whether gradients travel as fp16.")
