"""init(): find the other ranks, choose a seed, and make the context that a trial is built with."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from determined import core
from determined._info import ClusterInfo, get_cluster_info
from determined._wording import instead
from determined.core._context import _init_trial, _slots
from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch._facts import find_trial_info
from determined.pytorch.code.saved_script import refuse_to_train
from determined.pytorch.display.console import is_on
from determined.pytorch.parallel.process_group import named_ranks, process_group

logger = logging.getLogger("determined.pytorch")

# The keys of an experiment file, to find mistyped ones; `experiment.config` says what each means.
CONFIG_KEYS = {
    "name", "description", "labels", "data", "workspace", "project", "entrypoint", "max_restarts", "log_policies",
    "retention_policy", "debug", "perform_initial_validation", "checkpoint_policy", "checkpoint_storage",
    "hyperparameters", "searcher", "resources", "environment", "bind_mounts", "reproducibility", "profiling",
    "preemption_timeout", "integrations", "slurm", "scheduling_unit", "min_validation_period", "min_checkpoint_period",
    "optimizations", "records_per_epoch", "data_layer", "security", "tensorboard_storage", "pbs",
}  # fmt: skip
SEARCHER_KEYS = ("metric", "smaller_is_better")  # those that a plain run reads

# torch.initial_seed() if no seed was chosen.
_UNSEEDED = 67280421310721
# torch.initial_seed() after an init() that chose one, which the script did not choose either.
_seeded_here: int | None = None


@contextlib.contextmanager
def init(
    *,
    hparams: dict[str, Any] | None = None,
    exp_conf: dict[str, Any] | None = None,
    distributed: core.DistributedContext | None = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
    seed: int | None = None,
    tracking: bool = True,
) -> Iterator[PyTorchTrialContext]:
    """The context that a `PyTorchTrial` is built and trained with, for the length of a `with` block.

    Under `torchrun` the ranks find each other and train one model together.

    Args:
        hparams: What `context.get_hparam()` answers; by default what a managed trial was given.
        exp_conf: The experiment config; its `searcher` tells which validations are best, its `checkpoint_storage` where
            checkpoints go. A managed trial has its own.
        distributed: How the ranks find each other, if it is not `torchrun` that started them.
        aggregation_frequency: Batches whose gradients are added up before one optimizer step.
        enable_tensorboard_logging: Write metrics as TensorBoard scalars.
        seed: For weights, data order and everything random. By default `reproducibility.experiment_seed` of the config,
            the seed that the script chose with `torch.manual_seed()`, or one that is drawn and logged.
        tracking: Record the run in the store. `DET_TRACKING=off` in the environment turns it off too.

    Example::

        with pytorch.init(hparams={"lr": 0.1}) as context:
            trainer = pytorch.Trainer(MyTrial(context), context)
            trainer.fit(max_length=pytorch.Epoch(10))
    """
    refuse_to_train()
    _check_arguments(hparams, exp_conf, aggregation_frequency)
    info = get_cluster_info()
    trial = find_trial_info(info)
    config = exp_conf if trial is None else trial._config
    if trial is not None and exp_conf is not None:
        logger.warning("init(exp_conf=...) is ignored: this trial was started with an experiment config of its own.")
    with contextlib.ExitStack() as stack:
        ranks = _find_ranks(distributed, info)
        stack.callback(ranks.close)
        if ranks.rank == 0 and config is exp_conf:
            check_keys(exp_conf or {})
        stack.enter_context(process_group(ranks))
        trial_seed = _choose_seed(seed, trial.trial_seed if trial else None, config or {}, ranks)
        services = stack.enter_context(
            _init_trial(
                distributed=ranks,
                config=config or {},
                info=info,
                hparams=hparams if hparams is not None or trial is None else trial.hparams,
                seed=trial_seed,
                tracking=tracking,
            )
        )
        context = PyTorchTrialContext(
            services,
            trial_seed,
            hparams,
            ranks.size,
            torch.cuda.device_count(),
            config,
            aggregation_frequency,
            trial._steps_completed if trial else 0,
            True,
            bool((config or {}).get("debug", False)),
            enable_tensorboard_logging,
        )
        stack.callback(context.close)
        with named_ranks(ranks):  # while it can still be found out which ranks have left
            yield context


def _check_arguments(hparams: Any, exp_conf: Any, frequency: Any) -> None:
    for name, given in (("hparams", hparams), ("exp_conf", exp_conf)):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"init({name}={given!r}): expected a dict from name to value.")
    if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
        raise ValueError(f"aggregation_frequency is {frequency!r}; expected a whole number, 1 or more.")


def check_keys(config: Mapping[str, Any]) -> None:
    """Warn about keys of an experiment config that are unknown, and suggest what may have been meant."""
    import difflib

    unknown = []
    for key in (str(key) for key in config if key not in CONFIG_KEYS):
        near = instead(key, CONFIG_KEYS)
        unknown.append((key, near if "mean" in near else " Put values of your own under 'data'."))
    searcher = config.get("searcher")
    for key in searcher if isinstance(searcher, Mapping) else ():  # each search method has keys of its own, too
        close = difflib.get_close_matches(str(key), SEARCHER_KEYS, n=1, cutoff=0.75)
        if close and key not in SEARCHER_KEYS:
            unknown.append((f"searcher.{key}", f" Did you mean 'searcher.{close[0]}'?"))
    for key, advice in unknown:
        logger.warning("init(exp_conf=...): %r is no key of an experiment config.%s", key, advice)


def _find_ranks(given: core.DistributedContext | None, info: ClusterInfo | None) -> core.DistributedContext:
    """Return the ranks that train together: those given, else those of torchrun, else this process alone."""
    if is_on("USE_HOROVOD"):
        raise RuntimeError("USE_HOROVOD is set, and Horovod is not supported. Start the script with torchrun instead.")
    if given is not None:
        return given
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ:
        return core.DistributedContext.from_torch_distributed()
    if (slots := _slots(info)) > 1:
        raise ValueError(
            f"This trial has {slots} slots and nothing started one process for each. Use the launcher: "
            "python3 -m determined.launch.torch_distributed python3 train.py"
        )
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise RuntimeError(
            f"A process group of {torch.distributed.get_world_size()} is initialised, but RANK and WORLD_SIZE are not "
            "set. Start the script with torchrun, or pass init(distributed=...)."
        )
    return core.DistributedContext()


def _choose_seed(
    given: int | None, managed: int | None, config: Mapping[str, Any], ranks: core.DistributedContext
) -> int:
    """Return the trial's seed, the same on every rank, and seed with it unless the script has seeded."""
    global _seeded_here
    chosen = given if given is not None else managed
    if chosen is None:
        chosen = (config.get("reproducibility") or {}).get("experiment_seed")
    if chosen is None and torch.initial_seed() not in (_UNSEEDED, _seeded_here):
        return int(ranks.broadcast(torch.initial_seed() % 2**31))  # the script has seeded its streams itself
    if chosen is None:
        chosen = secrets.randbelow(2**31)
        if ranks.rank == 0:
            logger.info("No seed was given; this run has seed %d. To repeat it: init(seed=%d)", chosen, chosen)
    chosen = int(ranks.broadcast(_whole(chosen)))
    random.seed(chosen)
    np.random.seed(chosen % 2**32)
    torch.manual_seed(chosen)
    _seeded_here = chosen
    return chosen


def _whole(seed: Any) -> int:
    """Return the seed as an int that every generator accepts."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if -(2**63) <= int(seed) < 2**64:
            return int(seed)
    raise ValueError(f"The seed is {seed!r}; expected a whole number of at most 64 bits, for example init(seed=7).")
