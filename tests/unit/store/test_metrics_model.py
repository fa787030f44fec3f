"""Any history of attempts, resumes and merges leaves what a simple model says."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from determined import errors
from determined.store import attempts, experiments, trials
from determined.store.database.connection import Store
from determined.store.messages import MetricReport
from determined.store.metrics import curves, metric_reports, rollups
from determined.store.schema import metric_cells, metric_series
from determined.store.schema import metrics as metrics_table
from tests.unit.store.metric_model import Model, same

GROUPS = ("training", "validation", "extra")
NUMBERS = st.one_of(st.integers(-8, 8).map(float), st.integers(-8, 8), st.sampled_from([math.nan, math.inf, -math.inf]))
OTHERS = st.sampled_from(["text", True, [1, "NaN"], {"a": math.nan}, "2025-01-31"])


@st.composite
def reports(draw: st.DrawFn) -> tuple[str, int | None, dict[str, Any]]:
    group = draw(st.sampled_from(GROUPS))
    steps = draw(st.one_of(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.none()))
    metrics = {"loss": draw(NUMBERS)} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        metrics["x"] = draw(st.one_of(NUMBERS, NUMBERS, OTHERS))
    return group, steps, metrics


# A history: attempts, each of them batches of reports.
histories = st.lists(st.lists(st.lists(reports(), max_size=8), max_size=3), min_size=1, max_size=3)
example_settings = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def narrow_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dozen points have roll-ups of several levels."""
    monkeypatch.setattr(rollups, "WIDTH", 2)
    monkeypatch.setattr(rollups, "FAN", 2)


def make_trial(conn: sa.Connection, smaller: bool = True) -> int:
    experiment = experiments.create(
        conn,
        name="e",
        config={},
        owner="ada",
        state="RUNNING",
        searcher_metric="loss",
        smaller_is_better=smaller,
        unmanaged=True,
    )
    return trials.create(conn, experiment, hparams={})


def play(
    conn: sa.Connection, history: list[list[list[tuple[str, int | None, dict[str, Any]]]]], smaller: bool
) -> Model:
    """The same history in the store and in a model; reports that contradict earlier ones are left out."""
    trial_id = make_trial(conn, smaller)
    model = Model()
    model.trial_id = trial_id  # type: ignore[attr-defined]
    for batches in history:
        attempt = attempts.begin(conn, trial_id)
        model.begin()
        for batch in batches:
            batch = [report for report in batch if model.report(*report)]
            metric_reports.append(conn, attempt, [MetricReport(g, dict(body), steps) for g, steps, body in batch])
    return model


@example_settings
@given(histories, st.booleans())
@example([[[("training", 1, {"loss": 1.0})]], [[("training", 1, {"loss": 2.0})]]], True)
@example([[[("training", 0, {"x": "text"})]], [[("training", 0, {"x": 0.0})]]], True)
@example(
    [
        [[("training", step, {"x": 0.0}) for step in (0, 2, 3)]],
        [[("training", 3, {}), ("training", 1, {"x": 0.0})]],
    ],
    True,
)
def test_any_history_is_what_the_model_says(
    store: Store, history: list[list[list[tuple[str, int | None, dict[str, Any]]]]], smaller: bool
) -> None:
    """P-56, P-57, P-71, P-74, P-75: rows, summaries, best and latest, whatever attempts report and repeat."""
    with rolled_back(store) as conn:
        model = play(conn, history, smaller)
        check_rows(conn, model)
        check_trial(conn, model, smaller)
        check_curves(conn, model)


def test_a_curve_may_be_cut_anywhere(sqlite_store: Store) -> None:
    """P-56: a resume or a late report at any step of a curve with several levels of roll-ups."""
    name = "loss"
    points = [("training", 2 * step, {name: float(step)}) for step in range(20)]
    for cut in range(41):
        with rolled_back(sqlite_store) as conn:  # a newer attempt
            model = play(conn, [[points[:7], points[7:]], [[("training", cut, {name: -1.0})]]], True)
            check_trial(conn, model, True)
            check_curves(conn, model)
        with rolled_back(sqlite_store) as conn:  # the same attempt, if the step is free
            model = play(conn, [[points, [("training", cut, {name: -1.0, "late": 1})]]], True)
            check_trial(conn, model, True)
            check_curves(conn, model)


@settings(example_settings, max_examples=10)
@given(histories)
def test_counting_again_changes_nothing(
    store: Store, history: list[list[list[tuple[str, int | None, dict[str, Any]]]]]
) -> None:
    """4.10: what is kept at write time is what the rows say."""
    with rolled_back(store) as conn:
        model = play(conn, history, True)
        before = trials.get(conn, model.trial_id)  # type: ignore[attr-defined]
        metric_reports.recount(conn, before.id)
        assert repr(trials.get(conn, before.id)).count("nan") == repr(before).count("nan")
        check_rows(conn, model)
        check_trial(conn, model, True)
        check_curves(conn, model)


@contextlib.contextmanager
def rolled_back(store: Store) -> Any:
    """A transaction that leaves nothing for the next example."""
    with contextlib.suppress(_Done), store.write() as conn:
        yield conn
        raise _Done


class _Done(errors.DeterminedError):
    pass


def check_rows(conn: sa.Connection, model: Model) -> None:
    trial_id = model.trial_id  # type: ignore[attr-defined]
    for group in GROUPS:
        stored = list(metric_reports.rows(conn, trial_id, group))
        expected = model.visible(group)
        assert [row.steps for row in stored] == [row["steps"] for row in expected]
        assert all(equal(row.metrics, wanted["body"]) for row, wanted in zip(stored, expected, strict=True))
        assert [row.attempt for row in stored] == [row["attempt"] for row in expected]
        steps = [row.steps for row in stored if row.steps is not None]
        assert len(set(steps)) == len(steps)
    everything = conn.scalar(sa.select(sa.func.count()).where(metrics_table.c.trial_id == trial_id))
    assert everything == len(model.rows)  # archived ones are kept


def check_trial(conn: sa.Connection, model: Model, smaller: bool) -> None:
    row = trials.get(conn, model.trial_id)  # type: ignore[attr-defined]
    assert equal(row.summary_metrics, model.summary())
    assert row.total_batches == model.total_batches()
    found = model.validations("loss")
    comparable = [(value if smaller else -value, steps) for steps, value in found if not math.isnan(value)]
    best_steps = min(comparable)[1] if comparable else None
    assert steps_of(conn, row.best_validation_id) == best_steps
    assert row.searcher_metric_value == dict(found).get(best_steps)  # type: ignore[arg-type]
    assert steps_of(conn, row.latest_validation_id) == (found[-1][0] if found else None)
    assert metric_reports.best_validation(conn, row.experiment_id) == row.searcher_metric_value
    assert experiments.get(conn, row.experiment_id).best_trial_id == (row.id if comparable else None)


def check_curves(conn: sa.Connection, model: Model) -> None:
    trial_id = model.trial_id  # type: ignore[attr-defined]
    names = {
        group: sorted({name for row in model.visible(group) for name in row["body"]})
        for group in sorted(model.groups())
    }
    assert metric_reports.names(conn, trial_ids=[trial_id]) == {group: found for group, found in names.items() if found}
    for group in GROUPS:
        for name in ("loss", "x"):
            points = [(s, rollups.real(v)) for s, v in model.series(group, name) if s is not None]
            numbers = [(steps, value) for steps, value in points if value is not None]
            exact = curves.points(conn, trial_id, group, name)
            assert equal(list(zip(exact.steps, exact.value, strict=True)), numbers)
            check_cells(conn, trial_id, group, name, numbers, [(time.timestamp(), None) for time in exact.time])


def check_cells(
    conn: sa.Connection,
    trial_id: int,
    group: str,
    name: str,
    numbers: list[tuple[int, float]],
    when: list[rollups.When],
) -> None:
    """The roll-ups are those of the points, as if they had come in order and at once."""
    series = conn.execute(
        sa.select(metric_series).where(
            metric_series.c.trial_id == trial_id, metric_series.c.metric_group == group, metric_series.c.name == name
        )
    ).first()
    if series is None:
        assert numbers == []
        return
    wanted = rollups.Rollup()
    full = wanted.extend([(steps, value, 1) for steps, value in numbers], when)
    stored = conn.execute(sa.select(metric_cells).where(metric_cells.c.series_id == series.id)).all()
    assert sorted((row.level, row.cell) for row in stored) == sorted((level, place) for level, place, _ in full)
    kept = {(row.level, row.cell): rollups.Cell(*row[3:]) for row in stored}
    assert all(kept[level, place] == cell for level, place, cell in full)
    rollup = rollups.Rollup.load(series.rollup)
    assert (rollup.points, series.points) == (len(numbers), len(numbers))
    assert list(rollup.tail(20)) == list(wanted.tail(20))


def steps_of(conn: sa.Connection, row_id: int | None) -> int | None:
    return conn.scalar(sa.select(metrics_table.c.steps).where(metrics_table.c.id == row_id))


def equal(one: Any, other: Any) -> bool:
    """Deep equality, where NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return same(one, other)
