"""Services a training process talks to: metrics, checkpoints, other ranks, and requests to stop. Start at `init`."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.core._checkpoint import CheckpointContext as CheckpointContext
    from determined.core._checkpoint import DownloadMode as DownloadMode
    from determined.core._context import Context as Context
    from determined.core._context import init as init
    from determined.core._preempt import PreemptContext as PreemptContext
    from determined.core._preempt import PreemptMode as PreemptMode
    from determined.core._profiler import ProfilerContext as ProfilerContext
    from determined.core._searcher import SearcherContext as SearcherContext
    from determined.core._searcher import SearcherContextMissing as SearcherContextMissing
    from determined.core._searcher import SearcherMode as SearcherMode
    from determined.core._searcher import SearcherOperation as SearcherOperation
    from determined.core._searcher import Unit as Unit
    from determined.core._train import EarlyExitReason as EarlyExitReason
    from determined.core._train import ExperimentalCoreContext as ExperimentalCoreContext
    from determined.core._train import TrainContext as TrainContext
    from determined.core.ranks.distributed import DistributedContext as DistributedContext
    from determined.core.recording.tensorboard import TensorboardMode as TensorboardMode

    DummyCheckpointContext = CheckpointContext
    DummyPreemptContext = PreemptContext
    DummyProfilerContext = ProfilerContext
    DummySearcherContext = SearcherContext
    DummySearcherOperation = SearcherOperation
    DummyExperimentalCoreContext = ExperimentalCoreContext
    DummyTrainContext = TrainContext
    DummyDistributedContext = DistributedContext

# A local run has the real services, so the Dummy classes of earlier releases are the same ones.
_PUBLIC = {
    "CheckpointContext": "_checkpoint",
    "Context": "_context",
    "DistributedContext": "ranks.distributed",
    "DownloadMode": "_checkpoint",
    "DummyCheckpointContext": "_checkpoint:CheckpointContext",
    "DummyDistributedContext": "ranks.distributed:DistributedContext",
    "DummyExperimentalCoreContext": "_train:ExperimentalCoreContext",
    "DummyPreemptContext": "_preempt:PreemptContext",
    "DummyProfilerContext": "_profiler:ProfilerContext",
    "DummySearcherContext": "_searcher:SearcherContext",
    "DummySearcherOperation": "_searcher:SearcherOperation",
    "DummyTrainContext": "_train:TrainContext",
    "EarlyExitReason": "_train",
    "ExperimentalCoreContext": "_train",
    "PreemptContext": "_preempt",
    "PreemptMode": "_preempt",
    "ProfilerContext": "_profiler",
    "SearcherContext": "_searcher",
    "SearcherContextMissing": "_searcher",
    "SearcherMode": "_searcher",
    "SearcherOperation": "_searcher",
    "TensorboardMode": "recording.tensorboard",
    "TrainContext": "_train",
    "Unit": "_searcher",
    "init": "_context",
}
# Reached for by older code, though never promised.
_OLDER = {
    "_DummyMetricsContext": "recording.shipper:Shipper",
    "_Heartbeat": "recording.heartbeat:Heartbeat",
    "_LogShipper": "recording.log_capture:LogTee",
    "_MetricsContext": "recording.shipper:Shipper",
    "_PreemptionWatcher": "_preempt",
    "_dummy_init": "_context",
    "_get_storage_manager": "_context",
    "_parse_searcher_max_length": "_searcher",
    "_parse_searcher_units": "_searcher",
    "_run_on_rank_0_and_broadcast": "ranks.distributed:run_on_chief",
}

__getattr__, __dir__, _names = _lazy.exports(__name__, names={**_PUBLIC, **_OLDER})
__all__ = sorted(_PUBLIC)
