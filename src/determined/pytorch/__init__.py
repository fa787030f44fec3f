"""What a model author writes against: trials, trainer, data loading and metrics."""

from determined.pytorch import samplers
from determined.pytorch._compat import _combine_and_average_training_metrics as _combine_and_average_training_metrics
from determined.pytorch._compat import _convert_metrics_to_numpy as _convert_metrics_to_numpy
from determined.pytorch._compat import _reduce_metrics as _reduce_metrics
from determined.pytorch._compat import _simple_reduce_metrics as _simple_reduce_metrics
from determined.pytorch._context import PyTorchExperimentalContext, PyTorchTrialContext
from determined.pytorch._data import DataLoader, TorchData, adapt_batch_sampler
from determined.pytorch._data import _Data as _Data
from determined.pytorch._lr_scheduler import LRScheduler
from determined.pytorch._metrics import _prepare_metrics_reducers as _prepare_metrics_reducers
from determined.pytorch._ready_made import CountReducer, MeanReducer, SumReducer
from determined.pytorch._reducer import MetricReducer, Reducer
from determined.pytorch._reducer import _PyTorchReducerContext as _PyTorchReducerContext
from determined.pytorch._reducer import _SimpleReducer as _SimpleReducer
from determined.pytorch._stream import _dataset_repro_warning as _dataset_repro_warning
from determined.pytorch._tensorboard import _log_tb_metrics as _log_tb_metrics
from determined.pytorch._to_device import data_length, to_device

__all__ = [
    "CountReducer",
    "DataLoader",
    "LRScheduler",
    "MeanReducer",
    "MetricReducer",
    "PyTorchExperimentalContext",
    "PyTorchTrialContext",
    "Reducer",
    "SumReducer",
    "TorchData",
    "adapt_batch_sampler",
    "data_length",
    "samplers",
    "to_device",
]
