"""The copy of an experiment that tries it out: one trial, one batch, nothing kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.generator import Generator
from determined.experiment.submission import submit
from determined.experiment.submission.submit import SubmitRequest

PREFIX = "[test-mode]"
ONE_BATCH = {"batches": 1}
OF_SEARCHER = ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")


def one_batch(request: SubmitRequest) -> SubmitRequest:
    """Return the request for one batch of what `request` asks for, with hyperparameters drawn at random.

    Raises:
        ConfigError: The configuration itself cannot work.
    """
    config = submit.checked_config(request)
    values = values_of(config)
    file = replace(request.file, values=values, text=submit.written(values))
    return replace(request, file=file, settings=(), template=None, paused=False, is_test=True)


def values_of(config: ExperimentConfig) -> dict[str, Any]:
    """Return the configuration that trains one batch."""
    whole = config.effective()
    searcher = {key: whole["searcher"].get(key) for key in OF_SEARCHER}
    return {
        **whole,
        "description": f"{PREFIX} {config.description or ''}".strip(),
        "searcher": {"name": "single", "max_length": ONE_BATCH, **searcher},
        "hyperparameters": sample(config),
        "max_restarts": 0,
        "scheduling_unit": 1,
        "min_validation_period": ONE_BATCH,
        "min_checkpoint_period": None,
        "checkpoint_storage": {
            **whole["checkpoint_storage"],
            "save_experiment_best": 0,
            "save_trial_best": 0,
            "save_trial_latest": 0,
        },
    }


def sample(config: ExperimentConfig) -> dict[str, Any]:
    """Return hyperparameters as one trial would be given them, declared as constants."""
    drawn = config.space.sample(Generator(config.reproducibility.experiment_seed))
    return {name: {"type": "const", "val": value} for name, value in drawn.items()}
