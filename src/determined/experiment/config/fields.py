"""Every key of an experiment file, with its type, range and default. `experiment_config` checks them."""

from __future__ import annotations

import random
from typing import Any, Literal

from pydantic import Field, field_validator

from determined.experiment.config.searcher import AnySearcher, length
from determined.experiment.config.sections import (
    LARGEST,
    BindMount,
    Environment,
    Integrations,
    Length,
    LogPolicy,
    Optimizations,
    Profiling,
    Reproducibility,
    Resources,
    RetentionPolicy,
    Section,
    Slurm,
    ignored,
    kept,
)
from determined.experiment.config.storage import CheckpointStorage, Directory

HOW = """able airy amber ample azure bold brave brief bright brisk calm clear clever cosy crisp daring deep
eager early fair fast firm fleet fond fresh gentle glad golden grand green handy happy hardy keen
kind late light lively loyal lucky mellow merry mild neat noble patient plain polite proud quick
quiet rapid ready rosy round royal sharp silent silver simple sleek smart smooth snug solid spry
steady still sturdy sunny sweet swift tall tidy true vast vivid warm wise witty young"""
WHAT = """acorn alder anchor aspen badger bay beacon bear birch bison breeze bridge brook canyon cedar cliff
cloud comet coral crane creek delta dune eagle ember falcon fern finch fjord forest fox garden
glacier grove harbor hawk heron hill island ivy juniper kestrel lagoon lake lark lynx maple marsh
meadow moon moss oak ocean orchid osprey otter owl pebble pine planet pond prairie quartz rain raven
reef ridge river robin sage shore sparrow spring spruce star stone stream summit swan thistle tide
trail tulip valley wave willow wind wolf wren"""


def random_name(source: random.Random | None = None) -> str:
    """Three words that nobody chose.

    Example::

        random_name()  # "Experiment (calm silver heron)"
    """
    source = source or random.SystemRandom()  # training's own random streams are left alone
    first, second = source.sample(HOW.split(), 2)
    return f"Experiment ({first} {second} {source.choice(WHAT.split())})"


DEFAULT_LOG_POLICIES = (
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
)


class Fields(Section):
    """An experiment: what to run, what to search, and where."""

    name: str = Field(default_factory=random_name, description="Short name; can be changed later.")
    description: str | None = Field(
        default=None, description="Free text, best below 255 characters; can be changed later."
    )
    labels: list[str] = Field(default_factory=list, description="Tags; can be changed later.")
    data: dict[str, Any] = Field(default_factory=dict, description="Anything; the trial reads it as user_data.")
    workspace: str = Field(default="", description="Where the experiment is listed; goes with project.")
    project: str = Field(default="", description="Where the experiment is listed; goes with workspace.")
    entrypoint: str | list[str] | None = Field(
        default=None, description="What to run: a line for sh, or a list of words."
    )
    max_restarts: int = Field(default=5, ge=0, le=LARGEST, description="How many failures of a trial are tolerated.")
    log_policies: list[LogPolicy] = Field(default_factory=list, description="React to log lines.")
    retention_policy: RetentionPolicy = Field(default=RetentionPolicy(), description="How long logs are kept.")
    debug: bool = Field(default=False, description="Verbose logs.")
    perform_initial_validation: bool = Field(default=False, description="Validate before the first batch.")
    checkpoint_policy: Literal["best", "all", "none"] = Field(
        default="best", description="Checkpoint after a validation."
    )
    checkpoint_storage: CheckpointStorage = Field(
        default=Directory(), description="Where checkpoints go; which are kept."
    )
    hyperparameters: dict[str, Any] = Field(default_factory=dict, description="The search space.")
    searcher: AnySearcher | None = Field(default=None, description="The search method.")
    resources: Resources = Field(default=Resources(), description="Slots and order.")
    environment: Environment = Field(default=Environment(), description="Environment variables.")
    bind_mounts: list[BindMount] = Field(default_factory=list, description="Directories under another name.")
    reproducibility: Reproducibility = Field(default_factory=Reproducibility, description="The seed.")
    profiling: Profiling = Field(default=Profiling(), description="The profiler of system metrics.")
    preemption_timeout: int = Field(
        default=3600, ge=0, le=LARGEST, description="Seconds from the signal to stop to the kill."
    )
    integrations: Integrations = Field(default=Integrations(), description="Other systems.")
    slurm: Slurm = Field(default=Slurm(), description="Used only under Slurm.")

    scheduling_unit: int | None = kept(None, "batches between two reports of a trial class.", ge=1, le=LARGEST)
    min_validation_period: Length | None = kept(None, "batches between two validations of a trial class.")
    min_checkpoint_period: Length | None = kept(None, "batches between two checkpoints of a trial class.")
    optimizations: Optimizations | None = kept(None, "how a trial class treats gradients.")
    records_per_epoch: int | None = ignored("an epoch is one pass over the training data.")
    data_layer: Any = ignored()
    security: Any = ignored()
    tensorboard_storage: Any = ignored()
    pbs: Any = ignored()

    @field_validator("entrypoint", mode="before")
    @classmethod
    def _command(cls, value: Any) -> Any:
        words = value if isinstance(value, list) else [value]
        if not all(isinstance(word, str) for word in words) or not words or not words[0].strip():
            raise ValueError(f"is {value!r}, and has to be text or a list of words, such as 'python3 train.py'.")
        return value

    @field_validator("labels")
    @classmethod
    def _once_each(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))

    @field_validator("min_validation_period", "min_checkpoint_period", mode="before")
    @classmethod
    def _one_unit(cls, value: Any) -> Length:
        found = length(value, least=0)
        if isinstance(found, int):
            raise ValueError(f"is {value!r}, and has to be a length in exactly one unit, such as {{batches: {value}}}.")
        return found
