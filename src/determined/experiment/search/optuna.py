"""Optuna's samplers as a search: they propose hyperparameters, we decide how many trials run and when they stop.

Optuna is asked and told in memory. Its own state is no JSON, so a snapshot is the list of what was asked and told; the
same questions in the same order, to a sampler with the same seed, give the same answers.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from determined import errors
from determined._types import Json
from determined.experiment.hparams import Categorical, Const, Double, Int, Log, Parameter, Space
from determined.experiment.search.asha import StoppingHalving
from determined.experiment.search.base import (
    Action,
    Create,
    ExitedReason,
    SearchContext,
    SearchMethod,
    Stop,
    spell,
)
from determined.experiment.search.rungs import Halving, brackets
from determined.experiment.search.simple import RandomSearch

if TYPE_CHECKING:
    import optuna

SAMPLER = "TPESampler"
FAIL, COMPLETE, PRUNED = "FAIL", "COMPLETE", "PRUNED"


class OptunaSearch(SearchMethod):
    """`max_trials` trials with hyperparameters that an Optuna sampler proposes, learning from those that ended.

    With `num_rungs` (and `time_metric`, `max_time`, `divisor`) weak trials are stopped early, as `async_halving` does;
    the sampler is told of them as pruned, with their last value. A trial that ends counts with its best value.

    Example::

        searcher: {name: optuna, sampler: TPESampler, sampler_args: {multivariate: true}, metric: loss, max_trials: 50}
    """

    def __init__(self, searcher: Mapping[str, Any], space: Space) -> None:
        self._inner: RandomSearch | StoppingHalving
        if searcher.get("num_rungs") is None:
            self._inner = RandomSearch(searcher)
        else:
            (bracket,) = brackets(searcher)
            self._inner = StoppingHalving(Halving.of(searcher, bracket))
        self._sampler = str(searcher.get("sampler") or SAMPLER)
        self._sampler_args = dict(searcher.get("sampler_args") or {})
        self._sign = 1.0 if searcher.get("smaller_is_better", True) else -1.0
        self._time_metric = searcher.get("time_metric")
        self._max_time = searcher.get("max_time")
        self._space = space
        self._study: Study | None = None
        self._values: dict[str, dict[str, Any]] = {}  # of trials that the sampler was not told about
        self._judged: str | None = None  # whose validation is being handled

    def initial_trials(self, ctx: SearchContext) -> list[Action]:
        self._study = Study(self._space, self._sampler, self._sampler_args, ctx.generator.trial_seed())
        return self._inner.initial_trials(_AskingContext(ctx, self))

    def validation_completed(self, ctx: SearchContext, request_id: str, metrics: dict[str, Any]) -> list[Action]:
        self._note(request_id, self._sign * metrics[ctx.metric], metrics.get(self._time_metric or ""))
        self._judged = request_id
        actions = self._inner.validation_completed(_AskingContext(ctx, self), request_id, metrics)
        self._judged = None
        if any(isinstance(action, Stop) and action.request_id == request_id for action in actions):
            self._tell(request_id, stopped=True)
        return actions

    def trial_exited_early(self, ctx: SearchContext, request_id: str, reason: ExitedReason) -> list[Action]:
        self._tell(request_id, failed=True)
        return self._inner.trial_exited_early(_AskingContext(ctx, self), request_id, reason)

    def trial_exited(self, ctx: SearchContext, request_id: str) -> list[Action]:
        self._tell(request_id)
        return self._inner.trial_exited(_AskingContext(ctx, self), request_id)

    def progress(self, state: Any) -> float:
        return self._inner.progress(state)

    def snapshot(self) -> dict[str, Any]:
        return {
            "inner": self._inner.snapshot(),
            "study": self._study.snapshot() if self._study else None,
            "values": {request_id: dict(values) for request_id, values in self._values.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._inner.restore(state["inner"])
        self._values = {request_id: dict(values) for request_id, values in state["values"].items()}
        if state["study"] is not None:
            self._study = Study.restore(state["study"], self._space, self._sampler, self._sampler_args)

    def _ask(self, create: Callable[[dict[str, Json]], Create]) -> Create:
        assert self._study is not None, "initial_trials comes first"
        if self._judged is not None:  # a validation makes a new trial only in place of its own, which was stopped
            self._tell(self._judged, stopped=True)
        number, hparams = self._study.ask()
        action = create(hparams)
        self._values[action.request_id] = {"number": number, "best": None, "last": None, "time": None}
        return action

    def _note(self, request_id: str, value: float, time: float | None) -> None:
        values = self._values.get(request_id)
        if values is None or value != value:  # NaN says nothing about where to look
            return
        best = values["best"]
        values["best"] = spell(value if best is None else min(value, float(best)))
        values["last"], values["time"] = spell(value), time

    def _tell(self, request_id: str, *, stopped: bool = False, failed: bool = False) -> None:
        """Tell the sampler how a trial went, once."""
        assert self._study is not None
        values = self._values.pop(request_id, None)
        if values is None:
            return
        if failed or values["best"] is None:
            self._study.tell(values["number"], FAIL)
        elif stopped and values["time"] < self._max_time:
            self._study.tell(values["number"], PRUNED, float(values["last"]), int(values["time"]))
        else:
            self._study.tell(values["number"], COMPLETE, float(values["best"]))


class _AskingContext(SearchContext):
    """A context whose new trials have the hyperparameters that Optuna proposes."""

    def __init__(self, ctx: SearchContext, search: OptunaSearch) -> None:
        super().__init__(ctx.generator, ctx.space, ctx.searcher)
        self.warnings = ctx.warnings
        self._search = search

    def create(self, hparams: Mapping[str, Json] | None = None, *, source_checkpoint_uuid: str | None = None) -> Create:
        if hparams is not None:
            return super().create(hparams, source_checkpoint_uuid=source_checkpoint_uuid)
        return self._search._ask(super().create)


class Study:
    """An Optuna study over our space, with everything that was asked and told written down."""

    def __init__(self, space: Space, sampler: str, sampler_args: Mapping[str, Any], seed: int) -> None:
        self._space = space
        self._seed = seed
        self._ranges = {path: p for path, p in space.parameters() if not isinstance(p, Const)}
        self._names = {".".join(path): path for path in self._ranges}
        if len(self._names) < len(self._ranges):
            raise errors.SearchError("Two hyperparameters have the same dotted name. Rename one of them.")
        self._log: list[list[Any]] = []
        self._trials: dict[int, optuna.Trial] = {}
        with _quietly():
            chosen = _sampler(sampler, sampler_args, seed)
            self._study: optuna.Study = _require().create_study(sampler=chosen, direction="minimize")
            self._distributions = {name: _distribution(self._ranges[path]) for name, path in self._names.items()}

    def ask(self) -> tuple[int, dict[str, Json]]:
        """Return the next proposal, and its number."""
        with _quietly():
            trial = self._study.ask(self._distributions)
        self._log.append([])
        self._trials[trial.number] = trial
        values = {self._names[name]: value for name, value in trial.params.items()}
        return trial.number, self._space.shaped({path: _value(self._ranges[path], v) for path, v in values.items()})

    def tell(self, number: int, state: str, value: float | None = None, step: int | None = None) -> None:
        """How the proposal of that number went: FAIL, COMPLETE with a value, or PRUNED with a value at a step."""
        from optuna.trial import TrialState

        trial = self._trials.pop(number)
        self._log.append([number, state, value if value is None else spell(value), step])
        with _quietly():
            if state == PRUNED and value is not None and step is not None:
                trial.report(value, step)
            try:
                self._study.tell(trial, value if state == COMPLETE else None, TrialState[state])
            except RuntimeError as error:  # grid-like samplers ask to end when all was proposed; max_trials decides
                if "stop" not in str(error):
                    raise

    def snapshot(self) -> dict[str, Any]:
        return {"seed": self._seed, "log": [list(entry) for entry in self._log]}

    @classmethod
    def restore(cls, state: Mapping[str, Any], space: Space, sampler: str, sampler_args: Mapping[str, Any]) -> Study:
        """Ask and tell everything again."""
        study = cls(space, sampler, sampler_args, state["seed"])
        for entry in state["log"]:
            if entry:
                number, outcome, value, step = entry
                study.tell(number, outcome, value if value is None else float(value), step)
            else:
                study.ask()
        return study


def _require() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise errors.MissingPackage(
            "searcher.name is optuna, but Optuna is not installed. Type: pip install 'resolute[optuna]'"
        ) from error
    return optuna


def _sampler(name: str, sampler_args: Mapping[str, Any], seed: int) -> Any:
    samplers = _require().samplers
    kind = getattr(samplers, name, None) if not name.startswith("_") else None
    if not isinstance(kind, type) or not issubclass(kind, samplers.BaseSampler) or kind is samplers.BaseSampler:
        known = [n for n in samplers.__all__ if n.endswith("Sampler") and n != "BaseSampler"]
        raise errors.SearchError(f"searcher.sampler is {name!r}; Optuna has {', '.join(known)}.")
    try:
        return kind(**{"seed": seed, **sampler_args})
    except TypeError as error:
        raise errors.SearchError(
            f"{name} does not take searcher.sampler_args {dict(sampler_args)!r}: {error}."
        ) from error
    except ImportError as error:
        raise errors.SearchError(f"{name} needs another package: {error}") from error


def _distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    from optuna import distributions

    if isinstance(parameter, Int):
        return distributions.IntDistribution(parameter.minval, parameter.maxval)
    if isinstance(parameter, Double | Log):  # a log parameter is proposed by its exponent
        return distributions.FloatDistribution(float(parameter.minval), float(parameter.maxval))
    assert isinstance(parameter, Categorical)
    return distributions.CategoricalDistribution(range(len(parameter.vals)))  # positions: the values may be any JSON


def _value(parameter: Parameter, proposed: Any) -> Json:
    if isinstance(parameter, Log):
        return parameter.power(proposed)
    if isinstance(parameter, Categorical):
        return parameter.point(proposed)
    return int(proposed) if isinstance(parameter, Int) else float(proposed)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without Optuna's lines on stderr, and without its notes that a sampler the user named is experimental."""
    optuna = _require()
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
