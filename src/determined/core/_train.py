"""TrainContext: reports metrics, progress, status, early exit and metadata, and answers questions about the run."""

from __future__ import annotations

import enum
import logging
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from determined._types import Json
from determined.core.recording.link import History, Link, NullLink
from determined.core.recording.shipper import HISTORY_SECONDS, Shipper
from determined.core.recording.tensorboard import EventFiles, Mangler, Selector, TensorboardMode
from determined.core.recording.values import plain, plain_batches, plain_metrics
from determined.store.messages import (
    CheckpointUseReport,
    EarlyExitReport,
    FitReport,
    MetadataReport,
    MetricReport,
    ProgressReport,
    StatusReport,
    check_group,
    check_steps,
)

logger = logging.getLogger("determined.core")

NonChiefReports: TypeAlias = Literal["ignore", "raise", "send"]
"""What happens to a report from a rank other than the chief."""

Upload: TypeAlias = Callable[[Selector, Mangler], None]
"""Copies event files from a directory to where they are kept."""

NO_EVENT_FILES = "This context keeps no TensorBoard files. Open it with core.init() to have a place for them."


class EarlyExitReason(enum.Enum):
    """Why training ends before its length was reached."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    """Reports how training goes. Reached as `core_context.train`; call it on the chief.

    Values may be numbers (NaN and infinities included), text, lists, dicts, numpy values and tensors. They are
    converted and checked in the caller's thread and written in the background, in order.

    Example::

        with determined.core.init() as context:
            context.train.report_training_metrics(steps_completed=100, metrics={"loss": 0.25})
            context.train.report_progress(0.5)
    """

    def __init__(
        self,
        shipper: Shipper | None = None,
        link: Link | None = None,
        *,
        event_files: EventFiles | None = None,
        upload_event_files: Upload | None = None,
        tensorboard_mode: TensorboardMode = TensorboardMode.MANUAL,
        is_chief: bool = True,
        non_chief_reports: NonChiefReports = "ignore",
        searcher: Mapping[str, Any] | None = None,
    ) -> None:
        if tensorboard_mode is TensorboardMode.AUTO and event_files is None:
            raise ValueError("TensorboardMode.AUTO needs a place for event files. Give event_files, or use MANUAL.")
        if non_chief_reports not in ("ignore", "raise", "send"):
            raise ValueError(f"non_chief_reports is {non_chief_reports!r}; expected 'ignore', 'raise' or 'send'.")
        self._link = link or NullLink()
        self._shipper = shipper or Shipper(self._link)
        self._event_files = event_files
        self._upload_event_files = upload_event_files
        self._tensorboard_mode = tensorboard_mode
        self._is_chief = is_chief
        self._sends = is_chief or non_chief_reports == "send"
        self._raises = non_chief_reports == "raise"
        self.has_reported = False
        self._searcher_metric: str | None = (searcher or {}).get("metric")
        self._smaller_is_better = bool((searcher or {}).get("smaller_is_better", True))
        self._best: float | None = None
        self._exited_early = False
        self._metadata: dict[str, Json] | None = None
        self.end_reason = ""
        """Why training ended, in a few words; recorded when the run ends well."""

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
        *,
        window: int | None = None,
    ) -> None:
        """Report metrics of training so far.

        Args:
            steps_completed: Batches (or steps) trained since the first.
            metrics: Names and values, usually averages since the last report.
            batch_metrics: The values of each batch since the last report; kept, not plotted as a group.
            window: How many batches the metrics are averages of, so that curves and summaries can weigh them.
        """
        self._report("training", steps_completed, metrics, batch_metrics, window)

    def report_validation_metrics(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of a validation.

        Raises:
            RuntimeError: A value is None. Bytes are left out with a warning.
        """
        self._report("validation", steps_completed, _validation_values(metrics))

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics under a group name of your own, such as "inference". A name has no dot."""
        check_group(group)
        self._report(group, steps_completed, metrics)

    def report_progress(self, progress: float) -> None:
        """Say how much of the training is done, from 0.0 to 1.0."""
        if not isinstance(progress, numbers.Real) or not 0 <= progress <= 1:  # numpy's numbers are real ones too
            raise ValueError(f"report_progress({progress!r}): expected a number from 0 to 1, the finished fraction.")
        if self._drops("report_progress"):
            return
        logger.debug("report_progress(%s)", progress)
        self._shipper.put(ProgressReport(float(progress)))

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Say that training ends before its length was reached. A second call is ignored with a warning."""
        reason = EarlyExitReason(reason)
        if self._drops("report_early_exit"):
            return
        logger.info("report_early_exit(%s)", reason.name)
        if self._exited_early:
            logger.warning("An early exit was already reported; this one (%s) is ignored.", reason.name)
            return
        self._exited_early = True
        self._shipper.put(EarlyExitReport(reason.value))

    def set_status(self, status: str) -> None:
        """Say in a word or two what the process is doing, for example "validating"."""
        if self._drops("set_status"):
            return
        logger.debug("set_status(%s)", status)
        self._shipper.put(StatusReport(str(status)))

    def get_experiment_best_validation(self) -> float | None:
        """Return the best value of the searcher metric so far in this experiment; None before the first."""
        known = [value for value in (self._best, self._link.best_validation()) if value is not None]
        if not known:
            return None
        return min(known) if self._smaller_is_better else max(known)

    def note_best_validation(self, value: float) -> None:
        """Take into account a value of the searcher metric that an earlier run has reached."""
        self._remember_best({self._searcher_metric or "": value})

    def note_fit(
        self,
        steps_completed: int,
        storage_id: str | None = None,
        *,
        continues: bool = False,
        joins: bool = False,
        retention: dict[str, int] | None = None,
    ) -> None:
        """Say where training begins, so that what an earlier attempt reported beyond that is replaced, not doubled.

        Args:
            steps_completed: How many steps are trained already.
            storage_id: The checkpoint that it starts from.
            continues: Its counters go on, rather than only its weights being taken over.
            joins: It was found as this training's own, so the run is the next attempt of its trial.
            retention: How many checkpoints to keep, in the words of `checkpoint_storage`.
        """
        if self._is_chief:
            fit = FitReport(steps_completed, storage_id, continues, joins, retention)
            self._link.begin_fit(fit)
            self._shipper.put(fit)

    def find_checkpoints(
        self, which: Literal["latest", "best"], trial_class: str, smaller_is_better: bool
    ) -> History | None:
        """Return the checkpoints of this script that the store knows, this run's too; None if they are unknown."""
        if not self._shipper.flush(HISTORY_SECONDS):  # it would name an older one than this run has saved
            return None
        return self._link.find_checkpoints(which, trial_class, smaller_is_better)

    def best_before(self, storage_id: str) -> float | None:
        """Return the best value of the searcher metric when a checkpoint was saved; None if it is unknown."""
        self._shipper.flush(HISTORY_SECONDS)
        return self._link.best_before(storage_id)

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Replace the run's metadata, and return it."""
        if not isinstance(metadata, Mapping):
            raise TypeError(f"set_metadata() takes a dict, not {type(metadata).__name__}: {metadata!r}.")
        checked = plain(metadata, "metadata")
        assert isinstance(checked, dict)
        self._metadata = checked
        if not self._drops("set_metadata"):
            self._shipper.put(MetadataReport(checked))
        return self.get_metadata()

    def get_metadata(self) -> dict[str, Any] | None:
        """Return the run's metadata, also what an earlier attempt of the same trial has set; None if none was set."""
        if self._metadata is None:
            self._metadata = self._link.metadata()
        return None if self._metadata is None else dict(self._metadata)

    def get_tensorboard_path(self) -> Path:
        """Return the directory for event files of this rank, which exists. Other ranks' are inside the chief's."""
        if self._event_files is None:
            raise ValueError(NO_EVENT_FILES)
        self._event_files.path.mkdir(parents=True, exist_ok=True)
        return self._event_files.path

    def upload_tensorboard_files(
        self, selector: Selector = lambda _: True, mangler: Mangler = lambda path, _rank: path
    ) -> None:
        """Copy event files to where they are kept, in MANUAL mode: in the background, and once more at the end.

        Args:
            selector: Gets each file's path and says whether to copy it.
            mangler: Gets the path relative to the directory, and the rank; returns the path to store it under.
        """
        if self._tensorboard_mode is TensorboardMode.AUTO:
            raise RuntimeError(
                "upload_tensorboard_files() is for scripts that write their own files, and this context writes them "
                "itself. Open it with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) to decide yourself."
            )
        if self._event_files is None:
            raise ValueError(NO_EVENT_FILES)
        if self._upload_event_files is None:
            logger.debug("upload_tensorboard_files(): the files stay where they are, in %s", self._event_files.path)
        else:
            self._upload_event_files(selector, mangler)

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
        window: int | None = None,
    ) -> None:
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise ValueError(f"window is {window!r}; expected how many batches the metrics are averages of, from 1 up.")
        steps = check_steps(steps_completed)
        report = MetricReport(
            group,
            plain_metrics(metrics),
            steps,
            None if batch_metrics is None else plain_batches(batch_metrics),
            window,
        )
        if self._drops(f"report of {group} metrics"):
            return
        logger.info("%s metrics at step %d: %s", group, report.steps_completed, report.metrics)
        if group == "validation":
            self._remember_best(report.metrics)
        self.has_reported = True
        self._shipper.put(report)

    def _drops(self, call: str) -> bool:
        """Whether a report of a rank other than the chief is dropped; an error if the user wants one."""
        if self._raises and not self._sends:
            raise RuntimeError(
                f"{call} came from a rank other than the chief. Guard it with `if distributed.rank == 0`."
            )
        return not self._sends

    def _remember_best(self, metrics: dict[str, Json]) -> None:
        value = metrics.get(self._searcher_metric) if self._searcher_metric else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            return
        better = min if self._smaller_is_better else max
        self._best = float(value) if self._best is None else better(self._best, float(value))


def _validation_values(metrics: Any) -> Any:
    if not isinstance(metrics, Mapping):
        return metrics  # plain_metrics() says what is wrong
    for name, value in metrics.items():
        if value is None:
            raise RuntimeError(f"Validation metric {name!r} is None. Return a value for it, or leave the name out.")
        if isinstance(value, (bytes, bytearray)):
            logger.warning("Validation metric %r holds bytes and is not reported.", name)
    return {name: value for name, value in metrics.items() if not isinstance(value, (bytes, bytearray))}


class ExperimentalCoreContext:
    """Links this task to checkpoints and model versions. Reached as `core_context.experimental`."""

    def __init__(self, shipper: Shipper | None = None) -> None:
        self._shipper = shipper or Shipper()

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Say that this task works with a checkpoint, for example to run inference.

        Args:
            checkpoint: An object with a `uuid`, or the storage id itself.
        """
        self._shipper.put(CheckpointUseReport(_storage_id(checkpoint)))

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Say that this task works with a registered model version.

        Args:
            model_version: An object with `checkpoint`, `model_id` and `model_version`.
        """
        checkpoint = getattr(model_version, "checkpoint", None)
        if checkpoint is None:
            raise ValueError(f"{model_version!r} has no checkpoint, so there is nothing to say it uses.")
        self._shipper.put(
            CheckpointUseReport(_storage_id(checkpoint), model_version.model_id, model_version.model_version)
        )


def _storage_id(checkpoint: Any) -> str:
    uuid = checkpoint if isinstance(checkpoint, str) else getattr(checkpoint, "uuid", None)
    if not uuid:
        raise TypeError(f"{checkpoint!r} is no checkpoint: expected a storage id, or an object with a uuid.")
    return str(uuid)
