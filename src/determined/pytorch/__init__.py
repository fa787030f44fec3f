"""What a model author writes against: trials, trainer, data loading and metrics."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.pytorch import samplers as samplers
    from determined.pytorch._callback import PyTorchCallback as PyTorchCallback
    from determined.pytorch._context import PyTorchTrialContext as PyTorchTrialContext
    from determined.pytorch._data import DataLoader as DataLoader
    from determined.pytorch._data import TorchData as TorchData
    from determined.pytorch._data import adapt_batch_sampler as adapt_batch_sampler
    from determined.pytorch._exit import ShouldExit as ShouldExit
    from determined.pytorch._experimental import PyTorchExperimentalContext as PyTorchExperimentalContext
    from determined.pytorch._init import init as init
    from determined.pytorch._load import CheckpointLoadContext as CheckpointLoadContext
    from determined.pytorch._load import load_trial_from_checkpoint_path as load_trial_from_checkpoint_path
    from determined.pytorch._lr_scheduler import LRScheduler as LRScheduler
    from determined.pytorch._monitors import EarlyStopping as EarlyStopping
    from determined.pytorch._monitors import GradientNorm as GradientNorm
    from determined.pytorch._monitors import LRMonitor as LRMonitor
    from determined.pytorch._plan import Batch as Batch
    from determined.pytorch._plan import Epoch as Epoch
    from determined.pytorch._plan import TrainUnit as TrainUnit
    from determined.pytorch._ready_made import CountReducer as CountReducer
    from determined.pytorch._ready_made import MeanReducer as MeanReducer
    from determined.pytorch._ready_made import SumReducer as SumReducer
    from determined.pytorch._reducer import MetricReducer as MetricReducer
    from determined.pytorch._reducer import Reducer as Reducer
    from determined.pytorch._to_device import data_length as data_length
    from determined.pytorch._to_device import to_device as to_device
    from determined.pytorch._trainer import Trainer as Trainer
    from determined.pytorch._trial import LegacyTrial as LegacyTrial
    from determined.pytorch._trial import PyTorchTrial as PyTorchTrial
    from determined.pytorch.samplers import DistributedBatchSampler as DistributedBatchSampler
    from determined.pytorch.samplers import RepeatBatchSampler as RepeatBatchSampler
    from determined.pytorch.samplers import SkipBatchSampler as SkipBatchSampler

__getattr__, __dir__, _ = _lazy.exports(
    __name__,
    rooms=("samplers",),
    names={
        "Batch": "_plan",
        "CheckpointLoadContext": "_load",
        "CountReducer": "_ready_made",
        "DataLoader": "_data",
        "DistributedBatchSampler": "samplers",
        "EarlyStopping": "_monitors",
        "Epoch": "_plan",
        "GradientNorm": "_monitors",
        "LRMonitor": "_monitors",
        "LRScheduler": "_lr_scheduler",
        "LegacyTrial": "_trial",
        "MeanReducer": "_ready_made",
        "MetricReducer": "_reducer",
        "PyTorchCallback": "_callback",
        "PyTorchExperimentalContext": "_experimental",
        "PyTorchTrial": "_trial",
        "PyTorchTrialContext": "_context",
        "Reducer": "_reducer",
        "RepeatBatchSampler": "samplers",
        "ShouldExit": "_exit",
        "SkipBatchSampler": "samplers",
        "SumReducer": "_ready_made",
        "TorchData": "_data",
        "TrainUnit": "_plan",
        "Trainer": "_trainer",
        "adapt_batch_sampler": "_data",
        "data_length": "_to_device",
        "init": "_init",
        "load_trial_from_checkpoint_path": "_load",
        "to_device": "_to_device",
        "_Data": "_data",
        "_PyTorchReducerContext": "_reducer",
        "_ShouldExit": "_exit",
        "_SimpleReducer": "_reducer",
        "_TrainBoundaryType": "_plan",
        "_combine_and_average_training_metrics": "_compat",
        "_convert_metrics_to_numpy": "_compat",
        "_dataset_repro_warning": "_stream",
        "_log_tb_metrics": "_tensorboard",
        "_prepare_metrics_reducers": "_metrics",
        "_reduce_metrics": "_compat",
        "_simple_reduce_metrics": "_compat",
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
