"""get_cluster_info(): what the process was told, read once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import determined
from determined import _info


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    _info.reset_cluster_info()
    yield
    _info.reset_cluster_info()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    return tmp_path


def write(directory: Path, **files: object) -> None:
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))


CLUSTER = {
    "master_url": "master",
    "cluster_id": "c",
    "agent_id": "a",
    "slot_ids": [0, 1],
    "task_id": "t",
    "allocation_id": "t.1",
    "session_token": "secret",
    "task_type": "TRIAL",
    "latest_checkpoint": "abc",
    "something_newer": 1,
}


def test_variables_alone_are_no_cluster(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C-72: without the file the answer is None, whatever DET_* variables say."""
    for name in (
        "MASTER",
        "CLUSTER_ID",
        "AGENT_ID",
        "SLOT_IDS",
        "TASK_ID",
        "ALLOCATION_ID",
        "SESSION_TOKEN",
        "TASK_TYPE",
    ):
        monkeypatch.setenv(f"DET_{name}", "1")
    assert determined.get_cluster_info() is None


def test_a_task_that_is_no_trial(directory: Path) -> None:
    """C-73: no trial, no user data, no checkpoint, one machine."""
    write(directory, cluster={**CLUSTER, "task_type": "NOTEBOOK"})
    info = determined.get_cluster_info()
    assert info is not None
    with pytest.raises(RuntimeError, match="NOTEBOOK"):
        _ = info.trial
    assert info.user_data == {}
    assert info.latest_checkpoint is None
    assert info.container_addrs == ["127.0.0.1"]
    assert (info.container_rank, info.container_slot_counts) == (0, [2])


def test_the_first_answer_stays(directory: Path) -> None:
    """C-74: a file that appears after the first call changes nothing in this process."""
    assert determined.get_cluster_info() is None
    write(directory, cluster=CLUSTER)
    assert determined.get_cluster_info() is None


def test_a_trial_knows_itself(directory: Path) -> None:
    """Contract 11.1: all members of a trial's info; the token is not shown when printed."""
    write(
        directory,
        cluster=CLUSTER,
        trial={
            "trial_id": 3,
            "experiment_id": 2,
            "trial_seed": 7,
            "hparams": {"lr": 0.1},
            "config": {"data": {"path": "x"}},
            "steps_completed": 5,
        },
        rendezvous={"container_addrs": ["h0", "h1"], "container_rank": 1, "container_slot_counts": [2, 2]},
        resources={"gpu_uuids": ["GPU-1"]},
    )
    info = determined.get_cluster_info()
    assert info is not None
    assert (info.trial.trial_id, info.trial.experiment_id, info.trial.trial_seed) == (3, 2, 7)
    assert (info.trial.hparams, info.trial._steps_completed) == ({"lr": 0.1}, 5)
    assert (info.user_data, info.latest_checkpoint) == ({"path": "x"}, "abc")
    assert (info.container_addrs, info.container_rank, info.gpu_uuids) == (["h0", "h1"], 1, ["GPU-1"])
    assert "secret" not in repr(info)


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("master", "http://master:8080"),
        ("master:1234/", "http://master:1234"),
        ("http://master", "http://master:80"),
        ("https://master/det/", "https://master:443/det"),
    ],
)
def test_the_master_url_is_explicit(given: str, canonical: str) -> None:
    """Contract 11.1: scheme and port are explicit, no trailing slash."""
    assert determined.ClusterInfo(master_url=given).master_url == canonical


def test_an_explicit_answer_can_be_given() -> None:
    """Contract 11.2 Better: an info object can be set, and forgotten again."""
    mine = determined.ClusterInfo(task_type="COMMAND")
    _info.set_cluster_info(mine)
    assert determined.get_cluster_info() is mine


def test_a_broken_file_says_which(directory: Path) -> None:
    """A file that is no JSON is an error with its path."""
    (directory / "cluster.json").write_text("{")
    with pytest.raises(ValueError, match=r"cluster\.json is not valid JSON"):
        determined.get_cluster_info()
