"""What differs between runs: only the differences, as plain data. How it looks is the command line's business."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined.client._listing import flat, frame

if TYPE_CHECKING:
    import pandas

    from determined.client._trial import Trial

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
        """One row per difference, one column per trial."""
        rows = [
            {"section": d.section, "key": d.key, **{str(trial): d.values.get(trial) for trial in self.trial_ids}}
            for d in self.differences
        ]
        return frame(rows)


def compare(trials: Sequence[Trial]) -> Comparison:
    """What differs between trials: hyperparameters, config, code and packages, and how they did.

    Args:
        trials: Two or more, of one experiment or of several.

    Example::

        compare([client.get_trial(3), client.get_trial(4)]).to_dict()["hparams"]
    """
    return differences({trial.id: description(trial) for trial in trials})


def description(trial: Trial) -> dict[str, dict[str, Any]]:
    """What a trial is compared by: section to key to value."""
    config = {key: value for key, value in trial.get_experiment().config.items() if key != "hyperparameters"}
    attempts = trial.attempts()
    environment = {**attempts[-1].environment, "ranks": attempts[-1].slots} if attempts else {}
    return {
        "hparams": flat(trial.hparams),
        "config": flat(config),
        "environment": flat({k: v for k, v in environment.items() if k not in ALWAYS_DIFFERENT}),
        "metrics": _figures(trial.summary_metrics),
    }


def differences(described: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> Comparison:
    """The keys whose values are not the same for all. Pure.

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
    keys = dict.fromkeys(key for part in parts for key in part)
    kept = {key for key in keys if not _all_same([part.get(key, keys) for part in parts])}
    return [{key: value for key, value in part.items() if key in kept} for part in parts]


def _all_same(values: Sequence[Any]) -> bool:
    # By how they are written: NaN is the same as NaN, and 1 is not True.
    return len({repr(value) for value in values}) <= 1


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
