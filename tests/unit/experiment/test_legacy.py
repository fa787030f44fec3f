"""Older experiment files: every row of the tables of legacy and container-era fields."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import ConfigError
from determined.experiment.config.experiment_config import ExperimentConfig

ASHA = {"name": "adaptive_asha", "metric": "m", "max_trials": 4, "time_metric": "epochs", "max_time": 4}
SINGLE = {"name": "single", "metric": "m"}


def parse(changes: dict[str, Any]) -> ExperimentConfig:
    return ExperimentConfig.parse({"entrypoint": "python3 train.py", "searcher": SINGLE, **changes})


@pytest.mark.parametrize(
    ("changes", "name", "is_kept"),
    [
        ({"scheduling_unit": 50}, "scheduling_unit", True),
        ({"min_validation_period": {"batches": 5}}, "min_validation_period", True),
        ({"min_checkpoint_period": {"epochs": 0}}, "min_checkpoint_period", True),
        ({"records_per_epoch": 100}, "records_per_epoch", False),
        ({"searcher": {**SINGLE, "max_length": {"batches": 5}}}, "searcher.max_length", True),
        ({"searcher": {**SINGLE, "max_length": 5}}, "searcher.max_length", True),
        ({"searcher": {**ASHA, "stop_once": True}}, "searcher.stop_once", False),
        ({"optimizations": {"aggregation_frequency": 2}}, "optimizations", True),
        ({"profiling": {"begin_on_batch": 1, "end_after_batch": 1}}, "profiling.begin_on_batch", False),
        ({"profiling": {"sync_timings": True}}, "profiling.sync_timings", False),
        ({"data_layer": {"type": "shared_fs"}}, "data_layer", False),
        ({"security": {"kerberos": {}}}, "security", False),
        ({"tensorboard_storage": {"type": "s3"}}, "tensorboard_storage", False),
        ({"environment": {"image": {"cpu": "x"}, "force_pull_image": True}}, "environment.image", False),
        ({"environment": {"registry_auth": {"username": "x"}}}, "environment.registry_auth", False),
        ({"environment": {"pod_spec": {}}}, "environment.pod_spec", False),
        ({"environment": {"ports": {"a": 1}}}, "environment.ports", False),
        ({"environment": {"proxy_ports": []}}, "environment.proxy_ports", False),
        ({"environment": {"add_capabilities": ["X"]}}, "environment.add_capabilities", False),
        ({"environment": {"drop_capabilities": ["X"]}}, "environment.drop_capabilities", False),
        ({"resources": {"shm_size": "4g"}}, "resources.shm_size", False),
        ({"resources": {"devices": []}}, "resources.devices", False),
        ({"resources": {"native_parallel": False}}, "resources.native_parallel", False),
        ({"resources": {"agent_label": "x"}}, "resources.agent_label", False),
        ({"pbs": {"slots_per_node": 1}}, "pbs", False),
        ({"integrations": {"pachyderm": {"dataset": {}}}}, "integrations.pachyderm", False),
    ],
)
def test_one_warning_each(changes: dict[str, Any], name: str, is_kept: bool) -> None:
    """platform 1.8 and 1.9: accepted, with one warning that names the field; kept only where it has an effect."""
    config = parse(changes)
    (warning,) = config.warnings
    assert name in warning
    place: Any = config.effective()
    *sections, key = name.split(".")
    for section in sections:
        place = place[section]
    assert (key in place) == is_kept


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model_def:MyTrial",
        "python3 -m determined.launch.torch_distributed --trial a.b:C",
        ["python3", "-m", "determined.launch.torch_distributed", "--trial", "a:C"],
    ],
)
def test_trial_classes_warn(entrypoint: Any) -> None:
    """platform 1.3: a class as entrypoint, bare or behind the launcher, is deprecated and runs as it is."""
    config = parse({"entrypoint": entrypoint})
    (warning,) = config.warnings
    assert "trial class" in warning
    assert config.effective()["entrypoint"] == entrypoint


@pytest.mark.parametrize("entrypoint", ["python3 train.py --lr 0.1", ["python3", "train.py"], "sh run.sh a:b"])
def test_scripts_do_not_warn(entrypoint: Any) -> None:
    """platform 1.3: shell strings and lists are the way."""
    assert parse({"entrypoint": entrypoint}).warnings == []


@pytest.mark.parametrize("key", ["mixed_precision", "tensor_fusion_threshold", "anything"])
def test_other_optimizations_are_dropped(key: str) -> None:
    """platform 1.8: other `optimizations.*` are ignored, those about gradients are passed on."""
    config = parse({"optimizations": {key: "x", "gradient_compression": True}})
    assert config.effective()["optimizations"] == {"gradient_compression": True}
    assert len(config.warnings) == 1


def test_fields_that_were_not_given_are_not_shown() -> None:
    """platform 1.8: older fields do not appear in the configurations of people who never wrote them."""
    shown = parse({}).effective()
    assert not {"scheduling_unit", "min_validation_period", "optimizations", "internal"} & shown.keys()
    assert "max_length" not in shown["searcher"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"scheduling_unit": 0}, "scheduling_unit"),
        ({"min_validation_period": {"batches": -1}}, "min_validation_period"),
        ({"min_validation_period": {"batches": 1, "epochs": 1}}, "min_validation_period"),
        ({"min_checkpoint_period": {}}, "min_checkpoint_period"),
        ({"min_checkpoint_period": 5}, "min_checkpoint_period"),
        ({"min_checkpoint_period": {"weeks": 5}}, "min_checkpoint_period"),
        ({"searcher": {**SINGLE, "max_length": {"batches": 1, "records": 1}}}, "searcher.max_length"),
        ({"searcher": {**SINGLE, "max_length": 0}}, "searcher.max_length"),
        ({"searcher": {**SINGLE, "max_length": {"records": 10}}}, "searcher.max_length"),
        ({"entrypoint": "a:B", "min_validation_period": {"records": 10}}, "min_validation_period"),
        ({"optimizations": {"aggregation_frequency": 0}}, "optimizations.aggregation_frequency"),
        ({"profiling": {"begin_on_batch": 3, "end_after_batch": 2}}, "profiling.begin_on_batch"),
        ({"searcher": {**SINGLE, "budget": 3}}, "searcher.budget"),
        ({"searcher": {**SINGLE, "train_stragglers": True}}, "searcher.train_stragglers"),
        ({"internal": {"native": {}}}, "internal"),
    ],
)
def test_older_fields_are_still_checked(changes: dict[str, Any], path: str) -> None:
    """platform 1.8: exactly one unit, ranges, begin <= end; records need global_batch_size; budget is refused."""
    with pytest.raises(ConfigError, match=rf"<config>\.{path}: "):
        parse(changes)


def test_records_with_a_batch_size() -> None:
    """platform 1.8: records become batches by global_batch_size."""
    sizes = {"hyperparameters": {"global_batch_size": 8}, "entrypoint": "a:B"}
    config = parse({"searcher": {**SINGLE, "max_length": {"records": 10}}, **sizes})
    assert config.effective()["searcher"]["max_length"] == {"records": 10}


def test_asha_with_both_keeps_its_own_time() -> None:
    """D11: max_length is read only where the time fields are missing."""
    config = parse({"searcher": {**ASHA, "max_length": {"batches": 100}}})
    section = config.effective()["searcher"]
    assert (section["time_metric"], section["max_time"]) == ("epochs", 4)
    assert len(config.warnings) == 1


def test_warnings_never_fail() -> None:
    """platform 1.9: all of them at once are still a submission."""
    config = parse(
        {
            "scheduling_unit": 1, "security": 1, "pbs": 1, "data_layer": 1, "records_per_epoch": 1,
            "resources": {"shm_size": 1, "devices": 1}, "environment": {"image": 1, "ports": 1},
        }
    )  # fmt: skip
    assert len(config.warnings) == 7


@pytest.mark.parametrize(("key", "least"), [("searcher", 1), ("min_validation_period", 0)])
def test_a_length_that_is_too_small_is_told_how_small_it_may_be(key: str, least: int) -> None:
    """platform 1.8: one unit, and a number within its range."""
    length = {"batches": least - 1}
    changes = {"searcher": {**SINGLE, "max_length": length}} if key == "searcher" else {key: length}
    with pytest.raises(ConfigError, match=f"exactly one unit, {least} or more"):
        parse(changes)


def test_a_value_that_json_cannot_hold_is_told_once() -> None:
    """platform 1.1: one mistake is one line."""
    with pytest.raises(ConfigError) as caught:
        parse({"hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": float("inf")}}})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("key", ["min_checkpoint_period", "records_per_epoch", "optimizations"])
def test_a_misspelt_older_field_is_recognised(key: str) -> None:
    """platform 1.1: the key that was meant is named, also where it is an older one."""
    with pytest.raises(ConfigError, match=f"Did you mean {key}"):
        parse({f"{key}x": {"batches": 3}})


def test_several_ignored_fields_are_one_sentence() -> None:
    """platform 1.9: one combined warning, which names them all."""
    (warning,) = parse({"environment": {"image": "x", "ports": {"a": 1}}}).warnings
    assert warning == "environment.image, environment.ports are ignored: trials run without containers."
