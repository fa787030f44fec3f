"""The order of training, written once.

Everything that happens between the first batch and the last is called from here; what it is made of lives elsewhere.
"""

from __future__ import annotations

import logging
import time
from typing import Any, NoReturn

from determined import core, errors
from determined.pytorch import _policy
from determined.pytorch._exit import ShouldExit
from determined.pytorch._fit import Fit
from determined.pytorch._plan import Due

logger = logging.getLogger("determined.pytorch")


def run(fit: Fit) -> None:
    """Train, and leave in the way that whatever ended it asks for. Collective."""
    try:
        train(fit)
    except ShouldExit as leaving:
        report_rest(fit)
        if not leaving.skip_exit_checkpoint:
            checkpoint(fit)
    except errors.InvalidHP:
        report_rest(fit)
        checkpoint(fit)
        raise
    except BaseException:
        fit.checkpointer.abandon()  # what is being written in the background still gets its end; errors are logged
        raise
    finish_saving(fit)


def train(fit: Fit) -> None:
    """Train until the plan is complete or a stop is requested. Collective."""
    while not fit.is_complete:
        train_window(fit)
        due = fit.due()
        report(fit, due)
        if due.validate:
            validate(fit)
        if due.checkpoint:
            checkpoint(fit)
        fit.context.upload_events()
        if not due.complete and stop_requested(fit):
            break
    else:  # complete, rather than stopped
        if fit.progress.batches_trained > 0:
            validate(fit)
    if fit.progress.batches_trained > 0:
        checkpoint(fit)  # does nothing when the last one is current; so does validate
    fit.context.upload_events()


def train_window(fit: Fit) -> None:
    """Train batches until something may be due or a stop is asked for.

    The one hot path: what it needs is looked up before the first batch, and nothing is done per batch that can be done
    per window.
    """
    fit.core.train.set_status("training")
    fit.set_training_mode(True)
    fit.context.reset_reducers()
    trial, context, progress, stream, position = fit.trial, fit.context, fit.progress, fit.stream, fit.context.position
    train_batch, add = trial.train_batch, fit.window.add
    to_device = context.to_device if context.auto_to_device else None
    accumulating = context.gradients.accumulating if fit.spares_communication else None
    is_update, profiler, finish_batch = context.gradients.is_update, context.profiler, fit.finish_batch
    should_preempt, batch_length = fit.core.preempt.should_preempt, _batch_length(fit)
    stop_at, stops_at_epochs = fit.plan.next_stop(progress.batches_trained), fit.plan.stops_at_epochs

    while True:
        batch = next(stream)
        batch_idx = progress.batches_trained
        position.batch_idx, position.epoch_idx = batch_idx, stream.epoch_idx
        position.starts_epoch, position.ends_epoch = stream.starts_epoch, stream.ends_epoch
        if position.starts_epoch:
            fit.callbacks.run("on_training_epoch_start", position.epoch_idx)
        if to_device is not None:
            batch = to_device(batch)
        if accumulating is not None and not is_update(batch_idx):
            with accumulating():
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
            progress.epochs_trained += 1
            fit.callbacks.run("on_training_epoch_end", position.epoch_idx)
            if stops_at_epochs:
                break
        if progress.batches_trained >= stop_at or should_preempt():
            break


def report(fit: Fit, due: Due) -> None:
    """Say what the window brought: metrics at every stop, progress where it is due. Collective."""
    result = fit.window.close(fit.context.reducers)
    if result.batches == 0:
        return
    metrics = {**fit.counters(), **result.metrics}
    fit.context.write_events("training", fit.progress.batches_trained, result.metrics, result.batch_metrics)
    fit.core.train.report_training_metrics(fit.progress.batches_trained, metrics, result.batch_metrics)
    fit.bar.show(metrics)
    fit.callbacks.run("on_training_workload_end", avg_metrics=metrics, batch_metrics=result.batch_metrics)
    if due.progress:
        fraction = fit.plan.fraction(fit.progress.batches_trained, fit.progress.epochs_trained)
        fit.core.train.report_progress(fraction)


def report_rest(fit: Fit) -> None:
    """Report what an exit from the middle of a window left unreported. Collective."""
    if fit.context.position.batch_idx == fit.progress.batches_trained:
        fit.stream.step_back()  # the batch that raised was not trained, so a resume begins with it
    report(fit, Due())


def validate(fit: Fit) -> None:
    """Validate and report, unless this batch count is validated; a result that earns it is saved. Collective."""
    if fit.is_validated:
        return
    fit.core.train.set_status("validating")
    started = time.monotonic()
    result = fit.validation.run()
    fit.progress.last_validation = fit.progress.batches_trained
    _say_throughput(result.records, result.batches, time.monotonic() - started)
    metrics = {**fit.counters(), **result.metrics}
    fit.context.write_events("validation", fit.progress.batches_trained, result.metrics)
    earns = fit.context.distributed.run_on_chief(lambda: fit.policy.earns_checkpoint(result.metrics))
    fit.core.train.report_validation_metrics(fit.progress.batches_trained, metrics)
    fit.last_value = _policy.value_or_none(fit.searcher_metric, result.metrics)
    fit.bar.show(metrics, validation=True)
    if earns and fit.progress.batches_trained > 0:
        checkpoint(fit)


def checkpoint(fit: Fit) -> None:
    """Save, unless this batch count is saved. Collective."""
    if fit.is_saved:
        return
    finish_saving(fit)
    fit.core.train.set_status("checkpointing")
    fit.progress.last_checkpoint = fit.progress.batches_trained
    try:
        if fit.saves_async:
            fit.checkpointer.save_async(fit.checkpoint_metadata())
        else:
            storage_id = fit.checkpointer.save(fit.checkpoint_metadata())
            fit.callbacks.run("on_checkpoint_upload_end", uuid=storage_id)
    except errors.InvalidHP:
        _leave_as_invalid(fit)


def finish_saving(fit: Fit) -> None:
    """Wait for a checkpoint that is being written in the background, and say that it is stored. Collective."""
    try:
        if (storage_id := fit.checkpointer.wait()) is not None:
            fit.callbacks.run("on_checkpoint_upload_end", uuid=storage_id)
    except errors.InvalidHP:
        _leave_as_invalid(fit)


def _leave_as_invalid(fit: Fit) -> NoReturn:
    """A hook of a checkpoint found the hyperparameters invalid: the state is stored, so this is a clean end."""
    fit.core.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
    raise ShouldExit(skip_exit_checkpoint=True)


def stop_requested(fit: Fit) -> bool:
    """Whether any rank wants to leave: preempted, or asked to by user code. Collective."""
    asked = fit.core.preempt.should_preempt()
    wants = fit.context.get_stop_requested()
    if fit.context.distributed.size > 1:
        wants = any(fit.context.distributed.allgather(wants))
    return asked or wants


def _batch_length(fit: Fit) -> Any:
    """How records are counted, if anybody looks at them."""
    if not fit.measures_throughput:
        return None

    def length(batch: Any) -> int:
        try:
            return fit.trial.get_batch_length(batch)
        except (TypeError, ValueError):
            return 0

    return length


def _say_throughput(records: int, batches: int, seconds: float) -> None:
    if batches:
        logger.info(
            "Validated %s records in %.4g seconds (%.4g records/s), in %s batches (%.4g batches/s).",
            records, seconds, records / max(seconds, 1e-9), batches, batches / max(seconds, 1e-9),
        )  # fmt: skip
