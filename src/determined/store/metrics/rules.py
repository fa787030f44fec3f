"""What a metric report must be like before it is kept. What it meets in the store is the subject of `metrics.py`."""

from __future__ import annotations

import logging
from typing import Any

from determined import errors
from determined._redact import by_shape, redacted
from determined._types import Json
from determined.store import values
from determined.store.messages import MetricReport, check_group, check_steps
from determined.store.metrics import summary

logger = logging.getLogger("determined.store")

LONGEST_NAME = 500
_NUMERIC = ("epoch", "epochs")


class Rules:
    """The rules for the reports of one transaction; names that were found good are not looked at twice.

    Args:
        searcher_metric: The metric that the experiment searches for.
    """

    def __init__(self, searcher_metric: str | None = None) -> None:
        self._searcher_metric = searcher_metric
        self._groups: set[str] = set()
        self._names: set[str] = set()

    def keep(self, report: MetricReport) -> dict[str, Json]:
        """Return the metrics to keep, with names that every database holds.

        Raises:
            InvalidValue: The group, the step, or a value breaks a rule.
        """
        if report.group not in self._groups:
            check_group(report.group)
            self._groups.add(report.group)
        if report.steps_completed is not None:
            try:
                check_steps(report.steps_completed)
            except TypeError as wrong:
                raise errors.InvalidValue(str(wrong)) from None
        metrics = dict(report.metrics)
        if not self._names.issuperset(metrics):
            metrics = {_checked_name(name): value for name, value in metrics.items()}
            self._names.update(metrics)
        for value in metrics.values():
            if type(value) is not float:  # nearly always it is, and then there is nothing to check
                return self._check_values(report, metrics)
        return metrics

    def _check_values(self, report: MetricReport, metrics: dict[str, Json]) -> dict[str, Json]:
        metrics = redacted(metrics)
        if any(isinstance(value, bytes) for value in metrics.values()):
            metrics = _without_bytes(metrics)
        for name in _NUMERIC:
            if name in metrics and summary.type_of(metrics[name]) != "number":
                raise _refusal(report, name, metrics[name], "it must be a number")
        if report.group != "validation":
            return metrics
        for name, value in metrics.items():
            if value is None:
                raise _refusal(report, name, value, "a validation metric must have a value")
        metric = self._searcher_metric
        if metric in metrics and summary.type_of(metrics[metric]) != "number":
            raise _refusal(report, metric, metrics[metric], "the searcher metric must be a number")
        return metrics


def _checked_name(name: Any) -> str:
    text = name if isinstance(name, str) else str(name)
    if len(text) > LONGEST_NAME:
        raise errors.InvalidValue(
            f"The metric name {text[:20]!r}... has {len(text)} characters. Use {LONGEST_NAME} at most."
        )
    return values.clean(by_shape(text))


def _without_bytes(metrics: dict[str, Json]) -> dict[str, Json]:
    dropped = [name for name, value in metrics.items() if isinstance(value, bytes)]
    logger.warning("Metrics %s are bytes, which cannot be kept; they are left out. Report numbers or text.", dropped)
    return {name: value for name, value in metrics.items() if name not in dropped}


def _refusal(report: MetricReport, name: str, value: Json, rule: str) -> errors.InvalidValue:
    return errors.InvalidValue(
        f"{name!r} in group {report.group!r} at step {report.steps_completed} is {value!r}, but {rule}. "
        "Report a number, or leave it out."
    )
