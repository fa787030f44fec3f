"""What a model author writes against: trials, trainer, data loading and metrics."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.pytorch import samplers as samplers
    from determined.pytorch._callback import PyTorchCallback as PyTorchCallback
    from determined.pytorch._callback import ShouldExit as ShouldExit
    from determined.pytorch._context import PyTorchExperimentalContext as PyTorchExperimentalContext
    from determined.pytorch._context import PyTorchTrialContext as PyTorchTrialContext
    from determined.pytorch._init import init as init
    from determined.pytorch._lr_scheduler import LRScheduler as LRScheduler
    from determined.pytorch._monitors import EarlyStopping as EarlyStopping
    from determined.pytorch._monitors import GradientNorm as GradientNorm
    from determined.pytorch._monitors import LRMonitor as LRMonitor
    from determined.pytorch._plan import Batch as Batch
    from determined.pytorch._plan import Epoch as Epoch
    from determined.pytorch._plan import TrainUnit as TrainUnit
    from determined.pytorch._trainer import Trainer as Trainer
    from determined.pytorch._trial import LegacyTrial as LegacyTrial
    from determined.pytorch._trial import PyTorchTrial as PyTorchTrial
    from determined.pytorch.checkpoint.load import CheckpointLoadContext as CheckpointLoadContext
    from determined.pytorch.checkpoint.load import load_trial_from_checkpoint_path as load_trial_from_checkpoint_path
    from determined.pytorch.data.loader import DataLoader as DataLoader
    from determined.pytorch.data.loader import TorchData as TorchData
    from determined.pytorch.data.loader import adapt_batch_sampler as adapt_batch_sampler
    from determined.pytorch.data.to_device import data_length as data_length
    from determined.pytorch.data.to_device import to_device as to_device
    from determined.pytorch.metrics.ready_made import CountReducer as CountReducer
    from determined.pytorch.metrics.ready_made import MeanReducer as MeanReducer
    from determined.pytorch.metrics.ready_made import SumReducer as SumReducer
    from determined.pytorch.metrics.reducer import MetricReducer as MetricReducer
    from determined.pytorch.metrics.reducer import Reducer as Reducer
    from determined.pytorch.samplers import DistributedBatchSampler as DistributedBatchSampler
    from determined.pytorch.samplers import RepeatBatchSampler as RepeatBatchSampler
    from determined.pytorch.samplers import SkipBatchSampler as SkipBatchSampler

__getattr__, __dir__, __all__ = _lazy.exports(
    __name__,
    rooms=("samplers",),
    names={
        "_callback": "PyTorchCallback ShouldExit",
        "_context": "PyTorchExperimentalContext PyTorchTrialContext",
        "_init": "init",
        "_lr_scheduler": "LRScheduler",
        "_monitors": "EarlyStopping GradientNorm LRMonitor",
        "_plan": "Batch Epoch TrainUnit",
        "_trainer": "Trainer",
        "_trial": "PyTorchTrial",
        "checkpoint.load": "CheckpointLoadContext load_trial_from_checkpoint_path",
        "data.loader": "DataLoader TorchData adapt_batch_sampler",
        "data.to_device": "data_length to_device",
        "metrics.ready_made": "CountReducer MeanReducer SumReducer",
        "metrics.reducer": "MetricReducer Reducer",
    },
    older={
        "_callback": "_ShouldExit",
        "_plan": "_TrainBoundaryType",
        "_trial": "LegacyTrial",
        "data.loader": "_Data",
        "data.stream": "_dataset_repro_warning",
        "display.tensorboard": "_log_tb_metrics",
        "metrics.reducer": "_PyTorchReducerContext _SimpleReducer",
        "metrics.reduction": (
            "_combine_and_average_training_metrics _convert_metrics_to_numpy _prepare_metrics_reducers "
            "_reduce_metrics _simple_reduce_metrics"
        ),
        "samplers": "DistributedBatchSampler RepeatBatchSampler SkipBatchSampler",
    },
)
