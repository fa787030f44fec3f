"""How many slots a machine has."""

from __future__ import annotations

import pytest

from determined.errors import ConfigError
from determined.experiment import slots


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
