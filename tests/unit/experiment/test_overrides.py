"""`--config key=value`."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import ConfigError
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.layers import from_settings, setting_value

FILE: dict[str, Any] = {
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss"},
    "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}, "net": {"depth": 2}},
}


def test_overrides_are_the_strongest_layer() -> None:
    """P-08: the effective configuration holds the int 2 and the list [a, b]."""
    settings = ["resources.slots_per_trial=2", "labels=a,b"]
    effective = ExperimentConfig.parse(from_settings(settings, FILE), FILE).effective()
    assert effective["resources"]["slots_per_trial"] == 2
    assert effective["labels"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2", 2), ("1e-3", 1e-3), ("true", True), ("null", None), ("", None), ("a b", "a b"), ("a=b", "a=b"),
        ("1,x, true", [1, "x", True]), ("a,", ["a"]), ("[a, [b, c]]", ["a", ["b", "c"]]),
        ("{a: 1, b: 2}", {"a": 1, "b": 2}),
        ("'a,b'", "a,b"), ('"a, b"', "a, b"), ("[]", []),
    ],
)  # fmt: skip
def test_values_are_yaml(text: str, found: Any) -> None:
    """platform 6.1: YAML; a comma makes a list; what begins with [ or { is parsed whole."""
    assert setting_value(text) == found


@pytest.mark.parametrize("setting", ["name", "=1", "a..b=1", ".a=1", "a=[1", "a={b", "a=*x"])
def test_settings_that_are_none(setting: str) -> None:
    """platform 6.1: one sentence with what was typed."""
    with pytest.raises(ConfigError) as caught:
        from_settings([setting])
    assert setting in str(caught.value)


def test_later_settings_win() -> None:
    """Repeated options change the same tree; a value may become a mapping and back."""
    assert from_settings(["a.b=1", "a.c=2", "a.b=3"]) == {"a": {"b": 3, "c": 2}}
    assert from_settings(["a=1", "a.b=2"]) == {"a": {"b": 2}}
    assert from_settings(["a.b=2", "a=1"]) == {"a": 1}


def test_a_key_inside_a_declaration_keeps_the_rest() -> None:
    """`hyperparameters.lr.minval=-3` narrows the range instead of replacing lr by a group with one constant."""
    config = ExperimentConfig.parse(
        from_settings(["hyperparameters.lr.minval=-3", "hyperparameters.net.depth=4"], FILE), FILE
    )
    assert config.effective()["hyperparameters"] == {
        "lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1},
        "net": {"depth": {"type": "const", "val": 4}},
    }
    assert FILE["hyperparameters"]["lr"]["minval"] == -4


def test_a_whole_hyperparameter_is_replaced() -> None:
    """platform 1.1: a hyperparameter that is not a group is atomic."""
    config = ExperimentConfig.parse(from_settings(["hyperparameters.lr=0.1"], FILE), FILE)
    assert config.effective()["hyperparameters"]["lr"] == {"type": "const", "val": 0.1}
