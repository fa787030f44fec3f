"""TensorBoard files of older scripts: writers, and managers that copy event files to where checkpoints are kept.

New code writes into `core_context.train.get_tensorboard_path()`, or uses `context.get_tensorboard_writer()`.
"""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.tensorboard import util as util
    from determined.tensorboard._manager import TensorboardManager as TensorboardManager
    from determined.tensorboard._paths import get_base_path as get_base_path
    from determined.tensorboard._paths import get_experiment_sync_path as get_experiment_sync_path
    from determined.tensorboard._paths import get_sync_path as get_sync_path
    from determined.tensorboard._storage import AzureTensorboardManager as AzureTensorboardManager
    from determined.tensorboard._storage import GCSTensorboardManager as GCSTensorboardManager
    from determined.tensorboard._storage import S3TensorboardManager as S3TensorboardManager
    from determined.tensorboard._storage import SharedFSTensorboardManager as SharedFSTensorboardManager
    from determined.tensorboard._storage import build as build
    from determined.tensorboard._writer import BatchMetricWriter as BatchMetricWriter
    from determined.tensorboard._writer import MetricWriter as MetricWriter
    from determined.tensorboard._writer import get_metric_writer as get_metric_writer

__getattr__, __dir__, __all__ = _lazy.exports(
    __name__,
    rooms=("metric_writers", "util"),
    names={
        "AzureTensorboardManager": "_storage",
        "BatchMetricWriter": "_writer",
        "GCSTensorboardManager": "_storage",
        "MetricWriter": "_writer",
        "S3TensorboardManager": "_storage",
        "SharedFSTensorboardManager": "_storage",
        "TensorboardManager": "_manager",
        "build": "_storage",
        "get_base_path": "_paths",
        "get_experiment_sync_path": "_paths",
        "get_metric_writer": "_writer",
        "get_sync_path": "_paths",
    },
)
