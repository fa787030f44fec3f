"""The section `checkpoint_storage`."""

from __future__ import annotations

from typing import Any

import pytest

from determined.errors import ConfigError
from determined.experiment.config.experiment_config import ExperimentConfig

BASE = {"entrypoint": "x", "searcher": {"name": "single", "metric": "loss"}}


def effective(**section: Any) -> dict[str, Any]:
    found: dict[str, Any] = ExperimentConfig.parse({**BASE, "checkpoint_storage": section}).effective()[
        "checkpoint_storage"
    ]
    return found


@pytest.mark.parametrize(
    "section",
    [
        {"type": "directory", "container_path": "/data"},
        {"type": "shared_fs", "host_path": "/data"},
        {"type": "shared_fs", "host_path": "/data", "storage_path": "a/b"},
        {"type": "shared_fs", "host_path": "/data", "storage_path": "/data/b"},
        {"type": "s3", "bucket": "b", "access_key": "a", "secret_key": "s", "endpoint_url": "http://h", "prefix": "p"},
        {"type": "gcs", "bucket": "b", "prefix": "p"},
        {"type": "azure", "container": "c", "connection_string": "s"},
        {"type": "azure", "container": "c", "account_url": "u", "credential": "s"},
    ],
)
def test_every_type(section: dict[str, Any]) -> None:
    """platform 1.5: the keys of each type are kept, the rest is what garbage collection keeps."""
    found = effective(**section)
    assert {key: found[key] for key in section} == section
    assert [found[f"save_{what}"] for what in ("experiment_best", "trial_best", "trial_latest")] == [0, 1, 1]


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"type": "hdfs"}, "checkpoint_storage.type"),
        ({"type": []}, "checkpoint_storage.type"),
        ({"type": 5}, "checkpoint_storage.type"),
        ({"type": "directory", "container_path": "relative"}, "checkpoint_storage.container_path"),
        ({"type": "directory", "host_path": "/x"}, "checkpoint_storage.host_path"),
        ({"type": "shared_fs"}, "checkpoint_storage.host_path"),
        ({"type": "shared_fs", "host_path": "rel"}, "checkpoint_storage.host_path"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "/data2"}, "checkpoint_storage.storage_path"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "a/../../b"}, "checkpoint_storage.storage_path"),
        ({"type": "s3"}, "checkpoint_storage.bucket"),
        ({"type": "s3", "bucket": "s3://b"}, "checkpoint_storage.bucket"),
        ({"type": "gcs", "bucket": "b", "access_key": "k"}, "checkpoint_storage.access_key"),
        ({"type": "azure", "container": "c"}, "checkpoint_storage"),
        ({"type": "azure", "container": "c", "connection_string": "s", "account_url": "u"}, "checkpoint_storage"),
        ({"save_trial_best": -1}, "checkpoint_storage.save_trial_best"),
    ],
)
def test_refusals(section: dict[str, Any], path: str) -> None:
    """platform 1.5: the rules of the table, each with the path of the key."""
    with pytest.raises(ConfigError, match=rf"<config>\.{path}: ") as caught:
        effective(**section)
    assert len(str(caught.value).splitlines()) == 2


def test_the_default_place_is_not_held_against_another_type() -> None:
    """platform 1.8: a warning is about what somebody wrote."""
    section = {"type": "shared_fs", "host_path": "/data", "storage_path": "runs"}
    assert ExperimentConfig.parse({**BASE, "checkpoint_storage": section}).warnings == []


def test_retention_alone_keeps_the_default_place() -> None:
    """platform 1.1: saying only what to keep merges with the built-in directory."""
    found = effective(save_trial_best=3)
    assert found["type"] == "directory"
    assert found["container_path"]
    assert found["save_trial_best"] == 3
