"""The experiment file: YAML in, checked values with defaults out. Start at `ExperimentConfig.parse`."""

from typing import TYPE_CHECKING

from determined import _lazy

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined.experiment.config.experiment_config import ExperimentConfig as ExperimentConfig

__getattr__, __dir__, __all__ = _lazy.exports(__name__, names={"experiment_config": "ExperimentConfig"})
