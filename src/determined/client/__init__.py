"""Python SDK: experiments, trials, checkpoints and models of a store, as plain objects. Start at `get_experiment`.

Example::

    from determined import client

    best = client.get_experiment(7).top_checkpoint()
    print(best.download())
"""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.client._checkpoint import Checkpoint as Checkpoint
    from determined.client._checkpoint import CheckpointTrainingMetadata as CheckpointTrainingMetadata
    from determined.client._compare import Comparison as Comparison
    from determined.client._compare import Difference as Difference
    from determined.client._compare import best_values as best_values
    from determined.client._compare import compare as compare
    from determined.client._compare import rank as rank
    from determined.client._default import connect as connect
    from determined.client._default import create_experiment as create_experiment
    from determined.client._default import create_model as create_model
    from determined.client._default import create_workspace as create_workspace
    from determined.client._default import delete_workspace as delete_workspace
    from determined.client._default import get_checkpoint as get_checkpoint
    from determined.client._default import get_experiment as get_experiment
    from determined.client._default import get_model as get_model
    from determined.client._default import get_model_labels as get_model_labels
    from determined.client._default import get_models as get_models
    from determined.client._default import get_trial as get_trial
    from determined.client._default import get_workspace as get_workspace
    from determined.client._default import iter_trials_metrics as iter_trials_metrics
    from determined.client._default import list_experiments as list_experiments
    from determined.client._default import list_models as list_models
    from determined.client._default import list_workspaces as list_workspaces
    from determined.client._default import login as login
    from determined.client._default import stream_trials_metrics as stream_trials_metrics
    from determined.client._default import stream_trials_training_metrics as stream_trials_training_metrics
    from determined.client._default import stream_trials_validation_metrics as stream_trials_validation_metrics
    from determined.client._determined import Determined as Determined
    from determined.client._enums import CheckpointSortBy as CheckpointSortBy
    from determined.client._enums import CheckpointState as CheckpointState
    from determined.client._enums import DownloadMode as DownloadMode
    from determined.client._enums import ExperimentSortBy as ExperimentSortBy
    from determined.client._enums import ExperimentState as ExperimentState
    from determined.client._enums import LogLevel as LogLevel
    from determined.client._enums import ModelOrderBy as ModelOrderBy
    from determined.client._enums import ModelSortBy as ModelSortBy
    from determined.client._enums import OrderBy as OrderBy
    from determined.client._enums import TrialSortBy as TrialSortBy
    from determined.client._enums import TrialState as TrialState
    from determined.client._experiment import Experiment as Experiment
    from determined.client._files import Retention as Retention
    from determined.client._listing import Listing as Listing
    from determined.client._logs import LogEntry as LogEntry
    from determined.client._metrics import Curve as Curve
    from determined.client._metrics import Metrics as Metrics
    from determined.client._metrics import Points as Points
    from determined.client._metrics import TrialMetrics as TrialMetrics
    from determined.client._model import Model as Model
    from determined.client._model import ModelVersion as ModelVersion
    from determined.client._store import StoreCommands as StoreCommands
    from determined.client._trial import Trial as Trial
    from determined.client._workspace import Project as Project
    from determined.client._workspace import Workspace as Workspace

__getattr__, __dir__, __all__ = _lazy.exports(
    __name__,
    names={
        "_checkpoint": "Checkpoint CheckpointTrainingMetadata",
        "_compare": "Comparison Difference best_values compare rank",
        "_default": (
            "connect create_experiment create_model create_workspace delete_workspace get_checkpoint get_experiment "
            "get_model get_model_labels get_models get_trial get_workspace iter_trials_metrics list_experiments "
            "list_models list_workspaces login stream_trials_metrics stream_trials_training_metrics "
            "stream_trials_validation_metrics"
        ),
        "_determined": "Determined",
        "_enums": (
            "CheckpointSortBy CheckpointState DownloadMode ExperimentSortBy ExperimentState LogLevel ModelOrderBy "
            "ModelSortBy OrderBy TrialSortBy TrialState"
        ),
        "_experiment": "Experiment",
        "_files": "Retention",
        "_listing": "Listing",
        "_logs": "LogEntry",
        "_metrics": "Curve Metrics Points TrialMetrics",
        "_model": "Model ModelVersion",
        "_store": "StoreCommands",
        "_trial": "Trial",
        "_workspace": "Project Workspace",
    },
)
