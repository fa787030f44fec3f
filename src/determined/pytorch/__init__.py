"""What a model author writes against: trials, trainer, data loading and metrics."""

from typing import TYPE_CHECKING

from determined import _lazy
from determined.pytorch import samplers
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch._data import DataLoader, TorchData, adapt_batch_sampler
from determined.pytorch._data import _Data as _Data
from determined.pytorch._exit import ShouldExit
from determined.pytorch._experimental import PyTorchExperimentalContext
from determined.pytorch._init import init
from determined.pytorch._lr_scheduler import LRScheduler
from determined.pytorch._metrics import _prepare_metrics_reducers as _prepare_metrics_reducers
from determined.pytorch._monitors import EarlyStopping, GradientNorm, LRMonitor
from determined.pytorch._plan import Batch, Epoch, TrainUnit
from determined.pytorch._plan import _TrainBoundaryType as _TrainBoundaryType
from determined.pytorch._ready_made import CountReducer, MeanReducer, SumReducer
from determined.pytorch._reducer import MetricReducer, Reducer
from determined.pytorch._reducer import _PyTorchReducerContext as _PyTorchReducerContext
from determined.pytorch._reducer import _SimpleReducer as _SimpleReducer
from determined.pytorch._stream import _dataset_repro_warning as _dataset_repro_warning
from determined.pytorch._to_device import data_length, to_device
from determined.pytorch._trainer import Trainer
from determined.pytorch._trial import LegacyTrial as LegacyTrial
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.samplers import DistributedBatchSampler as DistributedBatchSampler  # where 0.12 had these three
from determined.pytorch.samplers import RepeatBatchSampler as RepeatBatchSampler
from determined.pytorch.samplers import SkipBatchSampler as SkipBatchSampler

if TYPE_CHECKING:  # training needs none of these: each is imported when it is first used
    from determined.pytorch._load import CheckpointLoadContext, load_trial_from_checkpoint_path

_ShouldExit = ShouldExit

__getattr__, __dir__, _ = _lazy.exports(
    __name__,
    names={
        "CheckpointLoadContext": "_load",
        "load_trial_from_checkpoint_path": "_load",
        "_combine_and_average_training_metrics": "_compat",
        "_convert_metrics_to_numpy": "_compat",
        "_log_tb_metrics": "_tensorboard",
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
