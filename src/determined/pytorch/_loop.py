"""The order of training: what happens between the first batch and the last, and in which order."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from determined import core, errors
from determined.pytorch import _rng
from determined.pytorch._callback import Callbacks, ShouldExit
from determined.pytorch._plan import Due, FitPlan
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.checkpoint import save_policy
from determined.pytorch.data.stream import TrainingStream
from determined.pytorch.display import console
from determined.pytorch.display.bar import Bar
from determined.pytorch.metrics.reduction import TrainingWindow

if TYPE_CHECKING:
    from determined.pytorch._context import PyTorchTrialContext
    from determined.pytorch._plan import Progress
    from determined.pytorch._validate import Validation
    from determined.pytorch.checkpoint.checkpointer import Checkpointer

logger = logging.getLogger("determined.pytorch")

EVENTS_SECONDS = 1.0

LEAVING_SECONDS = 25.0
"""How long a rank that leaves in the middle waits for the others to do the same."""


@dataclasses.dataclass
class Fit:
    """What the loop reads and changes during one `fit()`."""

    trial: PyTorchTrial
    context: PyTorchTrialContext
    core: core.Context
    plan: FitPlan
    progress: Progress
    stream: TrainingStream
    callbacks: Callbacks
    validation: Validation
    checkpointer: Checkpointer
    policy: save_policy.SavePolicy
    window: TrainingWindow
    bar: Bar
    streams: _rng.KeptStreams  # as they were before the batch that is being trained
    outcome: console.Outcome
    saves_async: bool = False
    measures_throughput: bool = False
    events_synced: float = 0.0  # when, by the monotonic clock
    searcher_metric: str | None = None
    validates_first: bool = False
    window_started: float = 0.0
    misses_metric: bool = False  # a validation lacked the searcher metric, which is logged once
    last_value: float | None = None  # of the searcher metric, at `progress.last_validation`
    updates_checked: bool = False

    @property
    def is_validated(self) -> bool:
        """Whether the newest batch count is validated."""
        return 0 < self.progress.batches_trained == self.progress.last_validation

    @property
    def is_saved(self) -> bool:
        """Whether the newest batch count is saved; at the beginning there is nothing to save."""
        return self.progress.batches_trained == self.progress.last_checkpoint

    def checkpoint_metadata(self) -> dict[str, Any]:
        """Return what a checkpoint stores about its validation: for `latest_checkpoint="best"`, and for the policy."""
        metadata: dict[str, Any] = {}
        if self.last_value is not None and self.is_validated:
            metadata["searcher_metric"] = self.last_value
        if self.plan.test_mode:
            metadata["test_mode"] = True
        if self.policy.kind == "best" and (best := self.policy.best_so_far()) is not None:
            metadata["best_validation"] = best
        return metadata

    def counters(self) -> dict[str, int]:
        """Return the counters that are part of every report."""
        return {"batches": self.progress.batches_trained, "epochs": self.progress.epochs_trained}


@contextlib.contextmanager
def ending(fit: Fit) -> Iterator[None]:
    """End training as whatever ends it asks for: report and save after `ShouldExit`, note why it ended. Collective.

    A context manager rather than a function around `train`: tracebacks from `train_batch` stay short.
    """
    try:
        try:
            yield
        except ShouldExit as leaving:
            fit.outcome.ended_by = fit.outcome.ended_by or f"ShouldExit was raised in {console.raised_in(leaving)}"
            leave(fit, leaving, saves=not leaving.skip_exit_checkpoint)
        except errors.InvalidHP as leaving:
            leave(fit, leaving, saves=True)
            raise
        note_end(fit)
    except BaseException:
        fit.checkpointer.abandon()  # a save in the background is still finished; its errors are logged
        raise


def train(fit: Fit) -> None:
    """Train until the plan is complete or a stop is requested. Collective."""
    is_resumed = fit.progress.batches_trained > 0
    with _rng.preserved() if is_resumed else contextlib.nullcontext():  # what it draws was drawn when training began
        fit.callbacks.on_training_start()
    if fit.validates_first:
        validate(fit)
    due = Due(complete=fit.plan.complete(fit.progress.batches_trained, fit.progress.epochs_trained))
    while not due.complete:
        due = train_window(fit)
        report(fit, due)
        if fit.saves_async:
            finish_saving(fit, waits=False)
        if due.validate:
            validate(fit)
        if due.checkpoint:
            checkpoint(fit)
        sync_events(fit)
        if not due.complete and stop_requested(fit):
            fit.outcome.ended_by = _stop_reason(fit)
            break
    else:  # complete, rather than stopped
        if fit.progress.batches_trained > 0:
            validate(fit)
    checkpoint(fit)  # does nothing when the last one is current; so does validate
    finish_saving(fit)
    fit.context.upload_events()


def train_window(fit: Fit) -> Due:
    """Train batches until something is due or a stop is asked for, and return what is due.

    The one hot path: what it needs is looked up before the first batch, and nothing is done per batch that can be done
    per window.
    """
    fit.core.train.set_status("training")
    trial, context, progress, stream, position = fit.trial, fit.context, fit.progress, fit.stream, fit.context.position
    for model in context.models:
        model.train()
    context.reducers.reset_reducers()
    fit.window_started = time.monotonic()
    train_batch, add = trial.train_batch, fit.window.add
    fit.streams.begin_window(progress.batches_trained)
    keep_streams = fit.streams.keep if fit.streams.have_moved else None
    to_device = context.to_device if context.auto_to_device else None
    accumulating = context.gradients.accumulating() if context.gradients.spares_communication else None
    is_update, profiler, finish_batch = context.gradients.is_update, context.profiler, context.finish_batch()
    should_preempt = fit.core.preempt.should_preempt
    batch_length = _batch_length(fit.trial) if fit.measures_throughput else None
    stop_at, stops_at_epochs = fit.plan.next_stop(progress.batches_trained), fit.plan.stops_at_epochs

    while True:
        batch_idx = progress.batches_trained
        if keep_streams is not None:
            keep_streams(batch_idx)
        batch = next(stream)
        position.batch_idx, position.epoch_idx = batch_idx, stream.epoch_idx
        position.starts_epoch, position.ends_epoch = stream.starts_epoch, stream.ends_epoch
        if position.starts_epoch:
            fit.callbacks.on_training_epoch_start(position.epoch_idx)
        if to_device is not None:
            batch = to_device(batch)
        if accumulating is not None and not is_update(batch_idx):
            with accumulating:
                result = train_batch(batch=batch, epoch_idx=position.epoch_idx, batch_idx=batch_idx)
        else:
            result = train_batch(batch=batch, epoch_idx=position.epoch_idx, batch_idx=batch_idx)
        if profiler is not None:
            profiler.step()
        if finish_batch is not None:
            finish_batch(batch_idx)
        add(result) if batch_length is None else add(result, batch_length(batch))
        progress.batches_trained = batch_idx + 1
        if position.ends_epoch:
            progress.epochs_trained += 1  # before the hook, so that an exit from it saves counters that agree
            fit.callbacks.on_training_epoch_end(position.epoch_idx)
        if progress.batches_trained >= stop_at or (position.ends_epoch and stops_at_epochs):
            if due := fit.plan.due(progress.batches_trained, progress.epochs_trained, position.ends_epoch):
                break
            stop_at = fit.plan.next_stop(progress.batches_trained)
        if should_preempt():
            due = Due()
            break
    fit.streams.end_window()
    return due


def report(fit: Fit, due: Due) -> None:
    """Report the metrics of the window, and progress where it is due. Collective."""
    result = fit.window.close(fit.context.reducers)
    metrics = {**fit.counters(), **result.metrics}
    fit.context.write_events("training", fit.progress.batches_trained, result.metrics, result.batch_metrics)
    fit.core.train.report_training_metrics(
        fit.progress.batches_trained, metrics, result.batch_metrics, window=result.batches or None
    )
    _report_speed(fit, result.batches, result.records)
    if not fit.updates_checked:
        _warn_without_updates(fit, result.batches)
    fit.bar.show(metrics)
    if fit.callbacks.on_training_workload_end:
        batches = list(result.batch_metrics)  # dicts for people; until here they were columns
        # A run that is stopped reports once more than one that is not.
        fit.callbacks.on_training_workload_end.preserving(avg_metrics=metrics, batch_metrics=batches)
    if due.progress:
        fit.core.train.report_progress(due.fraction)


def leave(fit: Fit, reason: Exception, *, saves: bool) -> None:
    """End before the plan is complete: report what is unreported, and save if `saves`. Collective."""
    try:
        # A rank that is not here by then still trains, perhaps waiting for our gradients, and will not come.
        fit.context.distributed.wait_for_all("leaving fit", LEAVING_SECONDS)
    except errors.CollectiveTimeout as late:
        raise errors.CollectiveTimeout(
            f"Rank {fit.context.distributed.rank} raised {reason!r}, but {str(late).partition('. ')[0]}. Raise it on "
            "every rank in the same batch; to stop all of them from one, call context.set_stop_requested(True)."
        ) from reason
    with contextlib.suppress(ShouldExit):  # a hook that asks for the exit that is under way
        report_rest(fit)
    if saves:
        with contextlib.suppress(ShouldExit):
            checkpoint(fit)
        if not fit.is_saved:
            logger.warning(
                "A hook raised ShouldExit while the last checkpoint was saved, so there is none of batch %d.",
                fit.progress.batches_trained,
            )
    with contextlib.suppress(ShouldExit):
        finish_saving(fit)
    fit.context.upload_events()


def report_rest(fit: Fit) -> None:
    """Report what an exit from the middle of a window left unreported. Collective."""
    has_raised = fit.context.position.batch_idx == fit.progress.batches_trained
    if has_raised:
        fit.stream.step_back()  # the batch that raised was not trained, so a resume begins with it
        if fit.progress.batches_trained % fit.context.gradients.aggregation_frequency == 0:
            fit.context.gradients.load_state_dict({})  # its gradients would count twice
    if fit.streams.batch_idx == fit.progress.batches_trained or (has_raised and not fit.streams.have_moved):
        fit.streams.put_back()  # random numbers that it drew are drawn again
    if fit.window.batches > 0:
        report(fit, Due())


def validate(fit: Fit) -> None:
    """Validate and report, unless this batch count is validated; save if the policy says so. Collective."""
    if fit.is_validated:
        return
    fit.core.train.set_status("validating")
    started = time.monotonic()
    result = fit.validation.run()
    fit.progress.last_validation = fit.progress.batches_trained
    if fit.context.distributed.rank == 0:
        _log_speed("Validated", result.records, result.batches, time.monotonic() - started)
    metrics = {**fit.counters(), **result.metrics}
    fit.context.write_events("validation", fit.progress.batches_trained, result.metrics)
    earns = fit.context.distributed.run_on_chief(lambda: fit.policy.earns_checkpoint(result.metrics))
    fit.core.train.report_validation_metrics(fit.progress.batches_trained, metrics)
    fit.last_value = save_policy.value_or_none(fit.searcher_metric, result.metrics)
    fit.outcome.validated(fit.last_value, fit.progress.batches_trained)
    if fit.searcher_metric and fit.last_value is None and not fit.misses_metric:
        fit.misses_metric = True
        if fit.context.distributed.rank == 0:
            save_policy.warn_of_missing(fit.searcher_metric, result.metrics)
    fit.bar.show(metrics, validation=True)
    if earns:
        with fit.validation.evaluating():  # hooks see the model as it was judged
            checkpoint(fit)


def checkpoint(fit: Fit) -> None:
    """Save, unless this batch count is saved. Collective."""
    if fit.is_saved:
        return
    if fit.saves_async:
        finish_saving(fit)
    fit.core.train.set_status("checkpointing")
    before, fit.progress.last_checkpoint = fit.progress.last_checkpoint, fit.progress.batches_trained
    with _invalid_hp_ends_training(fit):
        try:
            if fit.saves_async:
                fit.checkpointer.save_async(fit.checkpoint_metadata())
                return
            storage_id = fit.checkpointer.save(fit.checkpoint_metadata())
        except BaseException:
            fit.progress.last_checkpoint = before
            raise
        _announce(fit, storage_id)


def finish_saving(fit: Fit, *, waits: bool = True) -> None:
    """Run the hook of a checkpoint that was written in the background, once it is stored. Collective."""
    with _invalid_hp_ends_training(fit):
        _announce(fit, fit.checkpointer.wait() if waits else fit.checkpointer.poll())


def _announce(fit: Fit, storage_id: str | None) -> None:
    if storage_id is not None:
        fit.outcome.saved(storage_id, fit.progress.last_checkpoint)
        # Whatever the hook draws: a run that saves goes on like one that does not.
        fit.callbacks.on_checkpoint_upload_end.preserving(uuid=storage_id)


@contextlib.contextmanager
def _invalid_hp_ends_training(fit: Fit) -> Iterator[None]:
    """Turn InvalidHP from a hook of a checkpoint into a clean end, without another checkpoint."""
    try:
        yield
    except errors.InvalidHP:
        fit.core.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
        fit.outcome.ended_by = "InvalidHP was raised in a hook of a checkpoint"
        raise ShouldExit(skip_exit_checkpoint=True) from None


def sync_events(fit: Fit) -> None:
    """Upload event files, once a second at most: a fast loop stops more often than anybody looks."""
    if time.monotonic() - fit.events_synced > EVENTS_SECONDS:
        fit.events_synced = time.monotonic()
        fit.context.upload_events()


def stop_requested(fit: Fit) -> bool:
    """Return whether any rank is preempted or asked to stop by user code. Collective."""
    return fit.core.preempt.any_rank_stops(fit.context.get_stop_requested())


def _stop_reason(fit: Fit) -> str:
    if asked_by := fit.core.preempt.asked_by:
        return f"asked to stop by {asked_by}"
    return f"set_stop_requested() was called in {fit.context.stop_requested_by or 'another rank'}"


def note_end(fit: Fit) -> None:
    """Record why training ended, and how far it was."""
    if fit.outcome.ended_by:
        fraction = fit.plan.fraction(fit.progress.batches_trained, fit.progress.epochs_trained)
        fit.core.train.report_progress(fraction)
        fit.core.train.end_reason = f"{fit.outcome.ended_by}, after batch {fit.progress.batches_trained}"
    elif fit.plan.test_mode:
        fit.core.train.end_reason = "test_mode: one batch"
    else:
        fit.core.train.end_reason = f"reached max_length={fit.plan.max_length!r}"


def _batch_length(trial: PyTorchTrial) -> Callable[[Any], int]:
    """Return a function that counts the records of a batch; 0 if they cannot be counted."""

    def length(batch: Any) -> int:
        try:
            return trial.get_batch_length(batch)
        except (TypeError, ValueError):
            return 0

    return length


def _report_speed(fit: Fit, batches: int, records: int) -> None:
    """Log how fast the window was, and report it if throughput is measured."""
    seconds = max(time.monotonic() - fit.window_started, 1e-9)
    if fit.context.distributed.rank == 0:
        _log_speed("Trained", records, batches, seconds)
    if fit.measures_throughput:
        speeds = {"samples_per_second": records / seconds, "batches_per_second": batches / seconds}
        fit.core.train.report_metrics("throughput", fit.progress.batches_trained, speeds)


def _warn_without_updates(fit: Fit, batches: int) -> None:
    """Warn once, after the first window in which weights should have changed, if nothing can have changed them."""
    trained, frequency = fit.progress.batches_trained, fit.context.gradients.aggregation_frequency
    if trained // frequency == (trained - batches) // frequency:
        return  # no update was due yet
    fit.updates_checked = True
    if (missing := fit.context.gradients.missing_calls()) and fit.context.distributed.rank == 0:
        logger.warning(
            "%s trained %d batches, and train_batch() has not called %s, so no weight was changed by training. "
            "Call context.backward(loss) and then context.step_optimizer(optimizer) in train_batch().",
            type(fit.trial).__name__, batches, " nor ".join(missing),
        )  # fmt: skip


def _log_speed(done: str, records: int, batches: int, seconds: float) -> None:
    if not batches:
        return
    seconds = max(seconds, 1e-9)
    of_records = f"{records} records ({records / seconds:.4g} records/s) in " if records else ""
    logger.info(
        "%s %s%d batches (%.4g batches/s) in %.4g seconds.", done, of_records, batches, batches / seconds, seconds
    )
