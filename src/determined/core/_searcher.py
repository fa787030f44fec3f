"""SearcherContext: the one operation of a search, for scripts that still iterate over operations."""

from __future__ import annotations

import enum
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from determined.core.ranks.distributed import DistributedContext

logger = logging.getLogger("determined.core")


class Unit(enum.Enum):
    """What a length counts."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherMode(enum.Enum):
    """Which ranks iterate over operations."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHEIF_ONLY"  # spelled as it always was, so that saved values stay readable


class SearcherOperation:
    """A request to train up to a length, counted from the beginning."""

    def __init__(self, length: int, is_chief: bool, report_progress: Callable[[float], None]) -> None:
        self._length = length
        self._is_chief = is_chief
        self._report_progress = report_progress
        self._completed = False

    @property
    def length(self) -> int:
        """The length to train to, counted from the beginning of training."""
        return self._length

    def report_progress(self, length: float | None = None, *, progress: float | None = None) -> None:
        """Report how far training has come, in the unit of `length`; `progress` is another name for it."""
        self._check_chief("report_progress")
        length = progress if length is None else length
        if length is None:
            raise TypeError("report_progress() needs a length: say how far training has come, for example 3.")
        if self._completed and length != self._length:
            raise RuntimeError(f"report_progress({length}) after report_completed(): this operation has ended.")
        self._report_progress(min(1.0, max(0.0, length / self._length)))

    def report_completed(self, searcher_metric: Any) -> None:
        """Report that the length is reached."""
        self._check_chief("report_completed")
        if self._completed:
            raise RuntimeError("report_completed() was already called for this operation.")
        self._completed = True
        logger.info("report_completed(%s)", searcher_metric)

    def _check_chief(self, call: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"{call}() is for the chief. Guard it with `if core_context.distributed.rank == 0`.")


class SearcherContext:
    """The length that this trial was asked to train for, as an iterator of one operation.

    New scripts take the length from their own arguments and need none of this.

    Example::

        for operation in core_context.searcher.operations():
            train(epochs=operation.length)
            operation.report_completed(loss)
    """

    def __init__(
        self,
        distributed: DistributedContext | None = None,
        report_progress: Callable[[float], None] | None = None,
        *,
        length: int = 1,
        unit: Unit | None = Unit.EPOCHS,
    ) -> None:
        self._distributed = distributed or DistributedContext()
        self._report_progress = report_progress or (lambda _: None)
        self._length = length
        self._unit = unit

    def operations(
        self,
        searcher_mode: SearcherMode = SearcherMode.WorkersAskChief,
        auto_ack: bool = True,  # noqa: ARG002 - accepted from older scripts; there is nothing left to acknowledge
    ) -> Iterator[SearcherOperation]:
        """Yield the one operation there is. In `WorkersAskChief` mode every rank iterates, in step with the chief."""
        warnings.warn(
            "SearcherContext.operations() is deprecated: take the training length from your own arguments or config.",
            FutureWarning,
            stacklevel=2,
        )
        mode = SearcherMode(searcher_mode)
        is_chief = self._distributed.rank == 0
        if mode is SearcherMode.ChiefOnly and not is_chief:
            raise RuntimeError(
                f"operations() in ChiefOnly mode is for the chief; this is rank {self._distributed.rank}."
            )
        together = mode is SearcherMode.WorkersAskChief
        length = self._distributed.broadcast(self._length) if together else self._length
        operation = SearcherOperation(length, is_chief, self._report_progress)
        yield operation
        completed = operation._completed
        if together:  # all ranks learn whether the chief has completed, so that none waits for one that raised
            completed = self._distributed.broadcast(completed)
        if not completed:
            raise RuntimeError("The operation ended without report_completed(). Call it on the chief, with the metric.")

    def acknowledge_out_of_ops(self) -> None:
        """Do nothing; kept for scripts that call it."""

    def get_configured_units(self) -> Unit | None:
        """Return what the configured length counts; None if the configuration does not say."""
        return self._unit


class SearcherContextMissing:
    """Takes the place of `SearcherContext` where the config has no `searcher.max_length`: every method raises."""

    def operations(self, *_: Any, **__: Any) -> Iterator[SearcherOperation]:
        """Raise a ValueError."""
        raise self._error("operations")

    def acknowledge_out_of_ops(self) -> None:
        """Raise a ValueError."""
        raise self._error("acknowledge_out_of_ops")

    def get_configured_units(self) -> Unit | None:
        """Raise a ValueError."""
        raise self._error("get_configured_units")

    def _error(self, call: str) -> ValueError:
        return ValueError(
            f"searcher.{call}() needs searcher.max_length in the experiment config, and there is none. "
            "Take the training length from your own arguments, or add for example max_length: {epochs: 10}."
        )


def _parse_searcher_max_length(searcher: Mapping[str, Any]) -> int | None:
    """Return the configured length: an int, or the value of a one-entry mapping such as `{epochs: 10}`."""
    max_length = searcher.get("max_length")
    if isinstance(max_length, Mapping):
        if len(max_length) != 1:
            raise ValueError(
                f"searcher.max_length has {len(max_length)} entries; expected one, such as {{epochs: 10}}."
            )
        max_length = next(iter(max_length.values()))
    return None if max_length is None else int(max_length)


def _parse_searcher_units(searcher: Mapping[str, Any]) -> Unit | None:
    """Return what the configured length counts: `searcher.unit`, or the single key of `max_length`; None if unknown."""
    name = searcher.get("unit")
    max_length = searcher.get("max_length")
    if name is None and isinstance(max_length, Mapping) and len(max_length) == 1:
        name = next(iter(max_length))
    if name is None:
        return None
    try:
        return Unit[str(name).upper()]
    except KeyError:
        raise ValueError(f"searcher.unit is {name!r}; expected epochs, batches or records.") from None
