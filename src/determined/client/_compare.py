"""Compare runs: what differs between them, and which was best. Returns plain data; commands lay it out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined._wording import instead
from determined.client._listing import Listing, flat, frame
from determined.errors import NotFound

if TYPE_CHECKING:
    import pandas

    from determined.client._experiment import Experiment
    from determined.client._trial import Trial
    from determined.store.attempts import AttemptRow
    from determined.store.trials import TrialBrief, TrialRow

SECTIONS = ("hparams", "config", "environment", "metrics")
SYSTEM_GROUPS = {"gpu", "cpu", "memory", "disk", "network"}  # samples of a machine: no two runs have the same
GROUPS = {"avg_metrics": "training", "validation_metrics": "validation"}  # as a summary calls them
FIGURES = ("last", "min", "max")
ALWAYS_DIFFERENT = {"pid", "process_started", "time", "started"}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One key that is not the same everywhere.

    Args:
        section: `hparams`, `config`, `environment` or `metrics`.
        key: Where in it, with dots.
        values: Trial id to value; a trial that has no such key is left out.
    """

    section: str
    key: str
    values: dict[int, Any]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Several trials side by side.

    Args:
        trial_ids: Which, in the order given.
        differences: By section, then by key.

    Example::

        for difference in client.compare([trial_a, trial_b]).differences:
            print(difference.section, difference.key, difference.values)
    """

    trial_ids: list[int]
    differences: list[Difference]

    def to_dict(self) -> dict[str, dict[str, dict[int, Any]]]:
        """Section to key to trial to value."""
        found: dict[str, dict[str, dict[int, Any]]] = {}
        for difference in self.differences:
            found.setdefault(difference.section, {})[difference.key] = difference.values
        return found

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per difference, one column per trial."""
        rows = [
            {"section": d.section, "key": d.key, **{str(trial): d.values.get(trial) for trial in self.trial_ids}}
            for d in self.differences
        ]
        return frame(rows)


def compare(trials: Sequence[Trial]) -> Comparison:
    """Return what differs between trials: hyperparameters, config, code and packages, and metrics.

    Args:
        trials: Two or more, of one experiment or of several.

    Example::

        compare([client.get_trial(3), client.get_trial(4)]).to_dict()["hparams"]
    """
    return differences({trial.id: description(trial) for trial in trials})


def description(trial: Trial) -> dict[str, dict[str, Any]]:
    """Return what a trial is compared by: section to key to value."""
    attempts = trial.attempts()
    return described(trial, trial.get_experiment().config, attempts[-1] if attempts else None)


def described(
    trial: Trial | TrialRow, config: Mapping[str, Any], attempt: AttemptRow | None
) -> dict[str, dict[str, Any]]:
    """Return the same from what was read already: the experiment's configuration, and the newest attempt. Pure."""
    environment = {} if attempt is None else {**attempt.environment, "ranks": attempt.slots}
    return {
        "hparams": flat(trial.hparams),
        "config": flat({key: value for key, value in config.items() if key != "hyperparameters"}),
        "environment": flat({k: v for k, v in environment.items() if k not in ALWAYS_DIFFERENT}),
        "metrics": _figures(trial.summary_metrics),
    }


def differences(described: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> Comparison:
    """Return the keys whose values are not the same for all. Pure.

    Example::

        found = differences({1: {"hparams": {"lr": 0.1}}, 2: {"hparams": {"lr": 0.2}}})
        assert found.differences == [Difference("hparams", "lr", {1: 0.1, 2: 0.2})]
    """
    found = []
    for section in SECTIONS:
        parts = {trial: sections.get(section, {}) for trial, sections in described.items()}
        for key in sorted({key for part in parts.values() for key in part}):
            values = {trial: part[key] for trial, part in parts.items() if key in part}
            if len(values) < len(parts) or not _all_same(list(values.values())):
                found.append(Difference(section, key, values))
    return Comparison(list(described), found)


def differing(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each row with only those keys whose values are not the same in all rows; nested ones have dots. Pure.

    Example::

        assert differing([{"lr": 0.1, "hidden": 64}, {"lr": 0.2, "hidden": 64}]) == [{"lr": 0.1}, {"lr": 0.2}]
    """
    parts = [flat(row) for row in rows]
    kept = differing_keys(parts)
    return [{key: value for key, value in part.items() if key in kept} for part in parts]


def differing_keys(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the keys whose values are not the same in all rows, or that not all have. Pure."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key for key in keys if not _all_same([row.get(key, keys) for row in rows])}


def _all_same(values: Sequence[Any]) -> bool:
    # By how they are written: NaN is the same as NaN, and 1 is not True.
    first = repr(values[0]) if values else ""
    return all(repr(value) == first for value in values)


def _figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """`validation.loss.min` and the like, of what was reported by the run itself."""
    return {
        f"{GROUPS.get(group, group)}.{name}.{figure}": figures[figure]
        for group, names in summary.items()
        if group not in SYSTEM_GROUPS
        for name, figures in names.items()
        for figure in FIGURES
        if figure in figures
    }


SUMMARIES = {group: key for key, group in GROUPS.items()}  # what groups are called in a summary


@dataclasses.dataclass(frozen=True)
class Scores:
    """The best value of one metric for each of several experiments.

    Args:
        metric: As it was named: `loss` of validation, or `training.loss`.
        smaller_is_better: Whether smaller values of it are.
        values: Experiment id to value; an experiment that reported no number is left out.
    """

    metric: str
    smaller_is_better: bool
    values: dict[int, float]


def rank(
    experiments: Iterable[Experiment], metric: str | None = None, smaller_is_better: bool | None = None
) -> Listing[Experiment]:
    """Return the experiments, the best first; grouped by the metric they look at; those without a value last.

    Args:
        experiments: Which.
        metric: Another one than each looks at: `loss` of validation, or `training.loss`. `best_values` has its values.
        smaller_is_better: Whether smaller values of `metric` are; by default what the experiments that look at it say,
            else True.

    Raises:
        NotFound: None of them reported that metric.

    Example::

        best = client.rank(client.list_experiments(limit=10))[0]
        print(best.id, best.searcher_metric, best.best_metric)
    """
    found = list(experiments)
    return ordered(found, None if metric is None else scores(found, metric, smaller_is_better))


def best_values(
    experiments: Iterable[Experiment], metric: str, smaller_is_better: bool | None = None
) -> dict[int, float]:
    """Return the best value of any metric for each experiment, by id; those that reported none are left out.

    Args:
        experiments: Which.
        metric: `loss` of validation, or `training.loss`.
        smaller_is_better: As for `rank`.

    Raises:
        NotFound: None of them reported that metric.

    Example::

        client.best_values(client.list_experiments(limit=10), "accuracy", smaller_is_better=False)
    """
    return scores(list(experiments), metric, smaller_is_better).values


def ordered(experiments: Iterable[Experiment], by: Scores | None) -> Listing[Experiment]:
    """Sort experiments by these scores, or each by the metric that it looks at; the best first. See `rank`."""

    def key(experiment: Experiment) -> tuple[bool, str, float]:
        value = experiment.best_metric if by is None else by.values.get(experiment.id)
        if value is None or math.isnan(value):
            return True, "", 0.0
        smaller_is_better = experiment.smaller_is_better if by is None else by.smaller_is_better
        return False, (experiment.searcher_metric or "") if by is None else "", value if smaller_is_better else -value

    return Listing(sorted(experiments, key=key))


def scores(experiments: Sequence[Experiment], metric: str, smaller_is_better: bool | None = None) -> Scores:
    """Find the best value of a metric in the trials of each experiment. See `rank` for the arguments."""
    if smaller_is_better is None:
        said = {e.smaller_is_better for e in experiments if e.searcher_metric in (metric, _parts(metric)[1])}
        smaller_is_better = said != {False}
    figure, choose = ("min", min) if smaller_is_better else ("max", max)
    known: dict[str, None] = {}
    found = {}
    for experiment in experiments:
        trials = list(experiment.iter_trials())
        known |= dict.fromkeys(name for trial in trials for name in _names(trial))
        summaries = [summary(trial, "validation", metric) or summary(trial, *_parts(metric)) for trial in trials]
        values = [each[figure] for each in summaries if isinstance(each.get(figure), (int, float))]
        if values:
            found[experiment.id] = choose(values)
    if experiments and not {metric, metric.removeprefix("validation.")} & known.keys():
        raise NotFound(f"None of these experiments reported {metric!r}.{instead(metric, known)}")
    return Scores(metric, smaller_is_better, found)


def best(trials: Iterable[Trial]) -> Trial | None:
    """Return the best trial, if their experiments look at the same metric in the same way; else None."""
    having = [(trial.best_metric, trial) for trial in trials if trial.best_metric is not None]
    goals = {(trial.searcher_metric, trial.smaller_is_better) for _, trial in having}
    if len(goals) != 1:
        return None
    choose = min if having[0][1].smaller_is_better else max
    return choose(having, key=lambda pair: pair[0])[1]


def best_of(
    experiment: Experiment, metric: str | None = None, smaller_is_better: bool | None = None
) -> tuple[Trial, float] | None:
    """Return the best trial of an experiment, and its value. See `Experiment.best_trial`."""
    if metric is None or (metric == experiment.searcher_metric and smaller_is_better is None):
        found = [trial for trial in experiment.best_trials(1) if trial.best_metric is not None]
        return (found[0], found[0].best_metric or 0.0) if found else None
    figure, choose = ("min", min) if smaller_is_better in (None, True) else ("max", max)
    valued = []
    for trial in experiment.iter_trials():
        value = (summary(trial, "validation", metric) or summary(trial, *_parts(metric))).get(figure)
        if isinstance(value, (int, float)) and not math.isnan(value):
            valued.append((trial, float(value)))
    return choose(valued, key=lambda pair: pair[1]) if valued else None


def summary(trial: Trial | TrialBrief, group: str, name: str) -> dict[str, Any]:
    """Return count, last, min, max and mean of one metric of a trial; empty if it never reported it."""
    found: dict[str, Any] = trial.summary_metrics.get(SUMMARIES.get(group, group), {}).get(name, {})
    return found


def _parts(metric: str) -> tuple[str, str]:
    """Group and name of `training.loss`; a name alone is one of validation."""
    group, dot, name = metric.partition(".")
    return (group, name) if dot else ("validation", metric)


def _names(trial: Trial) -> list[str]:
    """Return the names of a trial's metrics, as people type them: `loss` of validation, `training.loss`."""
    groups = {GROUPS.get(key, key): names for key, names in trial.summary_metrics.items()}
    return [
        name if group == "validation" else f"{group}.{name}"
        for group in sorted(groups, key=lambda group: (group != "validation", group))
        if group not in SYSTEM_GROUPS
        for name in groups[group]
        if name not in ("batches", "epochs")
    ]
