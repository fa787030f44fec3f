"""The whole of `ExperimentConfig`: what is filled in, what is refused, and how that is said."""

from __future__ import annotations

import copy
import datetime
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from determined import artifacts
from determined.errors import ConfigError, InvalidConfigurationException
from determined.experiment import slots
from determined.experiment.config.experiment_config import ExperimentConfig

SINGLE: dict[str, Any] = {"entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "loss"}}


def parse(**changes: Any) -> ExperimentConfig:
    """A working configuration, with these keys instead."""
    return ExperimentConfig.parse({**SINGLE, **changes})


def refusal(values: Any) -> list[str]:
    """The lines of the message, without the heading."""
    with pytest.raises(ConfigError) as caught:
        ExperimentConfig.parse(values)
    heading, *lines = str(caught.value).splitlines()
    assert heading == "invalid experiment configuration"
    return lines


def refused(**changes: Any) -> str:
    """The one line of the message."""
    (line,) = refusal({**SINGLE, **changes})
    return line


DEFAULTS = {
    "description": None,
    "labels": [],
    "data": {},
    "workspace": "",
    "project": "",
    "max_restarts": 5,
    "log_policies": [
        {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
        {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
    ],
    "retention_policy": {"log_retention_days": -1},
    "debug": False,
    "perform_initial_validation": False,
    "checkpoint_policy": "best",
    "hyperparameters": {},
    "bind_mounts": [],
    "profiling": {"enabled": False},
    "preemption_timeout": 3600,
    "integrations": {"webhooks": None},
    "slurm": {},
    "environment": {"environment_variables": {"cpu": [], "cuda": [], "rocm": []}},
    "resources": {
        "slots_per_trial": 1,
        "max_slots": None,
        "priority": 42,
        "weight": 1,
        "resource_pool": "",
        "is_single_node": None,
    },
    "searcher": {
        "name": "single",
        "metric": "loss",
        "smaller_is_better": True,
        "source_trial_id": None,
        "source_checkpoint_uuid": None,
    },
}


def test_defaults_are_filled_in(home: Path) -> None:
    """platform 1.2: every default of the table, and no other key."""
    before = int(time.time())
    effective = parse().effective()
    assert {key: effective[key] for key in DEFAULTS} == DEFAULTS
    assert before <= effective["reproducibility"]["experiment_seed"] <= int(time.time())
    assert effective["checkpoint_storage"] == {
        "type": "directory",
        "container_path": str(home / "checkpoints"),
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 1,
    }
    rest = {"name", "entrypoint", "reproducibility", "checkpoint_storage"}
    assert effective.keys() == DEFAULTS.keys() | rest


def test_storage_of_the_effective_configuration_opens(home: Path) -> None:
    """platform 1.5: what the trial receives is what artifacts understands."""
    for storage in (None, {"type": "shared_fs", "host_path": "/x", "storage_path": "y", "propagation": "rprivate"}):
        artifacts.open_storage(parse(checkpoint_storage=storage).effective()["checkpoint_storage"])


def test_no_entrypoint_is_refused() -> None:
    """P-01: a configuration without entrypoint cannot be created; an unmanaged experiment needs none."""
    assert "<config>.entrypoint:" in refused(entrypoint=None)
    ExperimentConfig.parse({"searcher": SINGLE["searcher"]}, managed=False)


def test_unknown_key_is_named_with_its_neighbour() -> None:
    """P-02: the error is `<config>.searchr`, and says what was meant."""
    assert refused(searchr={}) == "<config>.searchr: is not a known key. Did you mean searcher?"


def test_all_mistakes_of_a_check_are_listed() -> None:
    """P-03: independent mistakes are all there, in hyperparameters and across fields too."""
    lines = refusal(
        {
            "max_restarts": -1,
            "labels": ["a", 5],
            "hyperparameters": {"lr": {"type": "adam"}},
            "searcher": {"name": "single", "source_trial_id": 1, "source_checkpoint_uuid": "u", "max_trials": 2},
            "profiling": {"begin_on_batch": 5, "end_after_batch": 2},
            "data": {"x": float("nan")},
        }
    )
    paths = {line.partition(": ")[0] for line in lines}
    assert paths == {
        "<config>.max_restarts", "<config>.labels[1]", "<config>.hyperparameters.lr.type", "<config>.searcher",
        "<config>.searcher.max_trials", "<config>.profiling.begin_on_batch", "<config>.data.x",
    }  # fmt: skip


def test_checks_run_in_order() -> None:
    """platform 1.1: shape first, then completeness, then currency; each lists all of its own."""
    values: dict[str, Any] = {"searcher": {"name": "adaptive_simple"}, "debug": 1}
    assert [line.partition(":")[0] for line in refusal(values)] == ["<config>.debug"]
    del values["debug"]
    assert [line.partition(":")[0] for line in refusal(values)] == ["<config>.entrypoint"]
    values["entrypoint"] = "x"
    assert [line.partition(":")[0] for line in refusal(values)] == ["<config>.searcher.name"]


def test_slots_is_refused() -> None:
    """P-04: `resources.slots` is refused, and the message points to slots_per_trial."""
    assert "slots_per_trial" in refused(resources={"slots": 2})


def test_container_fields_warn_once() -> None:
    """P-05: container-era fields of the environment are accepted with one warning that names them."""
    config = parse(environment={"image": "x"})
    (warning,) = config.warnings
    assert "environment.image" in warning
    assert "image" not in config.effective()["environment"]
    assert len(parse(environment={"image": "x", "ports": {"a": 1}, "pod_spec": {}}).warnings) == 1


@pytest.mark.parametrize("key", ["workspace", "project"])
def test_workspace_goes_with_project(key: str) -> None:
    """P-06: one without the other is refused, and the message says that both must be given."""
    assert re.search("both workspace and project", refused(**{key: "w"}))
    parse(workspace="w", project="p")


def test_experiments_have_a_name() -> None:
    """P-07: three random words in parentheses; another time, other words."""
    names = {parse().name for _ in range(20)}
    assert all(re.fullmatch(r"Experiment \(\w+ \w+ \w+\)", name) for name in names)
    assert len(names) > 10


def test_secrets_are_masked_and_reach_the_trial() -> None:
    """P-09: shown as ********, `abc` inside the trial; so are the keys of cloud storage."""
    storage = {"type": "s3", "bucket": "b", "access_key": "k1", "secret_key": "k2", "endpoint_url": "http://u:p@h/"}
    config = parse(data={"secrets": {"t": "abc", "more": [1, {"x": "y"}]}, "plain": 1}, checkpoint_storage=storage)
    shown = json.dumps(config.masked())
    assert config.masked()["data"] == {
        "secrets": {"t": "********", "more": ["********", {"x": "********"}]},
        "plain": 1,
    }
    assert not re.search('abc|k1|k2|u:p|"y"', shown)
    assert config.effective()["data"]["secrets"]["t"] == "abc"
    assert config.effective()["checkpoint_storage"]["secret_key"] == "k2"
    logged = f"{config!r} {config} {config.checkpoint_storage!r}"
    assert not re.search("abc|k1|k2", logged)


def test_messages_keep_secrets() -> None:
    """P-09: a key of the wrong type is not repeated in the error."""
    line = refused(checkpoint_storage={"type": "s3", "bucket": "b", "secret_key": 12345})
    assert "secret_key" in line
    for section in ("checkpoint_storage", "data"):
        assert "hunter2" not in refused(**{section: [{"secret_key": "hunter2"}]})
    assert "12345" not in line


def test_old_action_is_unwrapped() -> None:
    """P-10: `action: {type: cancel_retries}` is stored as `action: cancel_retries`."""
    config = parse(log_policies=[{"pattern": "a", "action": {"type": "cancel_retries"}}])
    assert config.effective()["log_policies"][0] == {"pattern": "a", "action": "cancel_retries"}
    assert config.log_policies[0].action == "cancel_retries"


def test_policy_names_are_unique() -> None:
    """P-11: two policies of one name are refused."""
    assert "'a'" in refused(log_policies=[{"name": "a", "pattern": "x"}, {"name": "a", "pattern": "y"}])


@pytest.mark.parametrize("policy", [{"pattern": "x"}, {"action": "cancel_retries"}, {}])
def test_policies_need_a_name_or_both_others(policy: dict[str, str]) -> None:
    """platform 1.4: name is required unless both pattern and action are given."""
    if policy:
        assert "log_policies[0]" in refused(log_policies=[policy])
    parse(log_policies=[{"pattern": "x", "action": "exclude_node"}, {"name": "off"}])


def test_default_policy_is_turned_off_by_its_name() -> None:
    """platform 1.4: a default's name without a pattern disables it."""
    policies = parse(log_policies=[{"name": "CUDA OOM"}]).effective()["log_policies"]
    assert {"name": "CUDA OOM"} in policies
    assert len(policies) == 2


def test_prefix_stays_inside() -> None:
    """P-12: a prefix with a `..` component is refused; others are normalised."""
    assert "prefix" in refused(checkpoint_storage={"type": "s3", "bucket": "b", "prefix": "a/../c"})
    config = parse(checkpoint_storage={"type": "s3", "bucket": "b", "prefix": "/a//b/"})
    assert config.effective()["checkpoint_storage"]["prefix"] == "a/b"


def test_stronger_searcher_drops_what_it_does_not_own() -> None:
    """P-13: a template with random under a file with single gives single and no max_trials."""
    template = {"searcher": {"name": "random", "metric": "acc", "max_trials": 5, "smaller_is_better": False}}
    section = ExperimentConfig.parse(SINGLE, template).effective()["searcher"]
    assert section == {**DEFAULTS["searcher"], "smaller_is_better": False}  # type: ignore[dict-item]


ASHA: dict[str, Any] = {"name": "adaptive_asha", "metric": "loss", "max_trials": 4}


def test_time_is_derived_from_the_older_length() -> None:
    """P-14, D11: `max_length: {epochs: 8}` gives time_metric epochs and max_time 8, with one warning."""
    config = parse(searcher={**ASHA, "max_length": {"epochs": 8}})
    section = config.effective()["searcher"]
    assert (section["time_metric"], section["max_time"]) == ("epochs", 8)
    (warning,) = config.warnings
    assert "time_metric: epochs, max_time: 8" in warning


@pytest.mark.parametrize("length", [{"records": 8}, 8])
@pytest.mark.parametrize("space", [{}, {"global_batch_size": 4}])
def test_other_lengths_do_not_tell_time(length: Any, space: dict[str, Any]) -> None:
    """P-15: records, and numbers without a unit, are refused, naming time_metric; a batch size would not help."""
    line = refused(searcher={**ASHA, "max_length": length}, hyperparameters=space)
    assert re.search("adaptive_asha.*time_metric.*max_time", line)


@pytest.mark.parametrize("name", ["sync_halving", "adaptive", "adaptive_simple"])
def test_removed_searchers_are_refused(name: str) -> None:
    """P-16: the message names adaptive_asha; their fields do not matter."""
    line = refused(searcher={"name": name, "metric": "m", "budget": 3, "train_stragglers": True})
    assert "adaptive_asha" in line


def test_one_warm_start_source() -> None:
    """P-17, D14: a config that names both a source trial and a source checkpoint is refused."""
    searcher = {**SINGLE["searcher"], "source_trial_id": 1, "source_checkpoint_uuid": "u"}
    assert re.search("source_trial_id.*source_checkpoint_uuid", refused(searcher=searcher))


def test_more_slots_than_there_are() -> None:
    """P-18: asking for more slots than there are is refused, with both numbers."""
    config = parse(resources={"slots_per_trial": 7})
    with pytest.raises(ConfigError, match=r"slots_per_trial: is 7, .* 3 slots"):
        slots.check(config, slots.detect(3, gpus=list))
    slots.check(config, slots.detect(7, gpus=list))


INT = {"type": "int", "minval": 1}


@pytest.mark.parametrize(
    ("changes", "meaning"),
    [
        ({"entrypoint": None}, "entrypoint"),
        (
            {"searcher": {"name": "grid", "metric": "m"}, "hyperparameters": {"a": {"b": {**INT, "maxval": 3}}}},
            "hyperparameters.a.b.*grid.*count",
        ),
        (
            {"searcher": {"name": "asha", "metric": "m", "max_trials": 2, "num_rungs": 2}},
            "async_halving.*time_metric.*max_time",
        ),
        ({"hyperparameters": {"a": {**INT, "maxval": 1}}}, "hyperparameters.a.*minval.*maxval"),
        ({"hyperparameters": {"a": {"type": "adam"}}}, "hyperparameters.a.*const.*int.*double.*log.*categorical"),
        ({"workspace": "w"}, "both workspace and project"),
    ],
)  # fmt: skip
def test_required_messages(changes: dict[str, Any], meaning: str) -> None:
    """platform 1.10: each refusal of a config says what it must: the value, and what is expected."""
    assert re.search(meaning, refused(**changes))


RANGES = {
    "max_restarts": (0, -1), "preemption_timeout": (0, -1), "debug": (True, "yes"), "name": ("x", 5),
    "description": ("x", 5), "labels": (["a"], "a"), "data": ({}, []), "checkpoint_policy": ("all", "worst"),
    "perform_initial_validation": (True, 1), "hyperparameters": ({}, []), "searcher": (SINGLE["searcher"], "single"),
    "resources": ({}, []), "environment": ({}, "A=1"), "bind_mounts": ([], {}), "log_policies": ([], {}),
    "retention_policy": ({"log_retention_days": 32767}, {"log_retention_days": 32768}),
    "reproducibility": ({"experiment_seed": 2**31 - 1}, {"experiment_seed": 2**31}),
    "profiling": ({"enabled": True}, {"enabled": "true"}), "slurm": ({"slots_per_node": 1}, {"slots_per_node": 0}),
    "integrations": ({"webhooks": {"webhook_id": [1]}}, {"webhooks": {"webhook_id": ["a"]}}),
    "entrypoint": (["a", "b"], ["a", 5]),
}  # fmt: skip


@pytest.mark.parametrize("key", RANGES)
def test_types_and_ranges(key: str) -> None:
    """platform 1.2: the last good value is taken, the first bad one refused with its path and value."""
    good, bad = RANGES[key]
    parse(**{key: good})
    assert refused(**{key: bad}).startswith(f"<config>.{key}")


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("slots_per_trial", 0, -1), ("max_slots", 0, -1), ("priority", 1, 0), ("priority", 99, 100), ("weight", 0.5, 0),
        ("resource_pool", "default", 1), ("is_single_node", True, "true"), ("slots_per_trial", 1, 1.5),
        ("slots_per_trial", 1, True),
    ],
)  # fmt: skip
def test_resources(key: str, good: Any, bad: Any) -> None:
    """platform 1.6: each field of `resources` takes its documented values, and names any other that it refuses."""
    assert parse(resources={key: good}).effective()["resources"][key] == good
    line = refused(resources={key: bad})
    assert line.startswith(f"<config>.resources.{key}: is {json.dumps(bad)}, and has to be ")


def test_useless_caps_warn() -> None:
    """platform 1.6: a cap below what one trial needs warns, and does not fail."""
    assert "max_slots" in parse(resources={"max_slots": 1, "slots_per_trial": 2}).warnings[0]
    assert "description" in parse(description="x" * 255).warnings[0]
    assert parse(resources={"resource_pool": "gpus"}, description="x" * 254).warnings == []


def test_variables_apply_by_slot_type() -> None:
    """platform 1.7: a list is for all; `gpu` is read as `cuda`."""
    assert parse(environment={"environment_variables": ["A=1=2"]}).environment.environment_variables.rocm == ["A=1=2"]
    by_type = parse(environment={"environment_variables": {"gpu": ["A=1"], "cpu": ["A="]}}).environment
    assert by_type.environment_variables.model_dump() == {"cpu": ["A="], "cuda": ["A=1"], "rocm": []}


@pytest.mark.parametrize("entry", ["A", "=1", "A B=1", 5, {"A": 1}])
def test_variables_are_assignments(entry: Any) -> None:
    """platform 1.7: NAME=VALUE; all that are none are named at once."""
    line = refused(environment={"environment_variables": ["OK=1", entry, "also wrong"]})
    assert "NAME=VALUE" in line
    assert json.dumps(entry) in line
    assert '"also wrong"' in line


def test_a_range_without_a_type_is_pointed_out() -> None:
    """platform 2.1: a mapping without `type` is a group; one that looks like a range was hardly meant to be."""
    (warning,) = parse(hyperparameters={"a": {"b": {"tpye": "int", "minval": 1, "maxval": 3}}}).warnings
    assert warning.startswith("hyperparameters.a.b has minval and maxval but no type")


def test_one_list_for_cuda() -> None:
    """platform 1.7: gpu and cuda are one type of slot, so only one of them can have the list."""
    line = refused(environment={"environment_variables": {"gpu": ["A=1"], "cuda": ["A=2"]}})
    assert line.endswith("has both gpu and cuda, which mean the same. Keep cuda.")


@pytest.mark.parametrize(
    "mount",
    [
        {"host_path": "a", "container_path": "b"},
        {"host_path": "/a", "container_path": "."},
        {"host_path": "/a", "container_path": "b/../.."},
        {"host_path": "/a"},
    ],
)
def test_mounts_that_cannot_be(mount: dict[str, str]) -> None:
    """platform 1.2: host_path is absolute, container_path is a name inside; both are needed."""
    assert "<config>.bind_mounts[0]." in refused(bind_mounts=[mount])


def test_mounts_have_places_of_their_own() -> None:
    """platform 1.1: two bind mounts with the same container_path are refused."""
    mounts = [{"host_path": host, "container_path": "data"} for host in ("/a", "/b")]
    assert "<config>.bind_mounts[1].container_path" in refused(bind_mounts=mounts)


def test_labels_are_there_once() -> None:
    """platform 1.2: a label that is given twice is kept once."""
    assert parse(labels=["b", "a", "b"]).labels == ["b", "a"]


def test_mounts_without_a_container() -> None:
    """platform 1.9: the same path and a relative one are fine; another absolute target warns."""
    mounts = [("/data", "/data/"), ("/data", "data"), ("/data", "/other")]
    config = parse(bind_mounts=[{"host_path": host, "container_path": place} for host, place in mounts])
    (warning,) = config.warnings
    assert "bind_mounts[2]" in warning


@pytest.mark.parametrize(
    "where", [(), ("resources",), ("data",), ("searcher",), ("environment", "environment_variables")]
)
def test_x_keys_are_free(where: tuple[str, ...]) -> None:
    """platform 1.1: keys that start with x- are accepted at every level, and are nobody's business."""
    values: dict[str, Any] = copy.deepcopy(SINGLE)
    place = values
    for key in where:
        place = place.setdefault(key, {})
    place["x-mine"] = {"any": [1, None]}
    ExperimentConfig.parse(values)


def test_null_is_absent_everywhere() -> None:
    """platform 1.1: nulls change nothing, inside sections too; free-form parts keep theirs."""
    nulls = dict.fromkeys([*DEFAULTS, "name", "internal", "scheduling_unit", "checkpoint_storage", "searchr"])
    nulls |= {"searcher": {**SINGLE["searcher"], "max_trials": None, "max_length": None}, "resources": {"slots": None}}
    config = ExperimentConfig.parse({**SINGLE, **nulls, "reproducibility": {"experiment_seed": 1}})
    plain = parse(reproducibility={"experiment_seed": 1})
    assert {**config.effective(), "name": ""} == {**plain.effective(), "name": ""}
    assert config.warnings == []
    assert parse(data={"a": None}).data == {"a": None}
    assert parse(hyperparameters={"a": None}).effective()["hyperparameters"] == {"a": {"type": "const", "val": None}}


def test_effective_configuration_is_a_fixed_point() -> None:
    """platform 1.1: submitting an effective configuration again gives the same one, and no new warnings."""
    first = parse(hyperparameters={"a": [1], "b": {"c": 2}}, labels=["x"], log_policies=[{"name": "n", "pattern": "p"}])
    again = ExperimentConfig.parse(json.loads(json.dumps(first.effective())))
    assert again.effective() == first.effective()
    assert again.warnings == []


def test_single_with_something_to_search_warns() -> None:
    """platform 2.2: single with non-constant parameters samples once and warns."""
    config = parse(hyperparameters={"a": {"type": "int", "minval": 1, "maxval": 3}})
    assert "single" in config.warnings[0]


def test_the_error_is_of_both_kinds() -> None:
    """style.md 6: one may catch it as what it was called, or as a ValueError."""
    for kind in (InvalidConfigurationException, ValueError):
        with pytest.raises(kind):
            ExperimentConfig.parse({})


@pytest.mark.parametrize("values", [None, [], "x", 5])
def test_the_root_is_a_mapping(values: Any) -> None:
    """platform 1.1: the root must be a mapping."""
    assert refusal(values)[0].startswith("<config>: ")


@pytest.mark.parametrize("value", [float("inf"), time, {1: 2}, "a\0b", "\ud800", {"\0": 1}, b"x", {1, 2}])
def test_only_what_json_and_databases_hold(value: Any) -> None:
    """platform 1.1: values from Python code are checked as well, wherever they stand."""
    assert refused(data={"x": value}).startswith("<config>.data.x")


def test_endless_values_end() -> None:
    """A list that contains itself is refused like any that is nested too deeply."""
    endless: list[Any] = []
    endless.append(endless)
    assert "nested" in refused(data={"x": endless})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(sorted({*DEFAULTS, "entrypoint", "scheduling_unit", "optimizations"})), JSON))
def test_nonsense_is_refused_in_sentences(values: dict[str, Any]) -> None:
    """Whatever is in the file, it is either taken or refused with paths; nothing else is ever raised."""
    try:
        message = json.dumps(ExperimentConfig.parse(values).effective())
    except ConfigError as error:
        message = str(error)
    if not message.startswith("{"):
        heading, *lines = message.splitlines()
        assert heading == "invalid experiment configuration"
        assert lines
        assert all(line.startswith("<config>") for line in lines)


@pytest.mark.parametrize(
    ("declaration", "path"),
    [
        ({"type": "categorical", "vals": [1, datetime.date(2024, 1, 1)]}, ".vals[1]"),
        (datetime.date(2024, 1, 1), ""),
        ([1, {"a": datetime.date(2024, 1, 1)}], "[1].a"),
    ],
)
def test_hyperparameters_are_json(declaration: Any, path: str) -> None:
    """2.1: a value that JSON cannot hold is refused, and the path leads to it, also inside a list of choices."""
    line = refused(hyperparameters={"x": declaration})
    assert line.startswith(f"<config>.hyperparameters.x{path}: ")
    assert "datetime.date(2024, 1, 1)" in line or "2024-01-01" in line


@pytest.mark.parametrize("hyperparameters", [{1: 2}, {"a": {"type": "const", "val": {1: 2}}}])
def test_names_of_hyperparameters_are_text(hyperparameters: dict[Any, Any]) -> None:
    """2.1: names are text, here and inside a constant; YAML makes numbers of `1:`."""
    assert "Write it in quotes" in refused(hyperparameters=hyperparameters)
