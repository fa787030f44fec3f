"""What charts and tables of a trial read: curves over steps, epochs and time, samples, and steps in pages."""

from __future__ import annotations

import datetime
import math

import pytest
import sqlalchemy as sa

from determined.store import schema, values
from determined.store.attempts import Attempt
from determined.store.database.connection import Store
from determined.store.messages import MetricReport
from determined.store.metrics import curves, drawn, metric_reports, sampled, steps
from determined.store.metrics.drawn import Range
from tests.unit.store.rooms import START, add_run, save


def seconds(number: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=number)


def fill(
    store: Store, values: dict[int, float], *, group: str = "training", pause: int = 10**9, **fields: float
) -> Attempt:
    """A report per second; after the step `pause` an hour passes."""
    with store.write() as conn:
        attempt = add_run(conn)
        late = {step: 3600.0 if step > pause else 0.0 for step in values}
        reports = [
            MetricReport(group, {"loss": value, "epochs": step / 10, **fields}, step, time=seconds(step + late[step]))
            for step, value in values.items()
        ]
        metric_reports.append(conn, attempt, reports)
    return attempt


class TestDraw:
    def test_a_short_curve_is_its_points(self, store: Store) -> None:
        """Few points have a bucket each, with epochs and seconds since the trial began."""
        attempt = fill(store, {1: 0.5, 2: math.nan, 3: 0.25})
        with store.read() as conn:
            (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")])
        assert found.envelope.ends == [1, 2, 3]
        assert found.envelope.mean == [0.5, None, 0.25]
        assert found.epochs == [0.1, 0.2, 0.3]
        assert found.seconds == [1.0, 2.0, 3.0]
        assert [steps for steps, value in found.odd if math.isnan(value)] == [2]
        assert (found.points, found.total) == (3, 3)

    def test_a_long_curve_has_the_times_of_its_reports(self, store: Store) -> None:
        """Epochs and seconds of a long curve are those of the reports where buckets end, after a pause too."""
        attempt = fill(store, {step: 1 / step for step in range(1, 3001)}, pause=1717)
        with store.read() as conn:
            (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")], Range(buckets=100))
        ends = found.envelope.ends
        assert 40 <= len(ends) <= 100
        assert found.seconds == [float(end + (3600 if end > 1717 else 0)) for end in ends]
        assert found.epochs == pytest.approx([end / 10 for end in ends])
        assert (found.points, found.total) == (3000, 3000)

    def test_points_that_are_no_numbers_are_found_in_a_long_curve(self, store: Store) -> None:
        """8.2: NaN and infinite points of a long curve are listed with their steps, up to the last one."""
        values = dict.fromkeys(range(1, 3001), 1.0) | {500: math.nan, 501: math.inf, 2999: -math.inf}
        attempt = fill(store, values)
        with store.read() as conn:
            (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")], Range(buckets=100))
        assert [steps for steps, _ in found.odd] == [500, 501, 2999]
        assert math.isnan(found.odd[0][1])
        assert found.odd[1:] == [(501, math.inf), (2999, -math.inf)]

    def test_of_many_odd_points_the_first_are_listed(self, store: Store) -> None:
        """A curve that is NaN for good lists a hundred of them."""
        attempt = fill(store, {step: 1.0 if step < 1000 else math.nan for step in range(1, 3001)})
        with store.read() as conn:
            (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")], Range(buckets=100))
        assert [steps for steps, _ in found.odd] == list(range(1000, 1100))

    def test_zooming_reads_the_same_as_the_envelope(self, store: Store) -> None:
        """Any range is what `envelope` says of it."""
        attempt = fill(store, {step: math.sin(step) for step in range(1, 3001)})
        with store.read() as conn:
            for first, last, buckets in ((None, None, 100), (100, 2900, 50), (100, 200, 1000), (2990, None, 10)):
                asked = Range(first, last, buckets)
                (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")], asked)
                wanted = curves.envelope(
                    conn, attempt.trial_id, "training", "loss", first=first, last=last, buckets=buckets
                )
                assert found.envelope == wanted

    def test_many_trials_share_what_one_answer_holds(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Curves come by metric, then in the order of the trials that were asked for; those not there are left out."""
        monkeypatch.setattr(drawn, "MOST_BUCKETS", 250)
        ids = [fill(store, dict.fromkeys(range(1, 500), 1.0)).trial_id for _ in range(3)]
        with store.read() as conn:
            wanted = [("training", "loss"), ("training", "none")]
            found = drawn.draw(conn, [*reversed(ids), 99], wanted, Range(buckets=1000))
        assert [each.trial_id for each in found] == ids[::-1]
        assert all(len(each.envelope) <= 100 for each in found)

    def test_a_report_without_epochs_has_none(self, store: Store) -> None:
        """Where a group counts no epochs there are none, and no report has to be parsed for them."""
        with store.write() as conn:
            attempt = add_run(conn)
            reports = [MetricReport("validation", {"loss": 1.0}, step, time=seconds(step)) for step in range(1, 100)]
            metric_reports.append(conn, attempt, reports)
        with store.read() as conn:
            (found,) = drawn.draw(conn, [attempt.trial_id], [("validation", "loss")], Range(buckets=4))
        assert set(found.epochs) == {None}
        assert found.seconds == [float(end) for end in found.envelope.ends]


class TestPlaces:
    """Epochs and seconds where the buckets of a long curve end."""

    def test_no_report_is_read(self, store: Store) -> None:
        """Roll-ups say them: a thousand reports that lie all over a file take longest of all that a picture needs."""
        attempt = fill(store, dict.fromkeys(range(1, 401), 1.0))
        asked: list[str] = []
        with store.read() as conn:
            sa.event.listen(conn, "before_cursor_execute", lambda *event: asked.append(event[2]))
            (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")], Range(buckets=20))
        assert asked
        assert not any("FROM metrics" in statement for statement in asked)
        assert found.seconds == [float(end) for end in found.envelope.ends]
        assert found.epochs == [end / 10 for end in found.envelope.ends]

    def test_curves_of_older_stores_have_them(self, store: Store) -> None:
        """Roll-ups of before say nothing of time, in full cells nor in those that are not: their reports are read."""
        attempt = fill(store, dict.fromkeys(range(1, 401), 1.0), pause=201)
        with store.write() as conn:
            conn.execute(schema.metric_cells.update().values(time=None, epochs=None))
            ident, text = conn.execute(sa.select(schema.metric_series.c.id, schema.metric_series.c.rollup)).first()  # type: ignore[misc]
            points, *cells = values.load(text)
            old = values.dump([points, *(cell and cell[:-2] for cell in cells)])
            conn.execute(schema.metric_series.update().where(schema.metric_series.c.id == ident).values(rollup=old))
        self.check(store, attempt, last=400)
        with store.write() as conn:  # such a run goes on, and its open cells are filled
            more = [
                MetricReport("training", {"loss": 1.0, "epochs": step / 10}, step, time=seconds(step + 3600))
                for step in range(401, 501)
            ]
            metric_reports.append(conn, attempt, more)
        self.check(store, attempt, last=500)

    def check(self, store: Store, attempt: Attempt, last: int) -> None:
        with store.read() as conn:
            (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")], Range(buckets=20))
        assert found.envelope.ends[-1] == last
        assert found.seconds == [float(end + (3600 if end > 201 else 0)) for end in found.envelope.ends]
        assert found.epochs == [end / 10 for end in found.envelope.ends]

    def test_epochs_may_be_reported_later(self, store: Store) -> None:
        """A step whose epochs come in a report of their own has them, too."""
        with store.write() as conn:
            attempt = add_run(conn)
            steps = range(1, 401)
            for name, share in (("loss", 1.0), ("epochs", 0.1)):
                reports = [MetricReport("training", {name: share * step}, step, time=seconds(step)) for step in steps]
                metric_reports.append(conn, attempt, reports)
        with store.read() as conn:
            (found,) = drawn.draw(conn, [attempt.trial_id], [("training", "loss")], Range(buckets=20))
        assert found.epochs == pytest.approx([end / 10 for end in found.envelope.ends])
        assert found.seconds == [float(end) for end in found.envelope.ends]


class TestSamples:
    @pytest.fixture
    def attempt(self, store: Store) -> Attempt:
        """Two nodes are sampled each second, in turns."""
        with store.write() as conn:
            attempt = add_run(conn)
            reports = [
                MetricReport(
                    "cpu", {f"node-{n}.local": {"util": float(second), "/": {"used": 0.5}}}, time=seconds(second)
                )
                for second in range(10)
                for n in (1, 2)
            ]
            metric_reports.append(conn, attempt, [*reports, MetricReport("own", {"odd": math.inf}, time=seconds(3))])
        return attempt

    def test_have_names_of_their_own(self, store: Store, attempt: Attempt) -> None:
        """8.2: each number in a nested sample is a curve: node, then what was sampled."""
        with store.read() as conn:
            found = sampled.names(conn, [attempt.trial_id])
        assert [(each.group, each.name, each.samples) for each in found] == [
            ("cpu", "node-1.local.util", 20),
            ("cpu", "node-1.local./.used", 20),
            ("cpu", "node-2.local.util", 20),
            ("cpu", "node-2.local./.used", 20),
            ("own", "odd", 1),
        ]

    def test_are_curves_over_time(self, store: Store, attempt: Attempt) -> None:
        """Samples are drawn over the time since the trial began, and any part of it."""
        with store.read() as conn:
            series = {each.name: each for each in sampled.names(conn, [attempt.trial_id], ["cpu"])}
            (found,) = sampled.draw(conn, [series["node-2.local.util"]], first=2, last=5)
            (few,) = sampled.draw(conn, [series["node-1.local.util"]], buckets=2)
        assert found.envelope.ends == [2000, 3000, 4000, 5000]
        assert found.envelope.mean == [2.0, 3.0, 4.0, 5.0]
        assert (few.envelope.min, few.envelope.max, few.points) == ([0.0, 5.0], [4.0, 9.0], 10)

    def test_of_very_many_some_are_read(self, store: Store, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long a profiler ran, the number of samples that are read is bounded."""
        monkeypatch.setattr(sampled, "MOST_SAMPLES", 5)
        with store.read() as conn:
            found = sampled.draw(conn, sampled.names(conn, [attempt.trial_id], ["cpu"]))
        assert 0 < sum(each.points for each in found if each.series.name.endswith("util")) <= 6


class TestSteps:
    def test_pages_merge_groups_and_checkpoints(self, store: Store) -> None:
        """A step has what all groups reported there, and its checkpoint; the last step comes first."""
        with store.write() as conn:
            attempt = add_run(conn)
            for step in range(10, 60, 10):
                metric_reports.append(conn, attempt, [MetricReport("training", {"loss": step / 1}, step)])
            metric_reports.append(conn, attempt, [MetricReport("validation", {"loss": 0.5}, step) for step in (20, 45)])
            save(conn, attempt, "a", 20)
            save(conn, attempt, "b", 55)
            save(conn, attempt, "c", 55)
        with store.read() as conn:
            found, total = steps.page(conn, attempt.trial_id)
            assert [row.steps for row in found] == [55, 50, 45, 40, 30, 20, 10]
            assert total == 7
            assert found[5].values == {"training": {"loss": 20.0}, "validation": {"loss": 0.5}}
            assert (found[5].checkpoint_uuid, found[5].has_validation, found[5].attempt) == ("a", True, 1)
            rest, _ = steps.page(conn, attempt.trial_id, limit=2, offset=2)
            assert [row.steps for row in rest] == [45, 40]
            for which, wanted in (("validation", [45, 20]), ("checkpoint", [55, 20])):
                found, total = steps.page(conn, attempt.trial_id, which)
                assert ([row.steps for row in found], total) == (wanted, 2)

    def test_a_trial_without_reports_has_none(self, store: Store) -> None:
        """A trial that only begins has no steps."""
        with store.write() as conn:
            attempt = add_run(conn)
        with store.read() as conn:
            assert [steps.page(conn, attempt.trial_id, which) for which in steps.WHICH] == [([], 0)] * 3
