"""Search methods of releases before 0.38: what users import from `determined.searcher`, and the adapter to ours."""

from __future__ import annotations

import abc
import base64
import math
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from determined import errors
from determined.experiment.search import base
from determined.experiment.search.base import Action, ExitedReason, SearchContext, SearchState


class Operation:
    """Something a search method wants done."""


@dataclass
class Create(Operation):
    """A new trial; `checkpoint` is what it starts from, an object with a `uuid`, or the uuid."""

    request_id: uuid.UUID
    hparams: dict[str, Any]
    checkpoint: Any = None


@dataclass
class ValidateAfter(Operation):
    """Tell me about the first validation at or after this length. The trial does not wait for an answer."""

    request_id: uuid.UUID
    length: int


@dataclass
class Close(Operation):
    """The trial has trained enough."""

    request_id: uuid.UUID


@dataclass
class Progress(Operation):
    """How far the search has come, 0 to 1."""

    progress: float


@dataclass
class Shutdown(Operation):
    """The search is over."""

    cancel: bool = False
    failure: bool = False


@dataclass
class SearcherState:
    """What a method is told about its trials, with every event."""

    failures: set[uuid.UUID] = field(default_factory=set)
    trial_progress: dict[uuid.UUID, float] = field(default_factory=dict)
    trials_closed: set[uuid.UUID] = field(default_factory=set)
    trials_created: set[uuid.UUID] = field(default_factory=set)
    last_event_id: int = 0


class SearchMethod(abc.ABC):
    """A search in the words of releases before 0.38. New ones are better derived from `search.base.SearchMethod`.

    Example::

        class Once(SearchMethod):
            def initial_operations(self, searcher_state):
                request_id = uuid.uuid4()
                return [Create(request_id, {"lr": 0.1}, None), ValidateAfter(request_id, 100)]

            def on_validation_completed(self, searcher_state, request_id, metric, train_length):
                return [Close(request_id)]
            ...
    """

    @abc.abstractmethod
    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]: ...

    @abc.abstractmethod
    def on_trial_created(self, searcher_state: SearcherState, request_id: uuid.UUID) -> list[Operation]: ...

    @abc.abstractmethod
    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: uuid.UUID, metric: Any, train_length: int
    ) -> list[Operation]: ...

    @abc.abstractmethod
    def on_trial_closed(self, searcher_state: SearcherState, request_id: uuid.UUID) -> list[Operation]: ...

    @abc.abstractmethod
    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: uuid.UUID, exited_reason: ExitedReason
    ) -> list[Operation]: ...

    @abc.abstractmethod
    def progress(self, searcher_state: SearcherState) -> float: ...

    def save_method_state(self, path: Path) -> None:  # noqa: B027 - a method without state has nothing to save
        """Write what must survive a restart into the directory `path`."""

    def load_method_state(self, path: Path) -> None:  # noqa: B027
        """Read what `save_method_state` wrote."""


class OlderMethod(base.SearchMethod):
    """A translator around one older method.

    `ValidateAfter(length)` sets a threshold: the method hears of the first validation whose time is at least that, and
    of no other until it asks again. A trial that was never closed trains on to its own end.

    Args:
        method: The user's method.
        unit: What lengths mean: `batches` (also None), `epochs`, or `records`.
    """

    def __init__(self, method: SearchMethod, unit: str | None = None) -> None:
        self._method = method
        self._unit = unit or "batches"
        self._state = SearcherState()
        self._awaited: dict[str, int] = {}
        self._records: dict[str, Any] = {}  # global_batch_size of trials that live
        self._progress: float | None = None
        self._is_warned = False

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        return self._translated(ctx, self._method.initial_operations(self._seen()))

    def trial_created(self, ctx: SearchContext, request_id: str) -> list[Action]:
        return self._translated(ctx, self._method.on_trial_created(self._seen(), uuid.UUID(request_id)))

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
        state = self._seen()
        length = self._awaited.get(request_id)
        if length is None:
            return []
        time = self._time(ctx, request_id, metrics)
        if time is None or time < length:
            return []
        del self._awaited[request_id]
        answer = self._method.on_validation_completed(state, uuid.UUID(request_id), metrics[ctx.metric], length)
        return self._translated(ctx, answer)

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:
        trial = uuid.UUID(request_id)
        if reason is ExitedReason.ERRORED:
            self._state.failures.add(trial)
        return self._translated(ctx, self._method.on_trial_exited_early(self._seen(), trial, reason))

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
        trial = uuid.UUID(request_id)
        self._awaited.pop(request_id, None)
        self._records.pop(request_id, None)
        self._state.trials_closed.add(trial)
        self._state.trial_progress[trial] = 1.0
        return self._translated(ctx, self._method.on_trial_closed(self._seen(), trial))

    def progress(self, state: SearchState) -> float:
        for request_id, share in state.live.items():
            self._state.trial_progress[uuid.UUID(request_id)] = share
        return self._method.progress(self._state) if self._progress is None else self._progress

    def snapshot(self) -> dict[str, Any]:
        state = self._state
        return {
            "files": self._saved_files(),
            "failures": sorted(map(str, state.failures)),
            "trial_progress": {str(trial): share for trial, share in state.trial_progress.items()},
            "trials_closed": sorted(map(str, state.trials_closed)),
            "trials_created": sorted(map(str, state.trials_created)),
            "last_event_id": state.last_event_id,
            "awaited": dict(self._awaited),
            "records": dict(self._records),
            "progress": self._progress,
            "is_warned": self._is_warned,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._load_files(state["files"])
        self._state = SearcherState(
            failures=set(map(uuid.UUID, state["failures"])),
            trial_progress={uuid.UUID(trial): share for trial, share in state["trial_progress"].items()},
            trials_closed=set(map(uuid.UUID, state["trials_closed"])),
            trials_created=set(map(uuid.UUID, state["trials_created"])),
            last_event_id=state["last_event_id"],
        )
        self._awaited, self._records = dict(state["awaited"]), dict(state["records"])
        self._progress, self._is_warned = state["progress"], state["is_warned"]

    def _seen(self) -> SearcherState:
        self._state.last_event_id += 1
        return self._state

    def _translated(self, ctx: SearchContext, wanted: Sequence[Operation]) -> list[Action]:
        if not isinstance(wanted, list | tuple):
            raise errors.SearchError(
                f"{type(self._method).__name__} returned {wanted!r} and no list of operations. Return [] for none."
            )
        actions: list[Action] = []
        for operation in wanted:
            if isinstance(operation, Create):
                actions.append(self._create(ctx, operation))
            elif isinstance(operation, ValidateAfter):
                self._await(operation)
            elif isinstance(operation, Close):
                actions.append(base.Stop(str(operation.request_id)))
            elif isinstance(operation, Progress):
                self._progress = operation.progress
            elif isinstance(operation, Shutdown):
                actions.append(base.Shutdown(operation.cancel, operation.failure))
            else:
                raise errors.SearchError(
                    f"{type(self._method).__name__} returned {operation!r}, which is no operation. "
                    "Return a list of Create, ValidateAfter, Close, Progress and Shutdown."
                )
        return actions

    def _create(self, ctx: SearchContext, operation: Create) -> base.Create:
        request_id = str(operation.request_id)
        self._state.trials_created.add(uuid.UUID(request_id))
        self._state.trial_progress[uuid.UUID(request_id)] = 0.0
        if self._unit == "records":
            self._records[request_id] = operation.hparams.get("global_batch_size")
        source = getattr(operation.checkpoint, "uuid", operation.checkpoint)
        return base.Create(request_id, dict(operation.hparams), ctx.generator.trial_seed(), source and str(source))

    def _await(self, operation: ValidateAfter) -> None:
        trial = uuid.UUID(str(operation.request_id))
        if trial not in self._state.trials_created:
            raise errors.SearchError(
                f"ValidateAfter names trial {trial}, which was not created. Return a Create first."
            )
        if trial not in self._state.trials_closed:
            self._awaited[str(trial)] = int(operation.length)

    def _time(self, ctx: SearchContext, request_id: str, metrics: Mapping[str, Any]) -> int | None:
        """Return how long the trial has trained, in the search's unit; None, with a warning, if that is not known."""
        time = base.read_number(metrics.get(self._unit))
        if time is None and self._unit == "records" and self._records.get(request_id):
            time = float(metrics["batches"] * self._records[request_id])
        if time is not None and math.isfinite(time):
            return math.floor(time)
        if not self._is_warned:
            self._is_warned = True
            ctx.warn(
                f"searcher.unit is {self._unit!r}, but validations do not report {self._unit!r}, "
                "so the search method cannot be told of them. Report it as a metric, or use unit: batches."
            )
        return None

    def _saved_files(self) -> dict[str, str]:
        """Return what the method saves, as text: a snapshot is one JSON document."""
        with tempfile.TemporaryDirectory(prefix="determined-search-") as directory:
            root = Path(directory)
            self._method.save_method_state(root)
            files = sorted(path for path in root.rglob("*") if path.is_file())
            return {p.relative_to(root).as_posix(): base64.b64encode(p.read_bytes()).decode() for p in files}

    def _load_files(self, files: Mapping[str, str]) -> None:
        with tempfile.TemporaryDirectory(prefix="determined-search-") as directory:
            for name, text in files.items():
                path = Path(directory) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(text))
            self._method.load_method_state(Path(directory))
