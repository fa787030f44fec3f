"""The section `searcher`: one class for each search method. The methods themselves are in `experiment.search`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, field_validator

from determined.experiment.config.sections import LARGEST, Length, Number, Section, ignored, kept

CLASS = re.compile(r"[A-Za-z0-9_.]+:[A-Za-z0-9_.]+")
REMOVED = ("sync_halving", "adaptive", "adaptive_simple")
MOST_RUNGS = 1000  # a slip of the keyboard would otherwise fill the memory
SOURCES = ("source_trial_id", "source_checkpoint_uuid")


# Fields that several methods have.
GOES_ON = "The fraction of trials that goes on at each rung is 1/divisor."
MaxTrials = Annotated[int | None, Field(ge=1, le=LARGEST, description="How many trials to create in all.")]
AtOnce = Annotated[
    int, Field(ge=0, le=LARGEST, description="How many trials may be under way at once; 0: the method decides.")
]
TimeMetric = Annotated[
    str | None,
    Field(min_length=1, description="What time is counted in: batches, epochs, or a validation metric."),
]
MaxTime = Annotated[int | None, Field(ge=1, le=LARGEST, description="The most time one trial gets.")]
Rungs = Annotated[int | None, Field(ge=1, le=MOST_RUNGS, description="How many times trials are compared.")]
Form = Annotated[
    Literal["stopping", "promotion"],
    Field(description="Stop the worse trials as they go, or pause all and promote the best."),
]


def length(value: Any, least: int = 1) -> Length | int:
    """Return a length, which is a number or one unit of `Length`; raise a ValueError that says what it has to be."""
    if isinstance(value, Length):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST:
        return value
    count = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else None
    is_count = isinstance(count, int) and not isinstance(count, bool) and least <= count <= LARGEST
    if is_count and value.keys() <= Length.model_fields.keys():
        return Length(**value)
    raise ValueError(
        f"is {value!r}, and has to be a length in exactly one unit, {least} or more, such as {{epochs: 10}}."
    )


class Searcher(Section):
    """What all search methods have."""

    metric: str | None = Field(default=None, min_length=1, description="The validation metric to search by.")
    smaller_is_better: bool = Field(default=True, description="Whether less of it is better.")
    source_trial_id: int | None = Field(
        default=None, ge=1, le=LARGEST, description="Start from this trial's newest checkpoint."
    )
    source_checkpoint_uuid: str | None = Field(default=None, min_length=1, description="Start from this checkpoint.")


class WithLength(Searcher):
    """Methods whose older configurations say how long to train."""

    max_length: Annotated[Length | int | None, BeforeValidator(length)] = kept(
        None, "how long to train, if the script does not say."
    )


class Single(WithLength):
    """One trial."""

    REQUIRED = ("metric",)
    name: Literal["single"] = "single"


class Random(WithLength):
    """Trials drawn at random."""

    REQUIRED = ("metric", "max_trials")
    name: Literal["random"] = "random"
    max_trials: MaxTrials = None
    max_concurrent_trials: AtOnce = 16


class Grid(WithLength):
    """Every point of the grid."""

    REQUIRED = ("metric",)
    name: Literal["grid"] = "grid"
    max_concurrent_trials: AtOnce = 16


class AsyncHalving(WithLength):
    """ASHA with one bracket: many trials for a short time, the best of them for longer."""

    REQUIRED = ("metric", "max_trials", "time_metric", "max_time", "num_rungs")
    name: Literal["async_halving"] = "async_halving"
    max_trials: MaxTrials = None
    max_concurrent_trials: AtOnce = 16
    time_metric: TimeMetric = None
    max_time: MaxTime = None
    num_rungs: Rungs = None
    divisor: Number = Field(default=4, gt=1, description=GOES_ON)
    form: Form = "stopping"
    stop_once: bool | None = ignored("trials are always stopped once.")


class AdaptiveAsha(WithLength):
    """ASHA with several brackets, so that nobody has to know how soon trials can be compared."""

    REQUIRED = ("metric", "max_trials", "time_metric", "max_time")
    name: Literal["adaptive_asha"] = "adaptive_asha"
    max_trials: MaxTrials = None
    max_concurrent_trials: AtOnce = 16
    time_metric: TimeMetric = None
    max_time: MaxTime = None
    divisor: Number = Field(default=4, gt=1, description=GOES_ON)
    max_rungs: int = Field(
        default=5, ge=1, le=MOST_RUNGS, description="The most times trials are compared in a bracket."
    )
    mode: Literal["standard", "aggressive", "conservative"] = Field(
        default="standard", description="How early trials stop."
    )
    bracket_rungs: list[Annotated[int, Field(ge=1, le=MOST_RUNGS)]] = Field(
        default_factory=list, description="Rungs of each bracket; overrides mode and max_rungs."
    )
    form: Form = "stopping"
    stop_once: bool | None = ignored("trials are always stopped once.")


class Optuna(Searcher):
    """Trials proposed by a sampler of Optuna; with time_metric, max_time and num_rungs, stopped as in async_halving."""

    REQUIRED = ("metric", "max_trials")
    name: Literal["optuna"] = "optuna"
    sampler: str = Field(
        default="TPESampler", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="A class in optuna.samplers."
    )
    sampler_args: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")
    max_trials: MaxTrials = None
    max_concurrent_trials: AtOnce = 16
    time_metric: TimeMetric = None
    max_time: MaxTime = None
    num_rungs: Rungs = None
    divisor: Number | None = Field(default=None, gt=1, description="As in async_halving; 4 where trials are stopped.")


class Custom(Searcher):
    """A search method of your own, from the context directory; all other keys are passed on to it."""

    model_config = ConfigDict(extra="allow")
    REQUIRED = ("metric",)
    name: Literal["custom"] = "custom"
    unit: Literal["batches", "epochs", "records"] | None = Field(default=None, description="What its lengths count.")
    method: str | None = Field(default=None, description="module:Class in the context directory.")
    args: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments of the class.")
    class_: str | None = Field(default=None, alias="class", exclude=True, description="The same as method.")
    entrypoint: str | None = Field(default=None, exclude=True, description="The same as method.")

    @field_validator("method", "class_", "entrypoint")
    @classmethod
    def _names_a_class(cls, value: str | None) -> str | None:
        if value is not None and not CLASS.fullmatch(value):
            raise ValueError(f"is {value!r}, and has to be of the form module:Class.")
        return value


class Unnamed(Searcher):
    """A searcher that does not say which it is, yet."""

    model_config = ConfigDict(extra="allow")
    REQUIRED = ("name", "metric")
    name: None = None


class Removed(Section):
    """A searcher that was removed."""

    model_config = ConfigDict(extra="allow")
    name: Literal["sync_halving", "adaptive", "adaptive_simple"]


SEARCHERS: dict[str, type[Section]] = {
    "single": Single, "random": Random, "grid": Grid, "async_halving": AsyncHalving, "adaptive_asha": AdaptiveAsha,
    "optuna": Optuna, "custom": Custom,
}  # fmt: skip
ALIASES = {"asha": "async_halving"}


def method(value: Any) -> Any:
    """Return the tag of the class that reads this section."""
    name = value.get("name", "unnamed") if isinstance(value, dict) else getattr(value, "name", None) or "unnamed"
    return "removed" if name in REMOVED else name if isinstance(name, str) else "unknown"


AnySearcher = Annotated[
    Annotated[Single, Tag("single")]
    | Annotated[Random, Tag("random")]
    | Annotated[Grid, Tag("grid")]
    | Annotated[AsyncHalving, Tag("async_halving")]
    | Annotated[AdaptiveAsha, Tag("adaptive_asha")]
    | Annotated[Optuna, Tag("optuna")]
    | Annotated[Custom, Tag("custom")]
    | Annotated[Unnamed, Tag("unnamed")]
    | Annotated[Removed, Tag("removed")],
    Discriminator(method),
]
