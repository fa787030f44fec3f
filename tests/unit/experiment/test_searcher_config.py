"""The section `searcher`: which field belongs to which method, with its default and range."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import ConfigError
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.searcher import SEARCHERS
from determined.experiment.config.sections import is_retired

MINIMAL: dict[str, dict[str, Any]] = {
    "single": {},
    "random": {"max_trials": 4},
    "grid": {},
    "async_halving": {"max_trials": 4, "time_metric": "epochs", "max_time": 8, "num_rungs": 2},
    "adaptive_asha": {"max_trials": 4, "time_metric": "epochs", "max_time": 8},
    "optuna": {"max_trials": 4},
    "custom": {},
}
VALUES = {
    "max_trials": 3, "max_concurrent_trials": 0, "time_metric": "batches", "max_time": 1, "num_rungs": 1,
    "divisor": 1.5, "max_rungs": 1, "mode": "conservative", "bracket_rungs": [1, 2], "form": "promotion",
    "sampler": "RandomSampler", "sampler_args": {"seed": None},
}  # fmt: skip
OWNERS = {
    "max_trials": {"random", "async_halving", "adaptive_asha", "optuna"},
    "max_concurrent_trials": {"random", "grid", "async_halving", "adaptive_asha", "optuna"},
    "time_metric": {"async_halving", "adaptive_asha", "optuna"},
    "max_time": {"async_halving", "adaptive_asha", "optuna"},
    "num_rungs": {"async_halving", "optuna"},
    "divisor": {"async_halving", "adaptive_asha", "optuna"},
    "max_rungs": {"adaptive_asha"},
    "mode": {"adaptive_asha"},
    "bracket_rungs": {"adaptive_asha"},
    "form": {"async_halving", "adaptive_asha"},
    "sampler": {"optuna"},
    "sampler_args": {"optuna"},
}
DEFAULTS = {"max_concurrent_trials": 16, "divisor": 4, "max_rungs": 5, "mode": "standard", "bracket_rungs": [],
            "form": "stopping", "sampler": "TPESampler", "sampler_args": {}, "smaller_is_better": True}  # fmt: skip


def effective(name: str, **fields: Any) -> dict[str, Any]:
    section = {"name": name, "metric": "loss", **MINIMAL.get(str(name), {}), **fields}
    found: dict[str, Any] = ExperimentConfig.parse({"entrypoint": "x", "searcher": section}).effective()["searcher"]
    return found


@pytest.mark.parametrize("name", MINIMAL)
def test_defaults(name: str) -> None:
    """platform 3.1: every method owns the fields of its column, with their defaults."""
    found = effective(name)
    for key, default in DEFAULTS.items():
        if key in found and not (name == "optuna" and key == "divisor"):
            assert found[key] == default
    owned = {key for key, owners in OWNERS.items() if name in owners}
    assert owned == OWNERS.keys() & found.keys()


@pytest.mark.parametrize("key", OWNERS)
@pytest.mark.parametrize("name", [name for name in MINIMAL if name != "custom"])
def test_fields_belong_to_methods(name: str, key: str) -> None:
    """platform 3.1: a field given to a searcher that does not own it is an error."""
    together = {"time_metric": "epochs", "max_time": 8, "num_rungs": 2} if name == "optuna" else {}
    if name in OWNERS[key]:
        assert effective(name, **{**together, key: VALUES[key]})[key] == VALUES[key]
    else:
        with pytest.raises(ConfigError, match=rf"<config>\.searcher\.{key}: belongs to .*, not to {name}"):
            effective(name, **{key: VALUES[key]})


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in MINIMAL for key in SEARCHERS[name].REQUIRED])
def test_required_fields(name: str, key: str) -> None:
    """platform 3.1: what a method needs is asked for by name, with what to type."""
    with pytest.raises(ConfigError, match=f'{name}|a searcher.*{key}.*Add for example "') as caught:
        effective(name, **{key: None})
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("name", "key", "bad"),
    [
        ("random", "max_trials", 0), ("random", "max_trials", 1.5), ("random", "max_concurrent_trials", -1),
        ("async_halving", "max_time", 0), ("async_halving", "num_rungs", 0), ("async_halving", "divisor", 1),
        ("async_halving", "form", "both"), ("adaptive_asha", "max_rungs", 0), ("adaptive_asha", "mode", "fast"),
        ("adaptive_asha", "bracket_rungs", [0]), ("adaptive_asha", "bracket_rungs", 3), ("single", "metric", ""),
        ("single", "smaller_is_better", "yes"), ("single", "source_trial_id", "1"), ("optuna", "sampler", "a.b"),
        ("optuna", "sampler_args", []), ("custom", "unit", "weeks"), ("custom", "method", "not a class"),
        ("custom", "class", "nor:this:one"), ("async_halving", "num_rungs", 10**9), ("optuna", "num_rungs", 1001),
        ("adaptive_asha", "max_rungs", 1001), ("adaptive_asha", "bracket_rungs", [2, 1001]),
    ],
)  # fmt: skip
def test_ranges(name: str, key: str, bad: Any) -> None:
    """platform 3.1: each field of a searcher refuses values outside its documented range, by name."""
    with pytest.raises(ConfigError, match=rf"<config>\.searcher\.{key}"):
        effective(name, **{key: bad})


def test_asha_is_async_halving() -> None:
    """platform 1.8: our alias; the effective configuration has the one name."""
    assert effective("asha", **MINIMAL["async_halving"])["name"] == "async_halving"


@pytest.mark.parametrize("name", ["rnadom", 5, "ASHA", [], {}])
def test_unknown_methods(name: Any) -> None:
    """Names that nobody has are refused with all that there are."""
    with pytest.raises(ConfigError, match=r"<config>\.searcher\.name: .*adaptive_asha"):
        effective(name)


def test_custom_keeps_its_own_keys() -> None:
    """platform 3.7: extra keys are allowed, null and nested ones too; class and entrypoint are read as method."""
    found = effective("custom", mine=None, deep={"a": [None]}, unit="epochs", **{"class": "search:Mine"})
    assert (found["mine"], found["deep"], found["unit"]) == (None, {"a": [None]}, "epochs")
    assert found["method"] == "search:Mine"
    assert effective("custom", entrypoint="a:B", smaller_is_better=None)["method"] == "a:B"
    with pytest.raises(ConfigError, match="both method and class"):
        effective("custom", method="a:B", **{"class": "a:B"})


def test_optuna_stops_with_all_of_the_fields_or_none() -> None:
    """Stopping needs time_metric, max_time and num_rungs together; divisor is then 4."""
    assert effective("optuna")["divisor"] is None
    assert effective("optuna", time_metric="epochs", max_time=8, num_rungs=2)["divisor"] == 4
    with pytest.raises(ConfigError, match="time_metric and max_time"):
        effective("optuna", num_rungs=2)
    with pytest.raises(ConfigError, match="num_rungs"):
        effective("optuna", time_metric="epochs", max_time=2)


def test_whole_numbers_stay_whole() -> None:
    """divisor may be 1.5; 4 is shown as 4."""
    assert repr(effective("async_halving", divisor=3)["divisor"]) == "3"


def test_every_field_says_what_it_is() -> None:
    """The schema that editors show is made of these descriptions."""
    for section in SEARCHERS.values():
        for key, field in section.model_fields.items():
            assert field.description or key == "name" or is_retired(field), f"{section.__name__}.{key}"
