"""Metric reports in the store: what is kept, what is refused, what a summary says."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import sqlalchemy as sa

from determined import errors
from determined.store import attempts, experiments, schema, trials
from determined.store.attempts import Attempt
from determined.store.database.connection import Store
from determined.store.messages import MetricReport
from determined.store.metrics import metric_reports


def start(store: Store, *, metric: str | None = "loss", smaller: bool = True, experiment: int | None = None) -> Attempt:
    """A new trial's first attempt."""
    with store.write() as conn:
        if experiment is None:
            experiment = experiments.create(
                conn, name="e", config={}, owner="ada", searcher_metric=metric, smaller_is_better=smaller
            )
        return attempts.begin(conn, trials.create(conn, experiment, hparams={}))


def restart(store: Store, attempt: Attempt) -> Attempt:
    with store.write() as conn:
        return attempts.begin(conn, attempt.trial_id)


def report(store: Store, attempt: Attempt, *reports: MetricReport) -> None:
    with store.write() as conn:
        metric_reports.append(conn, attempt, reports)


def training(*points: tuple[int, Any], name: str = "loss", group: str = "training") -> list[MetricReport]:
    return [MetricReport(group, {name: value}, steps) for steps, value in points]


def visible(store: Store, attempt: Attempt, group: str = "training") -> list[tuple[int | None, dict[str, Any]]]:
    with store.read() as conn:
        return [(row.steps, row.metrics) for row in metric_reports.rows(conn, attempt.trial_id, group)]


def trial(store: Store, attempt: Attempt) -> trials.TrialRow:
    with store.read() as conn:
        return trials.get(conn, attempt.trial_id)


class TestAttempts:
    def test_a_resumed_run_replaces_what_it_repeats(self, store: Store) -> None:
        """P-56: 10, 20, 30 and a crash; the next attempt reports 30 again."""
        one = start(store)
        report(store, one, *training((10, 1.0), (20, 2.0), (30, 3.0)))
        report(store, restart(store, one), *training((30, 33.0)))
        assert visible(store, one) == [(10, {"loss": 1.0}), (20, {"loss": 2.0}), (30, {"loss": 33.0})]

    def test_a_run_from_scratch_replaces_everything(self, store: Store) -> None:
        """P-57: only the new value of step 1 is visible; the old one is kept, hidden."""
        one = start(store)
        report(store, one, *training((1, 1), name="x"))
        report(store, restart(store, one), *training((1, 2), name="x"))
        assert visible(store, one) == [(1, {"x": 2})]
        with store.read() as conn:
            assert conn.scalar(sa.select(sa.func.count()).select_from(schema.metrics)) == 2

    def test_an_old_attempt_is_refused(self, store: Store) -> None:
        """P-58: attempt 1 reports after attempt 2 began; nothing changes."""
        one = start(store)
        report(store, one, *training((1, 1.0)))
        restart(store, one)
        with pytest.raises(errors.StaleAttempt, match=r"Attempt 1 .* attempt 2 has begun"):
            report(store, one, *training((2, 2.0)))
        assert visible(store, one) == [(1, {"loss": 1.0})]

    def test_other_groups_keep_the_step_itself(self, store: Store) -> None:
        """4.10: the first report at step 20 hides other groups only after 20; samples without steps always stay."""
        one = start(store)
        report(store, one, *training((10, 1.0), (20, 2.0), (30, 3.0), group="validation"))
        report(store, one, MetricReport("cpu", {"load": 1.0}))
        report(store, restart(store, one), *training((20, 2.0)))
        assert [steps for steps, _ in visible(store, one, "validation")] == [10, 20]
        assert visible(store, one, "cpu") == [(None, {"load": 1.0})]

    def test_a_validation_that_is_repeated_is_there_once(self, store: Store) -> None:
        """4.10: validating again at a step that an older attempt validated shows the newer values."""
        one = start(store)
        report(store, one, *training((20, 2.0), group="validation"))
        two = restart(store, one)
        report(store, two, *training((20, 1.0)))
        report(store, two, *training((20, 9.0), group="validation"))
        assert visible(store, one, "validation") == [(20, {"loss": 9.0})]
        assert trial(store, one).searcher_metric_value == 9.0

    def test_only_the_first_report_hides(self, store: Store) -> None:
        """4.10: a sample is no first report; a later report hides nothing more."""
        one = start(store)
        report(store, one, *training((10, 1.0), (20, 2.0), (30, 3.0)))
        two = restart(store, one)
        report(store, two, MetricReport("cpu", {"load": 1.0}))
        assert len(visible(store, one)) == 3
        report(store, two, *training((25, 2.5)))
        report(store, two, *training((15, 1.5)))
        assert [steps for steps, _ in visible(store, one)] == [10, 15, 20, 25]


class TestMerging:
    def test_disjoint_names_share_a_row(self, store: Store) -> None:
        """P-71: two reports at one step become one row, in one transaction or two."""
        one = start(store)
        report(store, one, MetricReport("training", {"a": 1}, 5), MetricReport("training", {"b": 2}, 5))
        report(store, one, MetricReport("training", {"c": 3, "a": 1}, 5))
        assert visible(store, one) == [(5, {"a": 1, "b": 2, "c": 3})]
        with store.read() as conn:
            assert metric_reports.names(conn, experiment_id=one.experiment_id) == {"training": ["a", "b", "c"]}

    @pytest.mark.parametrize("together", [True, False])
    def test_a_different_value_is_an_error(self, store: Store, together: bool) -> None:
        """P-71: an error that names the key and both values; nothing of the transaction is kept."""
        one = start(store)
        first, second = MetricReport("training", {"a": 1}, 5), MetricReport("training", {"b": 1, "a": 2}, 5)
        if not together:
            report(store, one, first)
        with pytest.raises(errors.MetricConflict, match=r"'a' in group 'training' at step 5 is already 1 .* 2"):
            report(store, one, *([first, second] if together else [second]))
        assert visible(store, one) == ([] if together else [(5, {"a": 1})])

    def test_nan_again_is_the_same(self, store: Store) -> None:
        """4.10: an equal value is fine, NaN too, so a delivery may be repeated."""
        one = start(store)
        for _ in range(2):
            report(store, one, MetricReport("validation", {"a": math.nan, "b": [math.inf]}, 5))
        assert len(visible(store, one, "validation")) == 1

    def test_batches_are_kept_and_read_when_asked(self, store: Store) -> None:
        """5.1: batch metrics come back as they were, whichever way they were told, and only on demand."""
        one = start(store)
        report(
            store,
            one,
            MetricReport("training", {"a": 1}, 1, {"loss": [1.0, math.nan], "n": [1, 2]}),
            MetricReport("training", {"a": 1}, 2, [{"loss": 1.0}, {}]),
            MetricReport("training", {"a": 1}, 3),
        )
        with store.read() as conn:
            assert [row.batch_metrics for row in metric_reports.rows(conn, one.trial_id)] == [None, None, None]
            batches = [row.batch_metrics for row in metric_reports.rows(conn, one.trial_id, with_batches=True)]
        assert batches[0] is not None
        assert batches[0][0] == {"loss": 1.0, "n": 1}
        assert math.isnan(batches[0][1]["loss"])
        assert batches[1:] == [[{"loss": 1.0}, {}], None]


class TestRules:
    @pytest.mark.parametrize("group", ["a.b", "", "x" * 65, "avg_metrics"])
    def test_a_bad_group_is_refused(self, store: Store, group: str) -> None:
        """P-72: no dots; and not empty, endless, or what a summary calls another group."""
        with pytest.raises(errors.InvalidValue):
            report(store, start(store), MetricReport(group, {"a": 1}, 1))

    @pytest.mark.parametrize("name", ["epoch", "epochs"])
    @pytest.mark.parametrize("value", ["x", None, True, [1]])
    def test_epochs_are_numbers(self, store: Store, name: str, value: Any) -> None:
        """P-76: anything else is refused, with its name."""
        with pytest.raises(errors.InvalidValue, match=f"'{name}' .* must be a number"):
            report(store, start(store), MetricReport("training", {name: value}, 1))

    def test_validations_have_values(self, store: Store) -> None:
        """4.10: None is refused in a validation and kept elsewhere; the searcher metric is a number."""
        one = start(store)
        report(store, one, MetricReport("training", {"a": None}, 1))
        with pytest.raises(errors.InvalidValue, match="'a' in group 'validation' at step 1 is None"):
            report(store, one, MetricReport("validation", {"a": None}, 1))
        with pytest.raises(errors.InvalidValue, match="searcher metric"):
            report(store, one, MetricReport("validation", {"loss": "low"}, 1))

    @pytest.mark.parametrize("steps", [-1, 1.5, True, 2**63])
    def test_steps_count(self, store: Store, steps: Any) -> None:
        """4.10: steps are whole numbers from 0 on."""
        with pytest.raises(errors.InvalidValue, match="steps_completed"):
            report(store, start(store), MetricReport("training", {"a": 1}, steps))

    def test_bytes_are_left_out(self, sqlite_store: Store, caplog: pytest.LogCaptureFixture) -> None:
        """4.10: bytes in a report are left out, with a warning."""
        one = start(sqlite_store)
        with caplog.at_level(logging.WARNING):
            report(sqlite_store, one, MetricReport("training", {"a": b"x", "b": 1}, 1))  # type: ignore[dict-item]
        assert visible(sqlite_store, one) == [(1, {"b": 1})]
        assert "['a'] are bytes" in caplog.text

    def test_names_are_what_people_write(self, store: Store) -> None:
        """4.10: any name a database can hold, and what it cannot hold is replaced."""
        one = start(store)
        names = ["ünïcode ✓", "a/b:c.d", '"quoted"', "%s", "nul\0", "half\ud800"]
        report(store, one, MetricReport("training", dict.fromkeys(names, 1.0), 1))
        with store.read() as conn:
            stored = metric_reports.names(conn, trial_ids=[one.trial_id])["training"]
        assert stored == sorted([*names[:4], "nul\ufffd", "half\ufffd"])
        assert sorted(visible(store, one)[0][1]) == stored


class TestSummary:
    def test_nan_and_infinity_come_back(self, store: Store) -> None:
        """P-73: stored and returned as such; a text that looks like it stays a text."""
        one = start(store)
        report(store, one, MetricReport("training", {"a": math.nan, "b": math.inf, "c": -math.inf, "d": "NaN"}, 1))
        body = visible(store, one)[0][1]
        assert math.isnan(body.pop("a"))
        assert body == {"b": math.inf, "c": -math.inf, "d": "NaN"}
        assert math.isnan(trial(store, one).summary_metrics["avg_metrics"]["a"]["last"])

    def test_the_numbers(self, store: Store) -> None:
        """P-74: the summary of 1, 3, 2 has count, min, max, sum, mean, last and type."""
        one = start(store)
        report(store, one, *training((1, 1), (2, 3), (3, 2)))
        expected = {"count": 3, "min": 1, "max": 3, "sum": 6, "mean": 2, "last": 2, "type": "number"}
        assert trial(store, one).summary_metrics == {"avg_metrics": {"loss": expected}}

    def test_mixed_types_are_text(self, store: Store) -> None:
        """P-75: a metric that was a number and then text is summarised as text."""
        one = start(store)
        report(store, one, *training((1, 1)))
        report(store, one, *training((2, "x")))
        assert trial(store, one).summary_metrics["avg_metrics"]["loss"] == {"last": "x", "type": "string"}

    def test_other_types_and_keys(self, store: Store) -> None:
        """4.10: each type has its word, each group its key."""
        one = start(store)
        body = {"s": "x", "b": True, "d": "2025-01-31T12:00:00Z", "o": {"k": 1}, "a": [1], "n": None}
        report(store, one, MetricReport("training", body, 1), MetricReport("validation", {"s": "x"}, 1))
        report(store, one, MetricReport("mine", {"s": "x"}, 1))
        found = trial(store, one).summary_metrics
        assert {name: entry["type"] for name, entry in found["avg_metrics"].items()} == {
            "s": "string", "b": "boolean", "d": "date", "o": "object", "a": "array", "n": "null",
        }  # fmt: skip
        assert found.keys() == {"avg_metrics", "validation_metrics", "mine"}

    def test_sums_beyond_floats_do_no_harm(self, store: Store) -> None:
        """P-73: finite values whose sum is not, and whole numbers too long for a float."""
        one = start(store)
        for number in range(40):
            report(store, one, *training((number, 1.7e308 * (-1) ** (number // 20))))
        report(store, one, *training((99, 10**400)))
        assert trial(store, one).summary_metrics["avg_metrics"]["loss"]["count"] == 40
        assert visible(store, one)[-1] == (99, {"loss": 10**400})


class TestBest:
    def test_the_earliest_of_the_best(self, store: Store) -> None:
        """4.10: ties go to the earlier step, NaN is never the best, the latest is the newest."""
        one = start(store)
        report(store, one, *training((1, math.nan), (2, 3.0), (3, 1.0), (4, 1.0), (5, math.nan), group="validation"))
        report(store, one, MetricReport("validation", {"other": 0.0}, 6))
        report(store, one, *training((0, 4.0), group="validation"))
        row = trial(store, one)
        assert (row.searcher_metric_value, row.total_batches) == (1.0, 6)
        assert (step_of(store, row.best_validation_id), step_of(store, row.latest_validation_id)) == (3, 5)

    def test_a_later_tie_changes_nothing(self, store: Store) -> None:
        """4.10: the earliest stays the best when a later report equals it; an earlier step takes its place."""
        one = start(store)
        report(store, one, *training((3, 1.0), group="validation"))
        report(store, one, *training((4, 1.0), group="validation"))
        assert step_of(store, trial(store, one).best_validation_id) == 3
        report(store, one, *training((2, 1.0), group="validation"))
        assert step_of(store, trial(store, one).best_validation_id) == 2

    def test_an_experiments_best(self, store: Store) -> None:
        """4.10: best so far over all trials, None before; it follows when a resumed trial takes its best back."""
        one = start(store, smaller=False)
        two = start(store, experiment=one.experiment_id)
        with store.read() as conn:
            assert metric_reports.best_validation(conn, one.experiment_id) is None
        report(store, one, *training((1, 1.0), group="validation"))
        report(store, two, *training((1, 5.0), group="validation"))
        assert best(store, one) == (5.0, two.trial_id)
        report(store, restart(store, two), *training((1, 0.5), group="validation"))
        assert best(store, one) == (1.0, one.trial_id)

    def test_without_a_metric_to_search_for(self, store: Store) -> None:
        """4.13: a plain run has summaries and no best."""
        one = start(store, metric=None)
        report(store, one, *training((1, 1.0), group="validation"))
        assert trial(store, one).best_validation_id is None


class TestReading:
    def test_rows_come_in_order_of_steps(self, store: Store) -> None:
        """P-88: whatever order they were reported in, without archived ones."""
        one = start(store)
        for steps in (5, 1, 9, 3):
            report(store, one, *training((steps, float(steps)), group="validation"))
        report(store, restart(store, one), *training((9, 0.0), group="validation"))
        assert [steps for steps, _ in visible(store, one, "validation")] == [1, 3, 5, 9]
        with store.read() as conn:
            some = metric_reports.rows(conn, [one.trial_id], first=2, last=5)
            assert [(row.steps, row.group, row.attempt) for row in some] == [(3, "validation", 1), (5, "validation", 1)]

    def test_samples_move_with_their_run(self, store: Store) -> None:
        """5.1: a run that turns out to continue another trial takes its samples along, in its summary too."""
        one = start(store)
        report(store, one, MetricReport("cpu", {"load": 1.0}))
        other = start(store)
        report(store, other, MetricReport("cpu", {"load": 3.0}))
        two = restart(store, one)
        with store.write() as conn:
            metric_reports.move_samples(conn, other.trial_id, two)
        assert len(visible(store, one, "cpu")) == 2
        assert trial(store, one).summary_metrics["cpu"]["load"]["mean"] == 2.0


def step_of(store: Store, row_id: int | None) -> int | None:
    with store.read() as conn:
        return conn.scalar(sa.select(schema.metrics.c.steps).where(schema.metrics.c.id == row_id))


def best(store: Store, attempt: Attempt) -> tuple[float | None, int | None]:
    with store.read() as conn:
        row = experiments.get(conn, attempt.experiment_id)
        return metric_reports.best_validation(conn, attempt.experiment_id), row.best_trial_id
