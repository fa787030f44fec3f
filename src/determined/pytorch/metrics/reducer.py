"""Metric reducers: how values from many batches and ranks become one. `reduction.py` averages what batches return."""

from __future__ import annotations

import abc
import enum
import inspect
import itertools
import logging
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from determined import errors
from determined._types import Stateful
from determined.pytorch.metrics.rank_metrics import rebuild, short, to_numpy

logger = logging.getLogger("determined.pytorch")

Names = str | Mapping[str, str] | None
Function = Callable[[list[Any]], Any]
_GAP = object()


class ReducerTypeError(errors.DeterminedError, TypeError, AssertionError):
    """Not a reducer, or a result that does not fit its name. An AssertionError too, as in earlier releases."""


class ReducerValueError(errors.DeterminedError, ValueError, AssertionError):
    """A reducer registered twice. An AssertionError too, as in earlier releases."""


class ReducerFailed(errors.DeterminedError, ValueError):
    """A user's reducer raised; on that rank, `__cause__` is the original error."""


class Reducer(enum.Enum):
    """How `evaluate_batch` results become one number per metric.

    `AVG` is the mean over batches, each weighing the same whatever its record count, as it always was. `RECORD_AVG`
    weighs each batch by its records (`get_batch_length`), so a short last batch counts for no more than its share.
    """

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4
    RECORD_AVG = 5


class MetricReducer(metaclass=abc.ABCMeta):
    """A metric of your own, from values of many batches on every rank. Register it with `context.wrap_reducer()`.

    How values get in is up to you. At the end of each training window and each validation, every rank is asked for
    `per_slot_reduce()`, and then `cross_slot_reduce()` turns the answers of all ranks into the metric.

    Example::

        class Accuracy(pytorch.MetricReducer):
            def reset(self):
                self.right, self.seen = 0, 0

            def update(self, predictions, labels):
                self.right += (predictions == labels).sum()
                self.seen += len(labels)

            def per_slot_reduce(self):
                return int(self.right), self.seen

            def cross_slot_reduce(self, per_slot_metrics):
                right, seen = (sum(column) for column in zip(*per_slot_metrics))
                return right / seen

        self.accuracy = context.wrap_reducer(Accuracy(), name="accuracy")
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget all values: a training window or a validation begins."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """What this rank contributes; anything that can be pickled."""

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        """The metric, or a dict of metrics, from the contributions of all ranks in rank order. Runs on every rank."""


class _SimpleReducer(MetricReducer):
    """Calls a function with all values, in dataset order if there was one `update()` per batch."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self._values: list[Any] = []

    def reset(self) -> None:
        self._values = []

    def update(self, value: Any) -> None:
        """Add one value; it stays on its device."""
        # A value that kept its graph would keep every batch of the window alive.
        self._values.append(value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value)

    def per_slot_reduce(self) -> list[Any]:
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        # Batches were dealt out to ranks in turn; taking them back in turn restores their order.
        rows = itertools.zip_longest(*per_slot_metrics, fillvalue=_GAP)
        return self.fn([value for row in rows for value in row if value is not _GAP])


class _TorchMetric(MetricReducer):
    """A `torchmetrics` metric or collection, merged over our own exchange instead of its process group.

    Every metric inside (a collection, a composition and a wrapper have several) hands over its declared states; they
    are reduced as torchmetrics reduces them, on a copy. Ranks without an update are left out, since a default state
    would bias a mean. A metric that no rank updated has no value, and is left out of the report.
    """

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def reset(self) -> None:
        self.metric.reset()

    def per_slot_reduce(self) -> Any:
        return [
            (m.update_count, {name: _to_host(getattr(m, name)) for name in m._reductions}) for m in _parts(self.metric)
        ]

    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        merged = self.metric.clone()
        for position, part in enumerate(_parts(merged)):
            updated = [rank[position] for rank in per_slot_metrics if rank[position][0]]
            part._computed, part._to_sync, part.sync_on_compute = None, False, False
            part._update_count = sum(count for count, _ in updated)
            if len(updated) > 1 or len(per_slot_metrics) > 1:
                for name, reduction in part._reductions.items() if updated else ():
                    state = _merge([states[name] for _, states in updated], reduction)
                    setattr(part, name, _to_device(state, part.device))
        if not any(count for rank in per_slot_metrics for count, _ in rank):
            return _GAP
        return merged.compute()


def _parts(metric: Any) -> list[Any]:
    return [module for module in metric.modules() if isinstance(module, _torchmetrics()[0])]


def _merge(states: list[Any], reduction: Callable[[Any], Any] | None) -> Any:
    if len(states) == 1:
        return states[0]
    if isinstance(states[0], torch.Tensor):
        stacked = torch.stack(states)
        return stacked if reduction is None else reduction(stacked)
    values = [value for state in states for value in state]
    return values if reduction is None or not values else reduction(values)


def _torchmetrics() -> tuple[Any, ...]:
    """Return the classes of metrics and collections; a user who has one has imported the package."""
    torchmetrics = sys.modules.get("torchmetrics")
    return () if torchmetrics is None else (torchmetrics.Metric, torchmetrics.MetricCollection)


@dataclass(frozen=True)
class _Registration:
    reducer: MetricReducer
    given: Any  # what the user passed, and holds
    name: Names
    for_training: bool
    for_validation: bool

    def applies(self, for_training: bool) -> bool:
        return self.for_training if for_training else self.for_validation

    def __str__(self) -> str:
        reducer = self.reducer
        kind = type(reducer.metric if isinstance(reducer, _TorchMetric) else reducer).__name__
        if isinstance(reducer, _SimpleReducer):  # not every callable has a __name__
            kind = getattr(reducer.fn, "__name__", type(reducer.fn).__name__)
        return f"{kind} (name={self.name!r})" if isinstance(self.name, str) else f"{kind} (name=None)"


class _PyTorchReducerContext:
    """The reducers of one trial: registered, reset, and reduced over all ranks.

    Args:
        allgather_fn: Hands an object to all ranks and returns everyone's, in rank order.
        rank: This rank, for messages.
        size: How many ranks there are; with one, values do not leave their device.
        device: Where wrapped `torchmetrics` metrics are moved to; None leaves them alone.
    """

    def __init__(
        self,
        allgather_fn: Callable[[Any], list[Any]] | None = None,
        *,
        rank: int = 0,
        size: int | None = None,
        device: torch.device | None = None,
    ) -> None:
        self._allgather = allgather_fn or (lambda value: [value])
        self._alone = size == 1 or (size is None and allgather_fn is None)
        self._rank = rank
        self._device = device
        self._wrapped: list[_Registration] = []

    def wrap_reducer(
        self, reducer: Any, name: Names = None, for_training: bool = True, for_validation: bool = True
    ) -> Any:
        """See `PyTorchTrialContext.wrap_reducer`."""
        renames = isinstance(name, Mapping) and all(isinstance(part, str) for pair in name.items() for part in pair)
        if not (name is None or isinstance(name, str) or renames):
            raise ReducerTypeError(f"wrap_reducer() got name={name!r}. Use a str, None, or a dict from str to str.")
        if inspect.isclass(reducer) and issubclass(reducer, (MetricReducer, *_torchmetrics()[:1])):
            reducer = reducer()
        adapted = self._adapt(reducer)
        if adapted is reducer or isinstance(adapted, _TorchMetric):
            if any(known.given is reducer for known in self._wrapped):
                raise ReducerValueError(
                    f"This {type(reducer).__name__} was passed to wrap_reducer() before, and it has one state. "
                    "Make a second one."
                )
            given = reducer
        else:
            given = adapted
        entry = _Registration(adapted, given, name, for_training, for_validation)
        self._warn_if_name_is_taken(entry)
        self._wrapped.append(entry)
        return given

    def reset_reducers(self) -> None:
        """Reset all reducers, whatever they are for: a window or a validation begins."""
        for entry in self._wrapped:
            try:
                entry.reducer.reset()
            except Exception as error:
                raise self._failed(entry, "reset", error) from error

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Return the metrics of all reducers for this phase, on every rank. Collective, unless there are none."""
        if not self.applying(for_training):
            return {}
        mine, error = self.collect(for_training)
        return self.run_cross_slot_reduction(for_training, exchange(self._allgather, mine, error))

    def applying(self, for_training: bool) -> list[_Registration]:
        """Return the reducers of this phase, in the order they were wrapped in."""
        return [entry for entry in self._wrapped if entry.applies(for_training)]

    def collect(self, for_training: bool) -> tuple[list[Any], Exception | None]:
        """Return this rank's values and the error, if there was one: other ranks wait, so it cannot be raised here."""
        values = []
        for entry in self.applying(for_training):
            try:
                value = entry.reducer.per_slot_reduce()
                values.append(value if self._alone else _to_host(value))
            except Exception as error:  # noqa: BLE001  a user's code may raise anything
                failure = self._failed(entry, "per_slot_reduce", error)
                failure.__cause__ = error
                return [], failure
        return values, None

    def run_cross_slot_reduction(self, for_training: bool, per_rank: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the metrics, from the values of all ranks."""
        entries = self.applying(for_training)
        counts = [len(values) for values in per_rank]
        if set(counts) - {len(entries)}:
            raise ReducerFailed(f"The ranks wrapped {counts} reducers each. Wrap the same ones on every rank.")
        metrics: dict[str, Any] = {}
        for position, entry in enumerate(entries):
            per_slot = tuple(values[position] for values in per_rank)
            try:
                result = entry.reducer.cross_slot_reduce(per_slot)
            except Exception as error:
                raise self._failed(entry, "cross_slot_reduce", error, f" given {short(per_slot)}") from error
            if result is not _GAP:
                metrics.update(_named(entry, to_numpy(result)))
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the state of reducers that have a `state_dict()` of their own."""
        return {str(i): state for i, state in ((i, e.given.state_dict()) for i, e in self._stateful()) if state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load saved state into the reducers, by the order they were wrapped in."""
        for i, entry in self._stateful():
            if str(i) in state_dict:
                entry.given.load_state_dict(state_dict[str(i)])

    def _stateful(self) -> Iterable[tuple[int, _Registration]]:
        return ((i, entry) for i, entry in enumerate(self._wrapped) if isinstance(entry.given, Stateful))

    def _adapt(self, reducer: Any) -> MetricReducer:
        if isinstance(reducer, MetricReducer):
            return reducer
        if isinstance(reducer, _torchmetrics()):
            return _TorchMetric(reducer if self._device is None else reducer.to(self._device))
        if callable(reducer):
            return _SimpleReducer(reducer)
        raise ReducerTypeError(
            f"wrap_reducer() got {reducer!r}, a {type(reducer).__name__}. "
            "Pass a function, a pytorch.MetricReducer or a torchmetrics.Metric."
        )

    def _warn_if_name_is_taken(self, new: _Registration) -> None:
        for known in self._wrapped:
            phases = [p for p, t in (("training", True), ("validation", False)) if new.applies(t) and known.applies(t)]
            if phases and isinstance(new.name, str) and new.name == known.name:
                logger.warning(
                    "Two reducers are named %r: %s metrics will show the result of the later one, %s.",
                    new.name, " and ".join(phases), new,
                )  # fmt: skip

    def _failed(self, entry: _Registration, method: str, error: Exception, given: str = "") -> ReducerFailed:
        return ReducerFailed(
            f"{method}() of reducer {entry} failed on rank {self._rank}{given}: {type(error).__name__}: {error}"
        )


def _named(entry: _Registration, result: Any) -> dict[str, Any]:
    if isinstance(entry.name, str):
        if isinstance(result, dict):
            raise ReducerTypeError(
                f"Reducer {entry} has one name but its result is a dict of {sorted(map(str, result))}. "
                "Wrap it with name=None to report each of them."
            )
        return {entry.name: result}
    if not isinstance(result, dict):
        raise ReducerTypeError(
            f"Reducer {entry} returned a {type(result).__name__}, and without a name only a dict of metrics can be "
            'reported. Wrap it with name="...".'
        )
    names = entry.name or {}
    if missing := sorted(set(names) - set(result)):
        found = sorted(map(str, result))
        raise ReducerTypeError(f"Reducer {entry} was to rename {missing}, but its result has {found}.")
    return {names.get(key, key): value for key, value in result.items()}


def exchange(allgather: Callable[[Any], list[Any]], part: Any, error: Exception | None = None) -> list[Any]:
    """Return the parts of all ranks, in rank order; raise on every rank if any rank has an error. Collective."""
    try:
        answers = allgather((part, None) if error is None else (None, (_kind(error), str(error))))
    except (pickle.PicklingError, AttributeError, TypeError) as refusal:  # all else in a part is numbers and text
        raise ReducerFailed(
            f"A reducer's contribution cannot be sent to the other ranks: {refusal}. Return something that can be "
            "pickled from per_slot_reduce() and give update() such values: numbers, text, lists, dicts, tensors."
        ) from refusal
    if error is not None:
        raise error
    for _, problem in answers:
        if problem is not None:
            raise _KINDS[problem[0]](problem[1])
    parts, _ = zip(*answers, strict=True)
    return list(parts)


_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ReducerFailed,
        ReducerTypeError,
        errors.InvalidExperimentException,
        TypeError,
        ValueError,
        RuntimeError,
    )
}


def _kind(error: Exception) -> str:
    return next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "RuntimeError")


def _to_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else rebuild(value, _to_host)


def _to_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return rebuild(value, lambda item: _to_device(item, device))
