"""core.init() and the Context it returns: chooses the link, builds the services on it, and closes them."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from determined import artifacts, errors
from determined._home import data_directory
from determined._info import ClusterInfo, get_cluster_info
from determined.core._checkpoint import CheckpointContext
from determined.core._preempt import PreemptContext, PreemptMode
from determined.core._profiler import ProfilerContext
from determined.core._searcher import (
    SearcherContext,
    SearcherContextMissing,
    _parse_searcher_max_length,
    _parse_searcher_units,
)
from determined.core._train import EarlyExitReason, ExperimentalCoreContext, NonChiefReports, TrainContext
from determined.core.ranks.distributed import DistributedContext
from determined.core.ranks.watch import StackSignal
from determined.core.recording.heartbeat import EnvironmentNote, Heartbeat
from determined.core.recording.link import Attached, Link, NullLink
from determined.core.recording.log_capture import LogTee
from determined.core.recording.run_description import Run, RunDescription, describe, new_run, storage_config
from determined.core.recording.shipper import Shipper
from determined.core.recording.store_link import choose_link
from determined.core.recording.tensorboard import EventFiles, RunUploads, TensorboardMode, rank_directory
from determined.store.messages import Report

logger = logging.getLogger("determined.core")

SOON_SECONDS = 2.0
"""How long the end of a fit waits for the store to know the run."""


LEAVE_SECONDS = 2.0
"""How long a process that ends waits for a thread of it to leave its `with` block."""
CLOSE_SECONDS = 30.0
"""How long it then waits until everything is written, at most."""


class Context:
    """The services that a training process talks to. `core.init()` builds one; use it in a `with` statement.

    Example::

        with determined.core.init() as context:
            context.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})
    """

    def __init__(
        self,
        checkpoint: CheckpointContext,
        distributed: DistributedContext | None = None,
        preempt: PreemptContext | None = None,
        train: TrainContext | None = None,
        searcher: SearcherContext | SearcherContextMissing | None = None,
        profiler: ProfilerContext | None = None,
        experimental: ExperimentalCoreContext | None = None,
        *,
        info: ClusterInfo | None = None,
        run: Run | None = None,
        link: Link | None = None,
        shipper: Shipper | None = None,
        heartbeat: Heartbeat | None = None,
        log_tee: LogTee | None = None,
        environment: EnvironmentNote | None = None,
        uploads: RunUploads | None = None,
        description: RunDescription | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.distributed = distributed or DistributedContext()
        self.preempt = preempt or PreemptContext(self.distributed)
        self.train = train or TrainContext()
        self.searcher = searcher or SearcherContext(self.distributed)
        self.profiler = profiler or ProfilerContext(self.distributed)
        self.experimental = experimental or ExperimentalCoreContext()
        self.info = info
        self._run = run
        self._link = link or NullLink()
        self._shipper = shipper or Shipper(self._link)
        self._heartbeat = heartbeat
        self._log_tee = log_tee
        self._environment = environment
        self._uploads = uploads
        self.description = description
        self._stacks = StackSignal()
        self.is_open = False
        self._is_closed = threading.Event()
        self._opened_by = (os.getpid(), threading.current_thread())

    def start(self) -> Context:
        """Begin: what `with` does on entering."""
        self.is_open = True
        self._opened_by = (os.getpid(), threading.current_thread())
        atexit.register(self._close_at_exit)
        self._stacks.install()
        self.preempt.start()
        for part in (self._heartbeat, self._environment, self._uploads, self._log_tee):
            if part is not None:
                part.start()
        return self

    def close(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: types.TracebackType | None = None,  # noqa: ARG002 - the three belong together
    ) -> None:
        """End: what `with` does on leaving. Everything is closed, even if closing one part fails.

        Raises:
            Exception: The first error that closing met, unless the block itself ended with one.
        """
        if not self.is_open:
            return
        self.is_open = False
        invalid_hp = exc_type is not None and issubclass(exc_type, errors.InvalidHP)
        error = exc_val if exc_val is not None or exc_type is None else exc_type()
        steps: list[Callable[[], None]] = [self.profiler.off, self.preempt.hold]
        if error is not None:  # others may be waiting for this rank
            steps.append(lambda: self.distributed._set_leave_reason(error))
        steps.append(self.distributed.close)
        if invalid_hp:
            steps.append(lambda: self.train.report_early_exit(EarlyExitReason.INVALID_HP))
        steps += [part.close for part in (self._log_tee, self._environment) if part is not None]
        if self._heartbeat is not None:
            heartbeat = self._heartbeat
            steps.append(
                lambda: heartbeat.close(
                    error, was_asked_to_stop=self.preempt.was_acknowledged, reason=self.train.end_reason
                )
            )
        steps.append(self._shipper.close)
        if self._uploads is not None:
            steps.append(self._uploads.close)
        steps += [self._link.close, self._stacks.restore]
        try:
            first = _run_all(steps)
        finally:  # also after a second Ctrl-C, which cuts the steps short
            self._is_closed.set()
            atexit.unregister(self._close_at_exit)
            self.preempt.close()
        if first is not None and exc_type is None:
            raise first

    def _close_at_exit(self) -> None:
        """Close what a thread has opened in a process that ends meanwhile, as workers of Ray do when they are stopped.

        Such a thread is told to leave, and the process does not wait for it. What it has reported would be lost.
        """
        if os.getpid() != self._opened_by[0] or self._opened_by[1] is threading.main_thread():
            return
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.is_open and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.is_open:
            self.close(RuntimeError, RuntimeError("The process ended before the training in it did."))
        self._is_closed.wait(CLOSE_SECONDS)

    def alert(self, title: str | None = None, description: str | None = None, level: str = "info") -> None:
        """Send an event to webhooks of a cluster. There is no cluster here, so: ValueError."""
        raise ValueError(
            f"alert({title!r}) goes to the webhooks of a cluster, and this process was not started by one "
            f"(level {level!r}, description {description!r}). Log it, or guard the call with `if context.info:`."
        )

    def experiment_of(self, storage_id: str) -> int | None:
        """Return the experiment that a checkpoint belongs to, if the store knows it."""
        return self._link.experiment_of(storage_id)

    def recorded_as(self) -> Attached | None:
        """Return the trial that this run is recorded as; None if that is not known soon."""
        return self._link.recorded_as() if self._shipper.flush(SOON_SECONDS) else None

    def __enter__(self) -> Context:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: types.TracebackType | None,
    ) -> None:
        self.close(exc_type, exc_val, exc_tb)
        if exc_type is not None and issubclass(exc_type, errors.InvalidHP):
            logger.info("The hyperparameters are invalid, so this trial ends here: %s", exc_val)
            sys.exit(0)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | dict[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    non_chief_reports: NonChiefReports = "ignore",
    tracking: bool = True,
    name: str | None = None,
    description: str | None = None,
    labels: Sequence[str] | None = None,
    hparams: Mapping[str, Any] | None = None,
    metric: str | None = None,
    smaller_is_better: bool = True,
) -> Context:
    """Build the services of this training process, to be used as `with core.init() as context:`.

    Args:
        distributed: How the ranks of a job find each other, for example `DistributedContext.from_torch_distributed()`.
        checkpoint_storage: A path, `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix`, or a mapping as in the
            experiment config. By default `checkpoints` in the data directory (`DET_HOME`).
        preempt_mode: Which ranks ask whether to stop.
        tensorboard_mode: Whether reported metrics become TensorBoard files by themselves.
        non_chief_reports: What happens to reports from other ranks than the chief: "ignore", "raise" or "send".
        tracking: Record the run in the store. `DET_TRACKING=off` in the environment turns it off too.
        name: What lists call the run; by default after the script. This and what follows describe a plain run: a
            managed trial is described by its experiment.
        description: More about it, for people.
        labels: To find it by.
        hparams: Its hyperparameters: what lists and comparisons show, and what `checkpoint.latest()` goes by.
        metric: The validation metric that says which run and which checkpoint is best.
        smaller_is_better: The direction of `metric`.

    Raises:
        ValueError: Several slots and no `distributed`; or a storage that cannot be understood.
        TypeError: `checkpoint_storage` is neither text nor a mapping.

    Example::

        import determined

        with determined.core.init(hparams={"lr": 0.1}, metric="accuracy", smaller_is_better=False) as context:
            context.train.report_validation_metrics(steps_completed=1, metrics={"accuracy": 0.9})
    """
    if distributed is not None and not isinstance(distributed, DistributedContext):
        raise TypeError(
            f"distributed is {distributed!r}, a {type(distributed).__name__}. Pass a DistributedContext, for example "
            "core.DistributedContext.from_torch_distributed()."
        )
    info = get_cluster_info()
    if distributed is None and (slots := _slots(info)) > 1:
        raise ValueError(
            f"This task has {slots} slots, so its processes must find each other: pass for example "
            "core.init(distributed=core.DistributedContext.from_torch_distributed())."
        )
    is_managed = info is not None and info.task_type == "TRIAL"
    config: dict[str, Any] = info.trial._config if info is not None and is_managed else {}
    if not is_managed:
        said: dict[str, Any] = {"name": name, "description": description, "labels": list(labels) if labels else None}
        said["searcher"] = {"metric": metric, "smaller_is_better": smaller_is_better} if metric else None
        config = {key: value for key, value in said.items() if value is not None}
    ranks = distributed or DistributedContext()
    chosen = checkpoint_storage if checkpoint_storage is not None else config.get("checkpoint_storage")
    return _build(
        distributed=ranks,
        storage=_get_storage_manager(checkpoint_storage, config.get("checkpoint_storage")),
        preempt_mode=PreemptMode(preempt_mode),
        tensorboard_mode=TensorboardMode(tensorboard_mode),
        non_chief_reports=non_chief_reports,
        info=info,
        searcher_config=config.get("searcher"),
        link=None if tracking else NullLink(),
        description=_describe(config, chosen, ranks, info, None if is_managed else hparams),
        follows_restores=True,
    )


def _init_trial(
    *,
    distributed: DistributedContext,
    config: Mapping[str, Any],
    info: ClusterInfo | None,
    hparams: Mapping[str, Any] | None = None,
    seed: int | None = None,
    tracking: bool = True,
) -> Context:
    """Build the services of a trial that an experiment config describes; it writes its own event files."""
    return _build(
        distributed=distributed,
        storage=_get_storage_manager(None, config.get("checkpoint_storage")),
        preempt_mode=PreemptMode.WorkersAskChief,
        tensorboard_mode=TensorboardMode.MANUAL,
        info=info,
        searcher_config=config.get("searcher"),
        link=None if tracking else NullLink(),
        description=_describe(config, config.get("checkpoint_storage"), distributed, info, hparams, seed),
    )


def _describe(
    config: Mapping[str, Any],
    storage: Any,
    ranks: DistributedContext,
    info: ClusterInfo | None,
    hparams: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> RunDescription:
    return describe(
        config=config,
        hparams=hparams,
        seed=seed,
        storage=storage_config(storage, data_directory() / "checkpoints"),
        slots=ranks.size,
        info=info,
    )


def _slots(info: ClusterInfo | None) -> int:
    """Return how many processes this task was given."""
    return 1 if info is None else max(len(info.container_addrs), sum(info.container_slot_counts))


def _dummy_init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | dict[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.MANUAL,
) -> Context:
    """Build a context that records nothing, also in a managed trial; checkpoints are really stored."""
    return _build(
        distributed=distributed or DistributedContext(),
        storage=_get_storage_manager(checkpoint_storage, None),
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
        link=NullLink(),
    )


def _build(
    *,
    distributed: DistributedContext,
    storage: artifacts.Storage,
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
    non_chief_reports: NonChiefReports = "ignore",
    info: ClusterInfo | None = None,
    searcher_config: Mapping[str, Any] | None = None,
    link: Link | None = None,
    description: RunDescription | None = None,
    run: Run | None = None,
    watches_exit: bool = False,
    follows_restores: bool = False,
) -> Context:
    is_chief = distributed.rank == 0
    is_trial = info is not None and info.task_type == "TRIAL"
    run = run or _name_run(distributed)
    if link is None:
        assert description is not None
        link = choose_link(run, description, distributed.rank)
    is_recorded = type(link) is not NullLink
    event_files = EventFiles(rank_directory(run.tensorboard, distributed.rank), tensorboard_mode)
    uploads = None if storage.is_direct else RunUploads(storage, run.name, event_files.path, distributed.rank)
    # What other ranks of a managed trial print, its agent stores: they need no connection to the store for it.
    tees_log = is_recorded and (is_chief or not link.is_managed)
    writes_events = is_chief and tensorboard_mode is TensorboardMode.AUTO and is_recorded

    def follow(reports: Sequence[Report]) -> None:
        event_files.follow(reports)
        if uploads is not None:
            uploads.sync()

    shipper = Shipper(link, follow if writes_events else None)
    train = TrainContext(
        shipper,
        link,
        event_files=event_files,
        upload_event_files=None if uploads is None else functools.partial(uploads.sync, rank=distributed.rank),
        tensorboard_mode=tensorboard_mode,
        is_chief=is_chief,
        non_chief_reports=non_chief_reports,
        searcher=searcher_config,
    )
    return Context(
        CheckpointContext(
            distributed, storage, shipper, needs_metadata=is_trial, train=train if follows_restores else None, info=info
        ),
        distributed,
        PreemptContext(distributed, preempt_mode, link=link, shipper=shipper),
        train,
        _searcher(distributed, train, searcher_config or {}, info),
        ProfilerContext(distributed, shipper, info.agent_id if info else ""),
        ExperimentalCoreContext(shipper),
        info=info,
        run=run,
        link=link,
        shipper=shipper,
        heartbeat=Heartbeat(shipper, watches_exit) if is_chief else None,
        log_tee=LogTee(shipper, distributed.rank) if tees_log else None,
        environment=EnvironmentNote(shipper, description) if description and is_recorded and is_chief else None,
        uploads=uploads,
        description=description,
    )


def _name_run(distributed: DistributedContext) -> Run:
    """Return a run with one name for all ranks: the others find the chief's records by it. Collective."""
    run = new_run()
    return run if distributed.size == 1 else Run(distributed.broadcast(run.name), run.home)


def _searcher(
    distributed: DistributedContext, train: TrainContext, config: Mapping[str, Any], info: ClusterInfo | None
) -> SearcherContext | SearcherContextMissing:
    if info is None:
        return SearcherContext(distributed, train.report_progress)
    length = _parse_searcher_max_length(config)
    if length is None:
        return SearcherContextMissing()
    return SearcherContext(distributed, train.report_progress, length=length, unit=_parse_searcher_units(config))


def _get_storage_manager(
    chosen: str | dict[str, Any] | None, configured: dict[str, Any] | None = None
) -> artifacts.Storage:
    """Open the storage that the caller chose, else the experiment's, else the data directory's."""
    if chosen is not None:
        return artifacts.open_storage(chosen, allow_shared_fs=False)
    return artifacts.open_storage(configured, default_root=data_directory() / "checkpoints")


def _run_all(steps: list[Callable[[], None]]) -> Exception | None:
    """Run every step; return the first error, log later ones."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as failed:
            if first is not None and failed is not first:  # each later report raises what the store refused
                logger.warning("Closing met another error.", exc_info=True)
            first = first or failed
    return first
