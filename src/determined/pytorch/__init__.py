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

__getattr__, __dir__, _ = _lazy.exports(
    __name__,
    rooms=("samplers",),
    names={
        "Batch": "_plan",
        "CheckpointLoadContext": "checkpoint.load",
        "CountReducer": "metrics.ready_made",
        "DataLoader": "data.loader",
        "DistributedBatchSampler": "samplers",
        "EarlyStopping": "_monitors",
        "Epoch": "_plan",
        "GradientNorm": "_monitors",
        "LRMonitor": "_monitors",
        "LRScheduler": "_lr_scheduler",
        "LegacyTrial": "_trial",
        "MeanReducer": "metrics.ready_made",
        "MetricReducer": "metrics.reducer",
        "PyTorchCallback": "_callback",
        "PyTorchExperimentalContext": "_context",
        "PyTorchTrial": "_trial",
        "PyTorchTrialContext": "_context",
        "Reducer": "metrics.reducer",
        "RepeatBatchSampler": "samplers",
        "ShouldExit": "_callback",
        "SkipBatchSampler": "samplers",
        "SumReducer": "metrics.ready_made",
        "TorchData": "data.loader",
        "TrainUnit": "_plan",
        "Trainer": "_trainer",
        "adapt_batch_sampler": "data.loader",
        "data_length": "data.to_device",
        "init": "_init",
        "load_trial_from_checkpoint_path": "checkpoint.load",
        "to_device": "data.to_device",
        "_Data": "data.loader",
        "_PyTorchReducerContext": "metrics.reducer",
        "_ShouldExit": "_callback",
        "_SimpleReducer": "metrics.reducer",
        "_TrainBoundaryType": "_plan",
        "_combine_and_average_training_metrics": "metrics.reduction",
        "_convert_metrics_to_numpy": "metrics.reduction",
        "_dataset_repro_warning": "data.stream",
        "_log_tb_metrics": "display.tensorboard",
        "_prepare_metrics_reducers": "metrics.reduction",
        "_reduce_metrics": "metrics.reduction",
        "_simple_reduce_metrics": "metrics.reduction",
    },
)

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "CountReducer",
    "DataLoader",
    "EarlyStopping",
    "Epoch",
    "GradientNorm",
    "LRMonitor",
    "LRScheduler",
    "MeanReducer",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "ShouldExit",
    "SumReducer",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "adapt_batch_sampler",
    "data_length",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]
