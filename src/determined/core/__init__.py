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
__getattr__, __dir__, __all__ = _lazy.exports(
    __name__,
    names={
        "_checkpoint": "CheckpointContext DownloadMode DummyCheckpointContext=CheckpointContext",
        "_context": "Context init",
        "_preempt": "DummyPreemptContext=PreemptContext PreemptContext PreemptMode",
        "_profiler": "DummyProfilerContext=ProfilerContext ProfilerContext",
        "_searcher": (
            "DummySearcherContext=SearcherContext DummySearcherOperation=SearcherOperation SearcherContext "
            "SearcherContextMissing SearcherMode SearcherOperation Unit"
        ),
        "_train": (
            "DummyExperimentalCoreContext=ExperimentalCoreContext DummyTrainContext=TrainContext EarlyExitReason "
            "ExperimentalCoreContext TrainContext"
        ),
        "ranks.distributed": "DistributedContext DummyDistributedContext=DistributedContext",
        "recording.tensorboard": "TensorboardMode",
    },
    older={
        "_context": "_dummy_init _get_storage_manager",
        "_preempt": "_PreemptionWatcher",
        "_searcher": "_parse_searcher_max_length _parse_searcher_units",
        "ranks.distributed": "_run_on_rank_0_and_broadcast=run_on_chief",
        "recording.heartbeat": "_Heartbeat=Heartbeat",
        "recording.log_capture": "_LogShipper=LogTee",
        "recording.shipper": "_DummyMetricsContext=Shipper _MetricsContext=Shipper",
    },
)
