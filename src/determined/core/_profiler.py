"""ProfilerContext: samples CPU, memory, disk, network and GPU in a background thread. Costs nothing while it is off."""

from __future__ import annotations

import collections
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from determined._types import Json
from determined.core.ranks.distributed import DistributedContext
from determined.core.recording.shipper import Shipper
from determined.store.messages import MetricReport

logger = logging.getLogger("determined.core")

SHORTEST_INTERVAL = 0.1
DISKS = ("/", "/run/determined/shared_fs", "/determined_shared_fs")
Sample: TypeAlias = "dict[str, float | dict[str, float]]"


class ProfilerContext:
    """Samples this machine, and reports averages. Reached as `core_context.profiler`.

    Example::

        with determined.core.init() as context:
            context.profiler.on()
            train()
            context.profiler.off()
    """

    def __init__(
        self, distributed: DistributedContext | None = None, shipper: Shipper | None = None, agent_id: str = ""
    ) -> None:
        self._distributed = distributed or DistributedContext()
        self._shipper = shipper or Shipper()
        self._agent_id = agent_id or socket.gethostname()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Start sampling, in one process per machine.

        Args:
            sampling_interval: Seconds between samples, at least 0.1.
            samples_per_report: How many samples are averaged into one report.
        """
        if not isinstance(sampling_interval, (int, float)) or not SHORTEST_INTERVAL <= sampling_interval < math.inf:
            raise ValueError(
                f"sampling_interval is {sampling_interval!r}; expected at least {SHORTEST_INTERVAL} seconds."
            )
        if isinstance(samples_per_report, bool) or not isinstance(samples_per_report, int) or samples_per_report < 1:
            raise ValueError(f"samples_per_report is {samples_per_report!r}; expected a whole number, 1 or more.")
        if self._distributed.local_rank == 0 and self._thread is None:
            self._stop.clear()
            arguments = (sampling_interval, samples_per_report)
            self._thread = threading.Thread(target=self._run, args=arguments, name="determined-profiler", daemon=True)
            self._thread.start()

    def off(self) -> None:
        """Stop sampling, and report the samples that are left."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join()

    def _run(self, interval: float, samples_per_report: int) -> None:
        """Sample until the end. A sample that fails is logged and skipped; the others go on."""
        disk_rates = _rates(_count_disk)
        meters: dict[str, Callable[[], Sample]] = {
            "gpu": _GpuMeter().sample,
            "cpu": _sample_cpu,
            "memory": _sample_memory,
            "disk": lambda: {**disk_rates(), **_sample_disk_use()},
            "network": _rates(_count_network),
        }
        failed: set[str] = set()
        _sample_cpu()  # psutil measures from call to call; the first has nothing to compare with
        window: dict[str, list[Sample]] = collections.defaultdict(list)
        count = 0
        while not self._stop.wait(interval):
            for group, sample in meters.items():
                try:
                    if taken := sample():
                        window[group].append(taken)
                except Exception:
                    if group not in failed:
                        logger.warning("Sampling %s failed; it is tried again at each sample.", group, exc_info=True)
                    failed.add(group)
            count += 1
            if count % samples_per_report == 0:
                self._report(window)
        self._report(window)

    def _report(self, window: dict[str, list[Sample]]) -> None:
        try:
            for group, samples in window.items():
                means: dict[str, Json] = {self._agent_id: average(samples)}  # type: ignore[dict-item]  # a Sample is Json; dicts are invariant
                self._shipper.put(MetricReport(group, means))
        except Exception:
            logger.warning("System samples could not be reported.", exc_info=True)
        window.clear()


def average(samples: Iterable[Sample]) -> Sample:
    """Return the mean of each value over the samples that have it, one level of nesting included."""
    values: dict[str, list[Any]] = collections.defaultdict(list)
    for sample in samples:
        for name, value in sample.items():
            values[name].append(value)
    return {
        name: average(series) if isinstance(series[0], dict) else sum(series) / len(series)  # type: ignore[misc]  # one level
        for name, series in values.items()
    }


def _sample_cpu() -> Sample:
    import psutil

    return {"cpu_util_simple": psutil.cpu_percent()}


def _sample_memory() -> Sample:
    import psutil

    return {"memory_free": float(psutil.virtual_memory().available)}


def _rates(count: Callable[[], dict[str, float]]) -> Callable[[], Sample]:
    """Return what samples the rates of these counters, per second since it was last called."""
    last = time.monotonic(), count()

    def sample() -> Sample:
        nonlocal last
        (then, before), last = last, (time.monotonic(), count())
        seconds = last[0] - then
        if seconds <= 0:
            return {}
        return {name: max(0.0, value - before.get(name, value)) / seconds for name, value in last[1].items()}

    return sample


def _count_disk() -> dict[str, float]:
    import psutil

    if (seen := psutil.disk_io_counters()) is None:  # on a machine without disks
        return {}
    return {
        "disk_iops": float(seen.read_count + seen.write_count),
        "disk_throughput_read": float(seen.read_bytes),
        "disk_throughput_write": float(seen.write_bytes),
    }


def _sample_disk_use() -> Sample:
    import psutil

    return {path: {"disk_util": psutil.disk_usage(path).percent} for path in DISKS if Path(path).is_dir()}


def _count_network() -> dict[str, float]:
    import psutil

    seen = psutil.net_io_counters()
    return {"net_throughput_sent": float(seen.bytes_sent), "net_throughput_recv": float(seen.bytes_recv)}


class _GpuMeter:
    """NVIDIA GPUs, if nvidia-ml-py and a driver are there; the set is looked up at each sample."""

    def __init__(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml: Any = pynvml
        except Exception:  # noqa: BLE001 - not installed, no driver, no GPU: all mean there is nothing to sample
            self._nvml = None

    def sample(self) -> Sample:
        if self._nvml is None:
            return {}
        result: Sample = {}
        for index in range(self._nvml.nvmlDeviceGetCount()):
            device = self._nvml.nvmlDeviceGetHandleByIndex(index)
            result[str(self._nvml.nvmlDeviceGetUUID(device))] = {
                "gpu_util": float(self._nvml.nvmlDeviceGetUtilizationRates(device).gpu),
                "gpu_free_memory": float(self._nvml.nvmlDeviceGetMemoryInfo(device).free),
            }
        return result
