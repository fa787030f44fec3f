"""The form of the search dialog: filled in from an experiment, and read back into a searcher section and a space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from determined.client._listing import section as section_of
from determined.errors import InvalidValue
from determined.experiment import hparams
from determined.experiment.search.rungs import bracket_rungs
from determined.experiment.submission.draft import as_method, constant, constants
from determined.server.answers.submissions import SearchForm, SearchRange

TRIALS = 16  # that a form starts with
FALLBACK: Literal["adaptive_asha"] = "adaptive_asha"
METHODS = {"random": "random", "grid": "grid", "adaptive_asha": "adaptive_asha", "async_halving": "async_halving",
           "asha": "async_halving", "optuna": "random"}  # fmt: skip
HALVING = ("adaptive_asha", "async_halving")
GIVEN = ("metric", "smaller_is_better", "max_trials", "max_time", "time_metric", "max_concurrent_trials")


def filled(config: Mapping[str, Any], name: str, length: int, values: Mapping[str, Any] | None) -> SearchForm:
    """Return the form of an experiment, or of one of its trials.

    Args:
        config: The effective configuration.
        name: What the search is to be called.
        length: How many batches its longest trial has trained; 0 if none has.
        values: The trial's hyperparameters, which become constants.
    """
    searcher = section_of(config, "searcher")
    space, _ = hparams.parse(section_of(config, "hyperparameters") if values is None else constants(values))
    unit, time = _time(searcher, length)
    return SearchForm(
        searcher=METHODS.get(str(searcher.get("name")), FALLBACK),  # type: ignore[arg-type]  # one of the Literal's
        metric=searcher.get("metric"),
        smaller_is_better=searcher.get("smaller_is_better"),
        max_trials=searcher.get("max_trials") or TRIALS,
        max_time=time,
        time_metric=unit,
        max_concurrent_trials=searcher.get("max_concurrent_trials"),
        name=name,
        ranges=[_range(".".join(path), parameter) for path, parameter in space.parameters()],
    )


def _time(searcher: Mapping[str, Any], length: int) -> tuple[str | None, int | None]:
    """Return what time is counted in and how much one trial gets, as far as anything says."""
    if searcher.get("max_time"):
        return searcher.get("time_metric"), int(searcher["max_time"])
    said = searcher.get("max_length")
    if isinstance(said, Mapping):
        for unit in ("epochs", "batches"):
            if said.get(unit):
                return unit, int(said[unit])
    return ("batches", length) if length else (None, None)


def _range(name: str, parameter: hparams.Parameter) -> SearchRange:
    if isinstance(parameter, hparams.Const):
        return SearchRange(name=name, type="const", val=parameter.val)
    if isinstance(parameter, hparams.Categorical):
        return SearchRange(name=name, type="categorical", vals=list(parameter.vals))
    kind: Literal["int", "double", "log"] = "int" if isinstance(parameter, hparams.Int) else "double"
    base = None
    if isinstance(parameter, hparams.Log):
        kind, base = "log", parameter.base
    ends = (parameter.minval, parameter.maxval)
    return SearchRange(name=name, type=kind, minval=ends[0], maxval=ends[1], base=base, count=parameter.count)


def section(form: SearchForm, searcher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the searcher section that a form says; what it does not ask about stays, where it fits."""
    given = {key: getattr(form, key) for key in GIVEN if getattr(form, key) is not None}
    found = as_method({**searcher, **given}, form.searcher)
    if form.searcher in HALVING:  # a length of training says the same again, in another unit perhaps
        found.pop("max_length", None)
    if form.searcher == "async_halving" and "num_rungs" not in found and {"max_trials", "max_time"} <= found.keys():
        found["num_rungs"] = max(bracket_rungs({**found, "mode": "aggressive"}))
    return found


def declarations(form: SearchForm, config: Mapping[str, Any]) -> list[tuple[tuple[str, ...], Any]]:
    """Return path and declaration of each hyperparameter of a form."""
    space, _ = hparams.parse(section_of(config, "hyperparameters"))
    known = {".".join(path): path for path, _ in space.parameters()}  # a name may have dots of its own
    return [(known.get(row.name) or _path(row.name), _declaration(row)) for row in form.ranges]


def _path(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("."))
    if not all(part.strip() for part in parts):
        raise InvalidValue(f"{name!r} is no name of a hyperparameter. Write it as lr, or as optimizer.lr in a group.")
    return parts


def _declaration(row: SearchRange) -> Any:
    if row.type == "const":
        return constant(row.val)
    if row.type == "categorical":
        return {"type": "categorical", "vals": row.vals or []}
    keys = ("base", "minval", "maxval", "count") if row.type == "log" else ("minval", "maxval", "count")
    return {"type": row.type} | {key: _short(getattr(row, key)) for key in keys if getattr(row, key) is not None}


def _short(number: float) -> float:
    """Return a whole number as one: an int has whole ends, and 10 reads better than 10.0."""
    return int(number) if float(number).is_integer() else number
