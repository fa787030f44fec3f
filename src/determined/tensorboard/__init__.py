"""TensorBoard files of older scripts: writers, and managers that copy event files to where checkpoints are kept.

New code writes into `core_context.train.get_tensorboard_path()`, or uses `context.get_tensorboard_writer()`.
"""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.tensorboard import util as util
    from determined.tensorboard._manager import AzureTensorboardManager as AzureTensorboardManager
    from determined.tensorboard._manager import GCSTensorboardManager as GCSTensorboardManager
    from determined.tensorboard._manager import S3TensorboardManager as S3TensorboardManager
    from determined.tensorboard._manager import SharedFSTensorboardManager as SharedFSTensorboardManager
    from determined.tensorboard._manager import TensorboardManager as TensorboardManager
    from determined.tensorboard._manager import build as build
    from determined.tensorboard._manager import get_base_path as get_base_path
    from determined.tensorboard._manager import get_experiment_sync_path as get_experiment_sync_path
    from determined.tensorboard._manager import get_sync_path as get_sync_path
    from determined.tensorboard._writer import BatchMetricWriter as BatchMetricWriter
    from determined.tensorboard._writer import MetricWriter as MetricWriter
    from determined.tensorboard._writer import get_metric_writer as get_metric_writer

__getattr__, __dir__, __all__ = _lazy.exports(
    __name__,
    rooms=("metric_writers", "util"),
    names={
        "_manager": (
            "AzureTensorboardManager GCSTensorboardManager S3TensorboardManager SharedFSTensorboardManager "
            "TensorboardManager build get_base_path get_experiment_sync_path get_sync_path"
        ),
        "_writer": "BatchMetricWriter MetricWriter get_metric_writer",
    },
)
