"""Runs a trial class without a script, as older experiments do: `entrypoint: module:Class`, or a launcher's `--trial`.

The arguments of `init()` and `fit()` come from the experiment config.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from determined import errors
from determined._info import get_cluster_info
from determined.pytorch._facts import find_trial_info
from determined.pytorch._init import init
from determined.pytorch._plan import Batch, TrainUnit
from determined.pytorch._trainer import Trainer
from determined.pytorch._trial import PyTorchTrial


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the class that the command line names."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) == 2 and words[0] == "--test":
        try_out(find_class(words[1]), json.load(sys.stdin))
        return
    if len(words) != 1:
        raise SystemExit(f"usage: python -m {__spec__.name} [--test] module:Class")
    if os.environ.get("RANK", "0") == "0":  # once, not on every rank
        warnings.warn(
            "An entrypoint module:Class is deprecated: write a script with pytorch.init() and Trainer.fit().",
            FutureWarning,
            stacklevel=2,
        )
    # Without a script there is nowhere to pass fit(max_length=...).
    warnings.filterwarnings("ignore", "searcher.max_length is deprecated", FutureWarning)
    run(find_class(words[0]))


def find_class(spec: str) -> type[PyTorchTrial]:
    """Return the trial class that `module:Class` names."""
    module, colon, name = spec.partition(":")
    if not (module and colon and name):
        raise errors.InvalidConfigurationException(f"{spec!r} names no trial class; expected module:Class.")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise errors.InvalidConfigurationException(
                f"There is no {name} in {module}, which entrypoint {spec} names."
            )
        found = getattr(found, part)
    if not (isinstance(found, type) and issubclass(found, PyTorchTrial)):
        raise errors.InvalidConfigurationException(f"{spec} is no PyTorchTrial, so it cannot be an entrypoint.")
    return found


def run(trial_class: type[PyTorchTrial]) -> None:
    """Train it with the settings of this process's experiment config."""
    trial = find_trial_info(get_cluster_info())
    config: dict[str, Any] = trial._config if trial is not None else {}
    optimizations = config.get("optimizations") or {}
    with init(aggregation_frequency=optimizations.get("aggregation_frequency", 1)) as context:
        if context.distributed.rank != 0:
            logging.getLogger().setLevel(logging.DEBUG if config.get("debug") else logging.WARNING)
        context.default_fp16_compression = bool(optimizations.get("gradient_compression", False))
        context.default_average_aggregated_gradients = bool(optimizations.get("average_aggregated_gradients", True))
        hparams = trial.hparams if config and trial is not None else {}
        Trainer(trial_class(context), context).fit(**fit_arguments(config, hparams))


def try_out(trial_class: type[PyTorchTrial], config: dict[str, Any]) -> None:
    """Train one batch, validate one, and save, without a store; what is saved is removed again.

    Args:
        trial_class: What to try.
        config: The experiment config, with values for `hyperparameters`.
    """
    hparams = config.get("hyperparameters") or {}
    with tempfile.TemporaryDirectory(prefix="det-test-") as kept:
        config = {**config, "checkpoint_storage": {"type": "directory", "container_path": kept}}
        with init(hparams=hparams, exp_conf=config, enable_tensorboard_logging=False, tracking=False) as context:
            Trainer(trial_class(context), context).fit(max_length=Batch(1), test_mode=True)


def fit_arguments(config: Mapping[str, Any], hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `fit()` from an experiment config. Length and checkpoint are found by `fit()`."""
    batch_size = hparams.get("global_batch_size")
    return {
        "checkpoint_period": _period(config.get("min_checkpoint_period"), batch_size),
        "validation_period": _period(config.get("min_validation_period"), batch_size),
        "reporting_period": Batch(config.get("scheduling_unit") or 100),
        "checkpoint_policy": config.get("checkpoint_policy") or "best",
        "step_zero_validation": bool(config.get("perform_initial_validation", False)),
        "profiling_enabled": bool((config.get("profiling") or {}).get("enabled", False)),
    }


def _period(section: Mapping[str, int] | None, global_batch_size: int | None) -> TrainUnit | None:
    """Return a period given in batches, records or epochs; None if it is 0, which means never."""
    if not section or not any(section.values()):
        return None
    return TrainUnit._from_values(**section, global_batch_size=global_batch_size)


if __name__ == "__main__":
    main()
