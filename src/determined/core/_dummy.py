"""Older names of the services: a local run has the real ones, so the Dummy classes are aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from determined.core._checkpoint import CheckpointContext
from determined.core._experimental import ExperimentalCoreContext
from determined.core._preempt import PreemptContext
from determined.core._profiler import ProfilerContext
from determined.core._searcher import SearcherContext, SearcherOperation
from determined.core._train import TrainContext
from determined.core.ranks.distributed import DistributedContext
from determined.core.recording.heartbeat import Heartbeat
from determined.core.recording.log_capture import LogTee
from determined.core.recording.shipper import Shipper

DummyCheckpointContext = CheckpointContext
DummyDistributedContext = DistributedContext
DummyExperimentalCoreContext = ExperimentalCoreContext
DummyPreemptContext = PreemptContext
DummyProfilerContext = ProfilerContext
DummySearcherContext = SearcherContext
DummySearcherOperation = SearcherOperation
DummyTrainContext = TrainContext

_DummyMetricsContext = Shipper
_MetricsContext = Shipper
_Heartbeat = Heartbeat
_LogShipper = LogTee

T = TypeVar("T")


def _run_on_rank_0_and_broadcast(distributed: DistributedContext, work: Callable[[], T]) -> T:
    """Return the chief's result of `work` on every rank; raise its error there too. Collective."""
    return distributed.run_on_chief(work)
