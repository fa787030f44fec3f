"""The lines that `fit()` prints: how it begins, its validations, and how it ended.

Lines go through the logger `determined.pytorch` if a handler takes its INFO, else to stderr, so that each appears once.
`DET_QUIET=1`, or a level above INFO for that logger, silences them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import os
import shlex
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

from determined._notebook import is_kernel
from determined._redact import redacted_arguments
from determined._wording import visible
from determined.core.recording.values import differences
from determined.pytorch._plan import Epoch, FitPlan
from determined.pytorch.checkpoint.run_facts import script_checksum

if TYPE_CHECKING:
    from determined import core
    from determined.core.recording.link import Candidate
    from determined.pytorch._plan import Progress
    from determined.pytorch.checkpoint.saved import SavedCheckpoint

logger = logging.getLogger("determined.pytorch")


def say(text: str) -> None:
    """Print a line, unless output is switched off. For the chief."""
    if is_on("DET_QUIET"):
        return
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info("%s", text)
    elif _is_enabled():
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, a pipe nobody reads, or no stderr
            sys.stderr.write(f"{visible(text, lines=True)}\n")
            sys.stderr.flush()


def is_on(variable: str) -> bool:
    """Return whether an environment variable is set, to something else than "off" and its like."""
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "no", "off")


def _is_enabled() -> bool:
    """Return whether no log level hides INFO; WARNING for the root logger is the default and does not count."""
    own = [logging.getLogger(name).level for name in ("determined.pytorch", "determined")]
    chosen = next((level for level in own if level != logging.NOTSET), None)
    if chosen is None:
        chosen = logging.INFO if logging.getLogger().level <= logging.WARNING else logging.ERROR
    return chosen <= logging.INFO and logging.root.manager.disable < logging.INFO


# The beginning.


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a fit starts from."""

    checkpoint: SavedCheckpoint | None = None
    """None for a fresh start."""
    is_own: bool = False
    """It was found as "latest" or "best", rather than given by name."""
    unlike: Candidate | None = None
    """If nothing was found: the newest that would do but for its hyperparameters."""

    @property
    def storage_id(self) -> str | None:
        return None if self.checkpoint is None else self.checkpoint.storage_id


def say_beginning(
    core_context: core.Context, plan: FitPlan, progress: Progress, origin: Origin, trial: str, *, continues: bool
) -> None:
    """Print what the fit resumes from, that nothing is left to train, or why it starts afresh. For the chief."""
    if is_on("DET_QUIET"):
        return
    if origin.checkpoint is None:
        say(_fresh(core_context, plan, origin, trial))
        return
    metadata = origin.checkpoint.metadata
    short = f"checkpoint {(origin.storage_id or '')[:8]}"
    experiment = core_context.experiment_of(origin.storage_id or "")
    source = short if experiment is None else f"experiment {experiment}"
    if continues and plan.complete(progress.batches_trained, progress.epochs_trained):
        say(
            f"Nothing left to train: {source} has trained {_done(plan, progress)}. Raise max_length, or pass "
            "latest_checkpoint='none' to start afresh."
        )
        return
    details = [] if experiment is None else [short]
    details += [*_age(metadata), *_other_version(core_context, metadata)]
    more = f" ({', '.join(details)})" if details else ""
    if continues:
        say(f"Going on from {source} at batch {progress.batches_trained}{more}, to train {_length(plan)} in all.")
    else:
        say(f"Starting at batch 0 with the weights of {source}{more}, to train {_length(plan)}.")


def _fresh(core_context: core.Context, plan: FitPlan, origin: Origin, trial: str) -> str:
    if plan.test_mode:
        return f"{trial} is tried with one batch, since test_mode is on."
    text = f"{trial} starts afresh, to train {_length(plan)}"
    if not origin.is_own:
        return f"{text}."
    description = core_context.description
    if origin.unlike is not None and description is not None:
        different = differences(description.hparams, origin.unlike.hparams)
        return f"{text}: {origin.unlike.place} had other hyperparameters ({differences_text(different)})."
    of_script = f" by {description.script_name}" if description is not None and description.script else ""
    return f"{text}: there is no checkpoint of {trial}{of_script} in {core_context.checkpoint.location} yet."


def differences_text(different: dict[str, tuple[Any, Any]]) -> str:
    """Return the result of `differences()` as text."""
    return ", ".join(f"{name} was {was!r} and is {now!r}" for name, (now, was) in different.items())


def _length(plan: FitPlan) -> str:
    unit = "epoch" if isinstance(plan.max_length, Epoch) else "batch"
    return f"{plan.length} {unit if plan.length == 1 else {'epoch': 'epochs', 'batch': 'batches'}[unit]}"


def _done(plan: FitPlan, progress: Progress) -> str:
    done = progress.epochs_trained if isinstance(plan.max_length, Epoch) else progress.batches_trained
    return f"{done} of {_length(plan)}"


def _age(metadata: dict[str, Any]) -> list[str]:
    try:
        saved_at = datetime.datetime.fromisoformat(str(metadata.get("saved_at")))
        seconds = (datetime.datetime.now(datetime.timezone.utc) - saved_at).total_seconds()
    except (ValueError, TypeError):
        return []
    if seconds < 0:
        return []  # a clock was set back
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return [f"{count} {unit}{'' if count == 1 else 's'} old"]
    return ["less than a minute old"]


def _other_version(core_context: core.Context, metadata: dict[str, Any]) -> list[str]:
    description, before = core_context.description, metadata.get("script_sha256")
    if description is None or before is None or (now := script_checksum(description.script)) is None or now == before:
        return []
    return [f"by another version of {description.script_name}"]


# The end.


@dataclasses.dataclass
class Outcome:
    """The result of a fit so far, for the lines at its end."""

    metric: str | None = None
    smaller_is_better: bool = True
    first_batch: int = 0
    newest: tuple[str, int] | None = None  # a checkpoint, and how many batches it holds
    best: tuple[float, int] | None = None  # a value of the metric, and after how many batches
    best_checkpoint: str | None = None
    best_before: float | None = None  # of the metric, before the checkpoint that training resumes from
    ended_by: str = ""  # what ended it before its length was reached
    started: float = dataclasses.field(default_factory=time.monotonic)

    def validated(self, value: float | None, batches: int) -> None:
        """Note a value of the metric."""
        if value is None or value != value:
            return
        if self.best is None or (value < self.best[0] if self.smaller_is_better else value > self.best[0]):
            self.best, self.best_checkpoint = (value, batches), None

    @property
    def beats_earlier(self) -> bool:
        """Whether the best value is better than that of earlier runs."""
        if self.best is None or self.best_before is None:
            return self.best is not None
        return self.best[0] < self.best_before if self.smaller_is_better else self.best[0] > self.best_before

    def saved(self, storage_id: str, batches: int) -> None:
        """Note a checkpoint."""
        self.newest = (storage_id, batches)
        if self.best is not None and self.best[1] == batches:
            self.best_checkpoint = storage_id


def say_end(core_context: core.Context, plan: FitPlan, progress: Progress, origin: Origin, outcome: Outcome) -> None:
    """Print what was trained, the best value and where its checkpoint is, and what to type next. For the chief."""
    if is_on("DET_QUIET"):
        return
    trained = progress.batches_trained - outcome.first_batch
    if outcome.ended_by:
        say(f"Ended after batch {progress.batches_trained}, with {_done(plan, progress)} trained: {outcome.ended_by}.")
    elif trained and not plan.test_mode:
        seconds = time.monotonic() - outcome.started
        word = "batch" if trained == 1 else "batches"
        say(f"Trained {trained} {word} in {seconds:.3g} s; {_done(plan, progress)} are done.")
    if trained or outcome.ended_by:
        _say_results(core_context, outcome)
    recorded = core_context.recorded_as()
    if recorded is not None:
        say(f"Look at it with: det trial describe {recorded.trial_id}")
    if outcome.ended_by and outcome.newest is not None and core_context.info is None:
        say(_how_to_resume(core_context, origin))


def _say_results(core_context: core.Context, outcome: Outcome) -> None:
    place = core_context.checkpoint.location
    if best := _best(outcome, place):
        say(best)
    if outcome.newest is None:
        say("Nothing was saved.")
    elif not best or outcome.newest[0] != outcome.best_checkpoint:
        storage_id, batches = outcome.newest
        say(f"Saved after batch {batches}: checkpoint {storage_id} in {place}.")


def _best(outcome: Outcome, place: str) -> str:
    if outcome.best is None or not outcome.beats_earlier:
        before = outcome.best_before
        return "" if before is None else f"Best {outcome.metric}: {before:.6g}, by an earlier run."
    where = f", in checkpoint {outcome.best_checkpoint} in {place}" if outcome.best_checkpoint else ", not saved"
    return f"Best {outcome.metric}: {outcome.best[0]:.6g} after batch {outcome.best[1]}{where}."


def _how_to_resume(core_context: core.Context, origin: Origin) -> str:
    wish = "" if origin.is_own else 'pass latest_checkpoint="latest" to fit(), and '
    if is_kernel():
        return f"To go on: {wish}run the cell again."
    if core_context.distributed.size > 1:
        return f"To go on: {wish}start it again in the same way."
    return f"To go on: {wish and wish + 'type: '}{shlex.join(redacted_arguments(sys.orig_argv))}"


def function_of(frame: FrameType | None) -> str:
    """Return the name of the function that a frame is in."""
    if frame is None:
        return "somewhere"
    owner, name = frame.f_locals.get("self"), frame.f_code.co_name
    return f"{name}()" if owner is None else f"{type(owner).__name__}.{name}()"


def raised_in(error: BaseException) -> str:
    """Return the name of the function that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return function_of(None if trace is None else trace.tb_frame)
