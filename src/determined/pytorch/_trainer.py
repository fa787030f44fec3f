"""Trainer.fit(): check the arguments, make a plan, build what the loop works with, and run it."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from typing import TYPE_CHECKING, Any, Literal

from determined import errors
from determined.core import Unit
from determined.core._searcher import _parse_searcher_max_length, _parse_searcher_units
from determined.core.recording.values import differences
from determined.pytorch import _loop, _rng
from determined.pytorch._callback import Callbacks
from determined.pytorch._monitors import Monitor
from determined.pytorch._plan import (
    Batch,
    Epoch,
    FitPlan,
    Progress,
    TrainUnit,
    check_reachable,
)
from determined.pytorch._trial import PyTorchTrial, evaluates_full_dataset
from determined.pytorch._validate import Validation
from determined.pytorch.checkpoint import save_policy
from determined.pytorch.checkpoint.checkpointer import Checkpointer
from determined.pytorch.checkpoint.saved import SavedCheckpoint, find_checkpoint, open_checkpoint
from determined.pytorch.data.stream import TrainingStream, epoch_length, training_stream
from determined.pytorch.display.bar import make_bar
from determined.pytorch.display.console import Origin, Outcome, differences_text, say_beginning, say_end
from determined.pytorch.metrics.reduction import TrainingWindow

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext

logger = logging.getLogger("determined.pytorch")


class Trainer:
    """Trains a trial. Build and use it inside `pytorch.init()`.

    Args:
        trial: The trial.
        context: What `init()` gave, and the trial was built with.

    Example::

        with pytorch.init() as context:
            trainer = pytorch.Trainer(MyTrial(context), context)
            trainer.fit(max_length=pytorch.Epoch(10), validation_period=pytorch.Epoch(1))
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context
        self._profiles = False

    def configure_profiler(
        self,
        sync_timings: bool = True,  # noqa: ARG002 - accepted from older scripts, like the two below
        enabled: bool = False,
        begin_on_batch: int = 0,  # noqa: ARG002
        end_after_batch: int | None = None,  # noqa: ARG002
    ) -> None:
        """The older way to switch on system samples; use `fit(profiling_enabled=True)`."""
        if self._context.distributed.rank == 0:
            logger.warning("configure_profiler() is now fit(profiling_enabled=True); enabled=%s is passed on.", enabled)
        self._profiles = bool(enabled)

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit = Batch(100),  # noqa: B008 - units do not change
        checkpoint_policy: str = "best",
        latest_checkpoint: str | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
        *,
        checkpoint_async: bool = False,
        keep_best: int | None = None,
        keep_latest: int | None = None,
    ) -> None:
        """Train until `max_length`, or until asked to stop.

        Each call counts from batch 0, with the weights as they are, unless `latest_checkpoint` says where to go on:
        `fit(latest_checkpoint="latest")` continues what an earlier call, or an earlier run, has begun.

        Args:
            checkpoint_period: When to save, beside the end and what the policy saves.
            validation_period: When to validate, beside the end.
            max_length: How long to train in all, over all runs of this trial: `Batch(n)` or `Epoch(n)`.
            reporting_period: When to report progress. Metrics are reported at every stop.
            checkpoint_policy: Which validations are saved: "best", "all" or "none".
            latest_checkpoint: What to go on from: a checkpoint's id, a directory, or the "latest" or "best" checkpoint
                of earlier runs of this script with this trial class and equal hyperparameters (a fresh start if there
                is none). A managed trial goes on by itself; "none" prevents it.
            step_zero_validation: Validate before the first batch.
            test_mode: Train one batch, validate one, save: does everything work?
            profiling_enabled: Report samples of CPU, memory, disk, network and GPU.
            checkpoint_async: Write checkpoints in the background; training waits only for a copy in memory.
            keep_best: How many of the best checkpoints to keep, by the searcher metric; the others are removed as
                training goes on. By default all are kept; 1 if only `keep_latest` is given.
            keep_latest: How many of the newest to keep; 1 if only `keep_best` is given.

        Raises:
            ValueError: An argument has a value that cannot be; `max_length` is missing.
            TypeError: A period is no `Batch` or `Epoch`.
            RuntimeError: The trial's context is closed, or was made for a loaded checkpoint.
            InvalidExperimentException: The trial wrapped no model or no optimizer, or evaluates in no way or in two.
            StorageConfigError: Checkpoints cannot be written to where they go.
        """
        trial, context, services = self._trial, self._context, self._context.core_context
        config = _config(context)
        _check_trial(trial, context, config)
        distributed, is_chief = context.distributed, context.distributed.rank == 0
        is_managed = context.trial_info is not None
        if test_mode and is_managed:
            raise ValueError("test_mode is for trying a trial locally; a managed trial trains in full.")
        searcher = config.get("searcher") or {}
        metric, smaller_is_better = searcher.get("metric"), bool(searcher.get("smaller_is_better", True))
        if max_length is None and is_managed:
            max_length = _configured_length(searcher, context)
        plan = FitPlan(max_length, validation_period, checkpoint_period, reporting_period, test_mode)
        if is_managed:
            _check_time_metric(searcher, max_length)
        retention = save_policy.retention(keep_best, keep_latest, searcher, is_managed=is_managed)
        best_so_far = services.train.get_experiment_best_validation
        policy = save_policy.choose(checkpoint_policy, searcher, best_so_far, is_chief=is_chief, is_managed=is_managed)
        services.checkpoint.check_storage()  # now, rather than when there is something to lose
        progress = Progress(trial_id=context.trial_info.trial_id if context.trial_info is not None else 0)
        origin = self._find_origin(latest_checkpoint, smaller_is_better, test_mode, progress.trial_id)
        callbacks = Callbacks(trial.build_callbacks())

        with contextlib.ExitStack() as cleanup:  # in reverse order, however training ends
            cleanup.callback(callbacks.shut_down)
            self._start(callbacks, origin.checkpoint, progress.trial_id)
            with _rng.preserved():  # nothing that a loader needs is drawn from the streams of training
                stream, length = self._open_stream()
                cleanup.callback(stream.close)
                check_reachable(plan, length)
                validation = Validation(trial, context, callbacks, trial.build_validation_data_loader(), test_mode)
            checkpointer = Checkpointer(services, context, trial, callbacks, progress, stream)
            outcome = Outcome(metric, smaller_is_better)
            continues = self._restore(checkpointer, origin, stream, progress, outcome, retention)
            if is_chief:
                say_beginning(services, plan, progress, origin, type(trial).__name__, continues=continues)
                _log_plan(plan, progress, length)
            if profiles := profiling_enabled or self._profiles:
                services.profiler.on()
                cleanup.callback(services.profiler.off)
            if context.profiler is not None:
                cleanup.enter_context(context.profiler)
            bar = make_bar(plan, progress, length, is_chief, metric)
            cleanup.callback(bar.close)
            fit = _loop.Fit(
                trial=trial,
                context=context,
                core=services,
                plan=plan,
                progress=progress,
                stream=stream,
                callbacks=callbacks,
                validation=validation,
                checkpointer=checkpointer,
                policy=policy,
                window=TrainingWindow(distributed, first_batch=progress.batches_trained),
                bar=bar,
                outcome=outcome,
                streams=_rng.KeptStreams(_rng.device_kind()),
                saves_async=checkpoint_async,
                measures_throughput=profiles,
                searcher_metric=metric,
                validates_first=step_zero_validation and progress.batches_trained == 0,
            )
            with distributed.showing_progress(lambda: progress.batches_trained, lambda: validation.batches):
                with _loop.ending(fit):
                    _loop.train(fit)
        if is_chief:
            say_end(services, plan, progress, origin, outcome)

    def _find_origin(
        self, latest_checkpoint: str | None, smaller_is_better: bool, test_mode: bool, trial_id: int
    ) -> Origin:
        """Find the checkpoint to go on from. Collective."""
        services = self._context.core_context
        info = services.info
        if latest_checkpoint is None and info is not None:
            latest_checkpoint = info.latest_checkpoint
        if latest_checkpoint in (None, "", "none"):
            return Origin()
        if latest_checkpoint not in ("latest", "best"):
            checkpoint = open_checkpoint(services, str(latest_checkpoint))
            self._warn_about_other_hparams(checkpoint)
            return Origin(checkpoint)
        if test_mode:
            return Origin()  # to go on would train nothing, and what is tried is no part of any training
        name = type(self._trial).__qualname__
        which: Literal["latest", "best"] = "latest" if latest_checkpoint == "latest" else "best"
        found = find_checkpoint(services, which, name, smaller_is_better, trial_id)
        newest = open_checkpoint(services, found.found[0]) if found.found else None
        return Origin(newest, True, found.unlike)

    def _warn_about_other_hparams(self, checkpoint: SavedCheckpoint) -> None:
        """Name the hyperparameters that differ from those of a checkpoint that was asked for by name."""
        services = self._context.core_context
        if services.description is None or self._context.distributed.rank != 0:
            return
        if different := differences(services.description.hparams, checkpoint.hparams):
            logger.warning(
                "Checkpoint %s was trained with other hyperparameters: %s. What its optimizers and schedulers saved "
                "wins, such as the learning rate; elsewhere the values of this run count.",
                checkpoint.source,
                differences_text(different),
            )

    def _start(self, callbacks: Callbacks, checkpoint: SavedCheckpoint | None, trial_id: int) -> None:
        """Take over the seed of the checkpoint to go on from, and run the startup hooks."""
        for callback in callbacks.named.values():
            if isinstance(callback, Monitor):
                callback.context = self._context
        first_batch = checkpoint.batches_of(trial_id) if checkpoint is not None else 0
        if checkpoint is not None and first_batch and checkpoint.seed is not None:
            self._context.continue_with_seed(checkpoint.seed)
        self._context.start_at(first_batch)
        callbacks.start(first_batch, None if checkpoint is None else checkpoint.source)

    def _open_stream(self) -> tuple[TrainingStream, int]:
        """Return this rank's training batches, and how many make an epoch, the same on every rank. Collective."""
        context, distributed = self._context, self._context.distributed
        loader = self._trial.build_training_data_loader()
        length = distributed.broadcast(epoch_length(loader, distributed.size))
        stream = training_stream(
            loader,
            seed=context.get_trial_seed(),
            rank=distributed.rank,
            size=distributed.size,
            chief_length=length,
            is_checked=context.checks_datasets,
        )
        context.position.batch_idx, context.position.epoch_length = None, length
        return stream, length

    def _restore(
        self,
        checkpointer: Checkpointer,
        origin: Origin,
        stream: TrainingStream,
        progress: Progress,
        outcome: Outcome,
        retention: dict[str, int] | None,
    ) -> bool:
        """Restore what was saved, if anything; return whether training goes on from its counters. Collective."""
        services, checkpoint, storage_id = self._context.core_context, origin.checkpoint, origin.storage_id
        continues = False
        if checkpoint is not None:
            continues = checkpointer.load(checkpoint)
            if continues and checkpoint.best is not None:
                services.train.note_best_validation(checkpoint.best)
                outcome.best_before = checkpoint.best
        if continues:
            outcome.first_batch = progress.batches_trained
            outcome.newest = (storage_id or "", progress.batches_trained)
        self._context.position.epoch_shift = stream.epoch_shift(progress.batches_trained)
        services.train.note_fit(
            progress.batches_trained,
            storage_id,
            continues=continues,
            joins=origin.is_own,
            retention=retention,
        )
        return continues


def _check_trial(trial: PyTorchTrial, context: PyTorchTrialContext, config: dict[str, Any]) -> None:
    """Refuse what cannot be trained, and warn of what is probably not meant."""
    if isinstance(trial, type):
        made = f"Trainer({trial.__name__}(context), context)"
        raise TypeError(
            f"Trainer got the class {trial.__name__} itself, which is no trial yet. Pass an instance: {made}"
        )
    if not isinstance(trial, PyTorchTrial):
        raise TypeError(
            f"Trainer got {trial!r:.60}, a {type(trial).__name__}; expected an instance of your PyTorchTrial subclass."
        )
    if not context.core_context.is_open:
        raise RuntimeError(
            "fit() was called outside of `with pytorch.init() as context:`, where nothing is reported or saved. "
            "Call it inside, with a trial built on that context."
        )
    name = type(trial).__name__
    if not context.models and callable(getattr(trial, "build_model", None)):
        raise errors.InvalidExperimentException(
            f"{name} has build_model(), as trials had until 0.13, and nobody calls it any more. In __init__, say "
            "self.model = context.wrap_model(self.build_model()), and likewise context.wrap_optimizer(); in "
            "train_batch(batch, epoch_idx, batch_idx), call context.backward(loss) and context.step_optimizer()."
        )
    if not context.models:
        raise errors.InvalidExperimentException(
            f"{name} wrapped no model, so there is nothing to train. Pass one through context.wrap_model() in __init__."
        )
    if not context.optimizers:
        raise errors.InvalidExperimentException(
            f"{name} wrapped {len(context.models)} model(s) but no optimizer, so nothing would train. "
            "Pass one through context.wrap_optimizer() in __init__."
        )
    evaluates_full_dataset(trial)
    _warn_about_unwrapped_parameters(name, context)
    if config.get("records_per_epoch") and context.distributed.rank == 0:
        logger.warning("records_per_epoch has no effect: an epoch is one pass over the training data loader.")


def _warn_about_unwrapped_parameters(trial: str, context: PyTorchTrialContext) -> None:
    """Warn about trained parameters that no checkpoint will hold and whose gradients ranks do not exchange."""
    known = {id(parameter) for model in context.models for parameter in model.parameters()}
    unwrapped = []
    for optimizer in context.optimizers:
        trained = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
        if count := sum(id(parameter) not in known for parameter in trained):
            unwrapped.append(f"{count} of {type(optimizer).__name__}")
    if unwrapped and context.distributed.rank == 0:
        logger.warning(
            "%s trains parameters that belong to no wrapped model (%s), so checkpoints do not hold them%s. Pass the "
            "model they belong to through context.wrap_model() too.",
            trial,
            ", ".join(unwrapped),
            " and each rank trains its own" if context.distributed.size > 1 else "",
        )


def _config(context: PyTorchTrialContext) -> dict[str, Any]:
    try:
        return context.get_experiment_config()
    except ValueError:
        return {}


def _configured_length(searcher: dict[str, Any], context: PyTorchTrialContext) -> TrainUnit | None:
    """Return the training length that an older experiment's config gives, if it does."""
    length = _parse_searcher_max_length(searcher)
    if not length:
        return None
    warnings.warn(
        "searcher.max_length is deprecated as the training length: pass fit(max_length=...).",
        FutureWarning,
        stacklevel=3,
    )
    unit = _parse_searcher_units(searcher)
    if unit is None:
        logger.warning("searcher.max_length is %d without a unit; it is taken as batches.", length)
    try:
        global_batch_size = context.get_global_batch_size()
    except ValueError:
        global_batch_size = None
    return TrainUnit._from_searcher_unit(length, unit or Unit.BATCHES, global_batch_size)


def _check_time_metric(searcher: dict[str, Any], max_length: TrainUnit | None) -> None:
    """Warn if the length that a search such as ASHA counts on is not the one that is trained."""
    metric = searcher.get("time_metric")
    if metric is None:
        return
    if searcher.get("max_time") is None:
        raise AssertionError(f"searcher.time_metric is {metric!r}, so the config also needs searcher.max_time.")
    own = {"batches": Batch, "epochs": Epoch}.get(metric)
    if own is None:
        logger.warning("searcher.time_metric is %r: report it with every validation.", metric)
    elif max_length != own(searcher["max_time"]):
        logger.warning(
            "searcher.max_time is %s %s, and fit(max_length=%r) decides.", searcher["max_time"], metric, max_length
        )


def _log_plan(plan: FitPlan, progress: Progress, length: int) -> None:
    kind = "epochs" if isinstance(plan.max_length, Epoch) else "batches"
    logger.info(
        "Training to %d %s from batch %d; an epoch has %s batches. Validation: %s, checkpoint: %s, report: %s.",
        plan.length, kind, progress.batches_trained, "no known number of" if length == sys.maxsize else length,
        plan.validation_period, plan.checkpoint_period, plan.reporting_period,
    )  # fmt: skip
    if length == sys.maxsize and (never := plan.counted_in_epochs()):
        logger.warning(
            "The training data loader has no len(), so no epoch ends, and %s will never be reached. "
            "Count in batches, for example pytorch.Batch(1000), or give the loader a length.",
            " and ".join(never),
        )
