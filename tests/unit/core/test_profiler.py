"""ProfilerContext: system samples, averaged, from a thread that is only there while it is on."""

from __future__ import annotations

import logging
import math
import socket
import threading
import time

import pytest

from determined import core
from determined.core import ProfilerContext, _profiler
from determined.core._profiler import average
from determined.core.recording.shipper import Shipper
from determined.store.messages import MetricReport
from tests.fakes import MemoryLink


def wait_for_reports(link: MemoryLink, count: int) -> list[MetricReport]:
    deadline = time.monotonic() + 90
    while len(link.of(MetricReport)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return link.of(MetricReport)


def test_one_report_per_group() -> None:
    """C-65: on(0.1, 3) gives one report each for cpu, memory, disk and network, per machine, without a step."""
    link = MemoryLink()
    shipper = Shipper(link)
    profiler = ProfilerContext(shipper=shipper)
    profiler.on(0.1, 3)
    reports = wait_for_reports(link, 4)[:4]
    profiler.off()
    shipper.close()
    assert {r.group for r in reports} == {"cpu", "memory", "disk", "network"}
    assert all(r.steps_completed is None for r in reports)
    values = {r.group: r.metrics[socket.gethostname()] for r in reports}
    assert values["memory"]["memory_free"] > 0  # type: ignore[index,call-overload,operator]
    assert 0 <= values["disk"]["/"]["disk_util"] <= 100  # type: ignore[index,call-overload,operator]
    assert set(values["network"]) == {"net_throughput_sent", "net_throughput_recv"}  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [(0.05,), (1, 0), (1, 1.5), (1, True), ("1",), (math.nan,), (math.inf,)])
def test_arguments_are_checked(arguments: tuple[object, ...]) -> None:
    """C-66: an interval under 0.1 s, or samples that are no whole number from 1, is a ValueError."""
    with pytest.raises(ValueError, match="expected"):
        ProfilerContext().on(*arguments)  # type: ignore[arg-type]


def test_only_the_first_rank_of_a_machine_samples() -> None:
    """C-67: local rank 1 checks its arguments and does nothing."""
    distributed = core.DistributedContext()
    distributed.local_rank = 1
    before = threading.active_count()
    profiler = ProfilerContext(distributed)
    profiler.on(0.1, 1)
    assert threading.active_count() == before
    with pytest.raises(ValueError, match="expected"):
        profiler.on(0.05)


def test_twice_on_is_once() -> None:
    """C-68: on() twice and off() twice is no error and one collector."""
    profiler = ProfilerContext()
    before = threading.active_count()
    profiler.on(0.1)
    profiler.on(0.1)
    assert threading.active_count() == before + 1
    profiler.off()
    profiler.off()
    assert threading.active_count() == before


def test_samples_are_averaged() -> None:
    """C-69: {"a": 1} and {"a": 3} average to {"a": 2}; one level of nesting included, absent values not counted."""
    assert average([{"a": 1}, {"a": 3}]) == {"a": 2}
    assert average([{"d": {"x": 1.0}}, {"d": {"x": 2.0}, "e": 5.0}]) == {"d": {"x": 1.5}, "e": 5.0}


def test_a_failing_sample_is_logged_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Contract 8 Better: an error while sampling is said once, and the other groups still arrive."""

    def broken() -> dict[str, float]:
        raise OSError("no such counter")

    monkeypatch.setattr(_profiler, "_sample_memory", broken)
    link = MemoryLink()
    shipper = Shipper(link)
    profiler = ProfilerContext(shipper=shipper)
    with caplog.at_level(logging.WARNING, "determined.core"):
        profiler.on(0.1, 1)
        groups = {r.group for r in wait_for_reports(link, 6)}
        profiler.off()
    shipper.close()
    assert groups == {"cpu", "disk", "network"}
    assert len([r for r in caplog.records if "Sampling memory failed" in r.getMessage()]) == 1


def test_what_was_sampled_is_reported_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 8 Better: stopping in the middle of a window reports that part, and no sample is taken for it."""
    samples: list[object] = []
    sample_cpu = _profiler._sample_cpu
    monkeypatch.setattr(_profiler, "_sample_cpu", lambda: samples.append(1) or sample_cpu())
    link = MemoryLink()
    shipper = Shipper(link)
    profiler = ProfilerContext(shipper=shipper)
    profiler.on(0.1, 1000)
    while len(samples) < 4:  # the last samples of two rounds are surely taken
        time.sleep(0.02)
    assert link.reports == []
    profiler.off()
    shipper.close()
    assert {r.group for r in link.of(MetricReport)} == {"cpu", "memory", "disk", "network"}


def test_gpus_are_sampled_when_the_library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 8: per GPU uuid its utilisation and free memory. No GPU here, so the library is a stand-in."""

    class Driver:
        nvmlInit = staticmethod(lambda: None)
        nvmlDeviceGetCount = staticmethod(lambda: 2)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
        nvmlDeviceGetUUID = staticmethod(lambda device: f"GPU-{device}")
        nvmlDeviceGetUtilizationRates = staticmethod(lambda device: type("U", (), {"gpu": 50 + device}))
        nvmlDeviceGetMemoryInfo = staticmethod(lambda device: type("M", (), {"free": 1000}))

    monkeypatch.setitem(__import__("sys").modules, "pynvml", Driver)
    assert _profiler._GpuMeter().sample() == {
        "GPU-0": {"gpu_util": 50.0, "gpu_free_memory": 1000.0},
        "GPU-1": {"gpu_util": 51.0, "gpu_free_memory": 1000.0},
    }
