"""Curves as they are read: envelopes are those of the points, at any width and anywhere."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from determined.store import attempts, experiments, trials
from determined.store.attempts import Attempt
from determined.store.database.connection import Store
from determined.store.messages import MetricReport
from determined.store.metrics import curves, metric_reports, rollups


def start(store: Store) -> Attempt:
    with store.write() as conn:
        experiment = experiments.create(conn, name="e", config={}, owner="ada")
        return attempts.begin(conn, trials.create(conn, experiment, hparams={}))


def fill(store: Store, points: list[tuple[int, float]], at_once: int) -> Attempt:
    attempt = start(store)
    for first in range(0, len(points), at_once):
        with store.write() as conn:
            reports = [MetricReport("training", {"loss": v, "odd": "x"}, s) for s, v in points[first : first + at_once]]
            metric_reports.append(conn, attempt, reports)
    return attempt


def wobble(count: int, seed: int = 0) -> list[tuple[int, float]]:
    """A curve with gaps of all sizes, and a few values that are no numbers."""
    noise = random.Random(seed)
    steps, points = 0, []
    for _ in range(count):
        steps += 1 + int(noise.expovariate(0.5)) ** 3
        points.append((steps, noise.choice([noise.random(), noise.random(), 5.0, math.nan, -math.inf])))
    return points


def check(found: curves.Envelope, points: list[tuple[int, float]], first: int, last: int, buckets: int) -> None:
    """Each bucket is exactly what its points say; together they cover the range."""
    assert len(found) <= buckets
    wanted = [point for point in points if first <= point[0] <= last]
    assert len(found) >= min(len(wanted), max(1, buckets // 4 - 2))
    assert sum(found.count) + sum(found.odd) >= len(wanted)
    assert found.steps == sorted(found.steps)
    assert all(map(int.__le__, found.steps, found.ends))
    assert all(end < begin for end, begin in zip(found.ends, found.steps[1:], strict=False))
    assert all(begin <= last and end >= first for begin, end in zip(found.steps, found.ends, strict=True))
    covered = 0
    for place in range(len(found)):
        inside = [value for steps, value in points if found.steps[place] <= steps <= found.ends[place]]
        covered += sum(
            first <= steps <= last and found.steps[place] <= steps <= found.ends[place] for steps, _ in points
        )
        cell = rollups.Cell.of([(0, value, 1) for value in inside])
        assert (found.count[place], found.odd[place]) == (cell.count, cell.odd)
        assert (found.min[place], found.max[place]) == (cell.min, cell.max)
        assert found.mean[place] == pytest.approx(cell.mean)
    assert covered == len(wanted)


@pytest.fixture(scope="module")
def long_curve() -> list[tuple[int, float]]:
    return wobble(3000)


class TestEnvelope:
    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(count=st.integers(0, 400), at_once=st.sampled_from([1, 7, 50, 1000]), data=st.data())
    def test_equals_the_points_anywhere(self, store: Store, count: int, at_once: int, data: st.DataObject) -> None:
        """Issue 6: any range, any number of buckets, however the points came in."""
        points = wobble(count, seed=count)
        at_once = max(at_once, count // 20)
        attempt = fill(store, points, at_once)
        top = points[-1][0] + 3 if points else 3
        with store.read() as conn:
            for _ in range(6):
                first = data.draw(st.integers(0, top))
                last = data.draw(st.integers(first, top))
                buckets = data.draw(st.integers(1, 60))
                found = curves.envelope(
                    conn, attempt.trial_id, "training", "loss", first=first, last=last, buckets=buckets
                )
                check(found, points, first, last, buckets)

    def test_a_long_curve(self, sqlite_store: Store, long_curve: list[tuple[int, float]]) -> None:
        """Issue 6: several levels of roll-ups, at all depths of zoom."""
        attempt = fill(sqlite_store, long_curve, 333)
        end = long_curve[-1][0]
        with sqlite_store.read() as conn:
            for part in (1, 2, 5, 20, 100):
                first, last = end // 2 - end // (2 * part), end // 2 + end // (2 * part)
                found = curves.envelope(conn, attempt.trial_id, "training", "loss", first=first, last=last, buckets=40)
                check(found, long_curve, first, last, 40)
            whole = curves.envelope(conn, attempt.trial_id, "training", "loss", buckets=10)
            check(whole, long_curve, 0, end, 10)
            assert (whole.steps[0], whole.ends[-1]) == (long_curve[0][0], end)

    def test_what_is_not_there_is_empty(self, store: Store) -> None:
        """5.3: no such trial, group, metric, or range: nothing, and no error."""
        attempt = fill(store, [(1, 1.0), (2, 2.0)], 10)
        with store.read() as conn:
            for key in ((99, "training", "loss"), (attempt.trial_id, "x", "loss"), (attempt.trial_id, "training", "y")):
                assert len(curves.envelope(conn, *key)) == 0
            assert len(curves.envelope(conn, attempt.trial_id, "training", "odd")) == 0
            assert len(curves.envelope(conn, attempt.trial_id, "training", "loss", first=5)) == 0

    def test_after_a_resume(self, store: Store) -> None:
        """P-56: the curve of a resumed run has the new values, in its roll-ups too."""
        points = [(steps, float(steps)) for steps in range(0, 2000, 10)]
        attempt = fill(store, points, 100)
        with store.write() as conn:
            again = attempts.begin(conn, attempt.trial_id)
            metric_reports.append(
                conn, again, [MetricReport("training", {"loss": -1.0}, steps) for steps in (1005, 1015)]
            )
        kept = [point for point in points if point[0] < 1005] + [(1005, -1.0), (1015, -1.0)]
        with store.read() as conn:
            for buckets in (4, 1000):
                found = curves.envelope(conn, attempt.trial_id, "training", "loss", buckets=buckets)
                check(found, kept, 0, 2000, buckets)


def test_exact_points(store: Store) -> None:
    """Issue 6: a zoomed range as it was reported, NaN included; at most `limit` points."""
    attempt = fill(store, [(steps, math.nan if steps == 5 else float(steps)) for steps in range(10)], 3)
    with store.read() as conn:
        found = curves.points(conn, attempt.trial_id, "training", "loss", first=4, last=7)
        assert found.steps == [4, 5, 6, 7]
        assert math.isnan(found.value[1])
        assert found.value[2:] == [6.0, 7.0]
        assert all(time.tzinfo is not None for time in found.time)
        assert curves.points(conn, attempt.trial_id, "training", "loss", limit=3).steps == [0, 1, 2]


def test_a_chart_of_many_trials(sqlite_store: Store) -> None:
    """P-96: at most 200 points per series (the time it takes is in bench/store.py)."""
    with sqlite_store.write() as conn:
        experiment = experiments.create(conn, name="e", config={}, owner="ada")
        runs = [attempts.begin(conn, trials.create(conn, experiment, hparams={})) for _ in range(5)]
        for attempt in runs[:-1]:
            metric_reports.append(conn, attempt, [MetricReport("training", {"loss": float(n)}, n) for n in range(1000)])
    with sqlite_store.read() as conn:
        found = curves.chart(conn, [attempt.trial_id for attempt in runs], "training", "loss")
    assert sorted(found) == sorted(attempt.trial_id for attempt in runs[:-1])
    assert all(50 <= len(curve) <= 200 for curve in found.values())


def test_learning_curves_of_many_trials(store: Store) -> None:
    """5.3: a metric of many trials over steps, epochs and time; short curves exactly, long ones in buckets."""
    with store.write() as conn:
        experiment = experiments.create(conn, name="e", config={}, owner="ada")
        runs = [attempts.begin(conn, trials.create(conn, experiment, hparams={})) for _ in range(4)]
        short = [MetricReport("validation", {"loss": 1 / n, "epochs": n / 2}, n) for n in (1, 2, 4)]
        odd = [MetricReport("validation", {"loss": v}, n) for n, v in ((1, 1.0), (2, math.nan), (3, "x"), (4, 0.5))]
        long = [MetricReport("validation", {"loss": float(n), "epochs": float(n)}, n) for n in range(1, 1001)]
        for attempt, reports in zip(runs, (short, odd, long, []), strict=True):
            metric_reports.append(conn, attempt, reports)
    ids = [attempt.trial_id for attempt in runs]
    with store.read() as conn:
        found = curves.learning_curves(conn, ids, "validation", "loss", buckets=50)
    assert list(found) == ids[:3]
    assert (found[ids[0]].steps, found[ids[0]].epochs) == ([1, 2, 4], [0.5, 1.0, 2.0])
    assert found[ids[0]].value == [1.0, 0.5, 0.25]
    assert found[ids[0]].time == [report.time for report in short]
    assert found[ids[1]].steps == [1, 2, 4]
    assert math.isnan(found[ids[1]].value[1])
    assert found[ids[1]].epochs == [None, None, None]
    rough = found[ids[2]]
    assert 12 <= len(rough) <= 50
    assert rough.steps[-1] == 1000
    assert rough.epochs == [float(step) for step in rough.steps]
    assert all(value <= step for value, step in zip(rough.value, rough.steps, strict=True))


class TestWindows:
    """Reports say how many batches they are averages of; pictures and summaries weigh them by it."""

    @staticmethod
    def fill(store: Store, windows: list[int], value: float = 1.0, rest: float = 9.0) -> Attempt:
        """Averages over windows of batches: `value`, and for windows of fewer than 50 batches `rest`."""
        attempt, steps, reports = start(store), 0, []
        for window in windows:
            steps += window
            loss = value if window >= 50 else rest
            reports.append(MetricReport("training", {"loss": loss}, steps, window=window))
        with store.write() as conn:
            metric_reports.append(conn, attempt, reports)
        return attempt

    def test_the_rest_of_an_epoch_makes_no_jump(self, store: Store) -> None:
        """Windows of 100 batches and of 5, the rest of an epoch: a picture shows no point that averages only 5."""
        attempt = self.fill(store, [100, 100, 5, 95, 100, 10])
        with store.read() as conn:
            curve = curves.envelope(conn, attempt.trial_id, "training", "loss")
        assert curve.steps == [100, 200, 300, 410]
        assert curve.mean == pytest.approx([1.0, 1.0, (5 * 9 + 95) / 100, (100 + 10 * 9) / 110])
        assert curve.min == curve.max == curve.mean
        assert curve.count == [1, 1, 1, 1]

    def test_points_stay_as_they_were_reported(self, store: Store) -> None:
        """Exact points are those that were reported, each with its window."""
        attempt = self.fill(store, [100, 5])
        with store.read() as conn:
            found = curves.points(conn, attempt.trial_id, "training", "loss")
        assert (found.steps, found.value, found.window) == ([100, 105], [1.0, 9.0], [100, 5])

    def test_a_summary_weighs_by_batches(self, store: Store) -> None:
        """The mean of a summary is that of all batches; count, sum and extremes are of the reports."""
        attempt = self.fill(store, [100, 5])
        with store.read() as conn:
            entry = trials.get(conn, attempt.trial_id).summary_metrics["avg_metrics"]["loss"]
        assert entry["mean"] == pytest.approx((100 + 5 * 9) / 105)
        assert (entry["count"], entry["sum"], entry["min"], entry["max"]) == (2, 10.0, 1.0, 9.0)

    def test_rolled_up_buckets_weigh_by_batches(self, store: Store) -> None:
        """Where a bucket holds many reports its mean is that of their batches, also after the cells were stored."""
        attempt = self.fill(store, [95, 5] * 200)
        with store.read() as conn:
            curve = curves.envelope(conn, attempt.trial_id, "training", "loss", buckets=4)
        assert curve.mean == pytest.approx([(95 + 5 * 9) / 100] * len(curve), rel=0.05)

    def test_a_change_of_the_period_is_no_rest(self, store: Store) -> None:
        """Many small windows after a few large ones are points of their own, not the rest of a large one."""
        attempt = self.fill(store, [1000, 1000, *[60] * 20])
        with store.read() as conn:
            curve = curves.envelope(conn, attempt.trial_id, "training", "loss")
        assert len(curve) == 22

    def test_a_nan_is_not_joined(self, store: Store) -> None:
        """A short window that is no number stays visible as such."""
        attempt = self.fill(store, [100, 5, 95], rest=math.nan)
        with store.read() as conn:
            curve = curves.envelope(conn, attempt.trial_id, "training", "loss")
        assert (curve.steps, curve.odd) == ([100, 105, 200], [0, 1, 0])


def test_a_learning_curve_has_no_more_points_than_asked_for(store: Store) -> None:
    """P-96: a curve that is short enough to be read exactly is thinned as well: means, at the end of each bucket."""
    with store.write() as conn:
        experiment = experiments.create(conn, name="e", config={}, owner="ada")
        attempt = attempts.begin(conn, trials.create(conn, experiment, hparams={}))
        values = [1.0, 3.0, 5.0, math.nan, math.nan, math.inf, 2.0]
        reports = [MetricReport("validation", {"loss": value}, 10 * n) for n, value in enumerate(values, 1)]
        metric_reports.append(conn, attempt, reports)
        found = curves.learning_curves(conn, [attempt.trial_id], "validation", "loss", buckets=3)[attempt.trial_id]
        whole = curves.learning_curves(conn, [attempt.trial_id], "validation", "loss", buckets=7)[attempt.trial_id]
    assert (found.steps, found.points) == ([20, 40, 70], 7)
    assert found.value == [2.0, 5.0, 2.0]
    assert found.time == [reports[i].time for i in (1, 3, 6)]
    assert len(whole) == 7


def test_values_near_a_step(store: Store) -> None:
    """8.2: of each trial the nearest report within reach counts, the later one of two; archived ones do not."""
    with store.write() as conn:
        experiment = experiments.create(conn, name="e", config={}, owner="ada")
        reported = ({90: 1.0, 110: 2.0}, {80: 3.0, 95: 4.0}, {89: 5.0}, {100: math.nan}, {100: "x"}, {})
        for values in reported:
            attempt = attempts.begin(conn, trials.create(conn, experiment, hparams={}))
            metric_reports.append(
                conn, attempt, [MetricReport("validation", {"loss": v}, n) for n, v in values.items()]
            )
        again = attempts.begin(conn, 2)
        metric_reports.append(conn, again, [MetricReport("validation", {"loss": 6.0}, 90)])
    with store.read() as conn:
        found = curves.values_near(conn, experiment, "validation", "loss", 100, reach=10)
    assert {trial: value for trial, value in found.items() if not math.isnan(value)} == {1: 2.0, 2: 6.0}
    assert math.isnan(found[4])
