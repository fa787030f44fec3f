"""How many slots a machine has."""

from __future__ import annotations

import json

import pytest

from determined.errors import ConfigError
from determined.experiment import slots
from determined.experiment.config.experiment_config import ExperimentConfig


def none() -> list[str]:
    return []


def two() -> list[str]:
    return ["0", "GPU-b"]


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (2, 1), (4, 2), (8, 4), (64, 4)])
def test_cpu_slots_follow_the_cores(cores: int, count: int) -> None:
    """platform 1.6: max(1, min(4, cores // 2)) without GPUs."""
    assert slots.detect(gpus=none, cores=cores) == slots.Slots("cpu", tuple(map(str, range(count))))


def test_one_slot_per_gpu(caplog: pytest.LogCaptureFixture) -> None:
    """platform 1.6: one per visible CUDA device, by the name that makes it visible; the choice is logged."""
    caplog.set_level("INFO")
    assert slots.detect(gpus=two) == slots.Slots("cuda", ("0", "GPU-b"))
    assert "2 cuda slots" in caplog.text


def test_an_explicit_setting_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """platform 1.6: an argument, then DET_SLOTS, then what is found."""
    monkeypatch.setenv("DET_SLOTS", "3")
    assert len(slots.detect(gpus=none)) == 3
    assert slots.detect(1, gpus=two).devices == ("0",)
    assert len(slots.detect(0, gpus=none)) == 0
    with pytest.raises(ConfigError, match=r"3 slots .* 2 visible GPUs"):
        slots.detect(gpus=two)
    monkeypatch.setenv("DET_SLOTS", "many")
    with pytest.raises(ConfigError, match="'many'"):
        slots.detect(gpus=none)


@pytest.mark.parametrize(
    ("chosen", "seen"), [("", []), ("-1", []), ("1", ["1"]), ("0,GPU-x", ["0", "GPU-x"]), ("0,-1,1", ["0"])]
)
def test_hidden_gpus_are_not_slots(monkeypatch: pytest.MonkeyPatch, chosen: str, seen: list[str]) -> None:
    """platform 1.6: only what CUDA_VISIBLE_DEVICES shows, and as CUDA reads it."""
    monkeypatch.setattr(slots, "_all_gpus", lambda: ["0", "1"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert slots.visible_gpus() == seen


NODES = [slots.Node("a", "10.0.0.1", 2, ("big",)), slots.Node("b", "10.0.0.2", 1)]


def test_slots_of_a_cluster_are_those_of_its_nodes() -> None:
    """Slots are named after their node; pools and excluded nodes limit which can be used; JSON keeps all of it."""
    found = slots.Slots.of_nodes("cpu", NODES)
    assert found.devices == ("a/0", "a/1", "b/0")
    assert found.usable("big") == ("a/0", "a/1")
    assert found.usable(excluded=["a"]) == ("b/0",)
    assert slots.Slots.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_cluster_may_grow() -> None:
    """DET_SLOTS above what is there: more slots may come, on nodes of any pool."""
    found = slots.Slots.of_nodes("cpu", NODES, grows_to=5)
    assert (len(found), found.may_grow) == (5, True)
    assert len(found.usable("none yet")) == 2
    assert not slots.Slots.of_nodes("cpu", NODES, grows_to=3).may_grow


def test_the_pool_of_old_files() -> None:
    """`resource_pool: default`, which old files may say, is any node."""
    assert (
        slots.pool_of({"resource_pool": "default"}) == slots.pool_of({}) == slots.pool_of({"resource_pool": None}) == ""
    )
    assert slots.pool_of({"resource_pool": "big"}) == "big"


def test_pools_of_this_machine() -> None:
    """platform 1.6: on this machine, which has one pool, another one warns; on a cluster it is a pool."""
    values = {"entrypoint": "t:T", "searcher": {"name": "single", "metric": "loss"}}
    asked = {
        name: ExperimentConfig.parse({**values, "resources": {"resource_pool": name}}) for name in ("big", "default")
    }
    [said] = slots.check(asked["big"], slots.Slots("cpu", ("0",)))
    assert "resources.resource_pool is 'big'; only the launcher ray has pools" in said
    assert slots.check(asked["default"], slots.Slots("cpu", ("0",))) == []
    assert slots.check(asked["big"], slots.Slots.of_nodes("cpu", NODES)) == []
