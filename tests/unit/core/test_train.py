"""TrainContext: what is reported arrives, what cannot be reported is refused at the call."""

from __future__ import annotations

import array
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from determined import errors
from determined.core import EarlyExitReason, TensorboardMode, TrainContext
from determined.core.recording.shipper import Shipper
from determined.core.recording.tensorboard import EventFiles
from determined.core.recording.values import BatchColumns
from determined.store.messages import EarlyExitReport, MetadataReport, MetricReport, ProgressReport, StatusReport
from tests.fakes import MemoryLink


class Reporting:
    """A train context on a link that remembers."""

    def __init__(self, **kwargs: object) -> None:
        self.link = MemoryLink()
        self.shipper = Shipper(self.link)
        self.train = TrainContext(self.shipper, self.link, **kwargs)  # type: ignore[arg-type]

    def finish(self) -> MemoryLink:
        self.shipper.close()
        return self.link


def test_five_reports_arrive_in_order() -> None:
    """C-46: five reports are five messages in order with the right group, step and metrics."""
    case = Reporting()
    case.train.report_training_metrics(1, {"loss": torch.tensor(0.5)}, [{"loss": 0.25}, {"loss": 0.75}])
    case.train.report_validation_metrics(1, {"accuracy": 0.9})
    case.train.report_metrics("inference", 2, {"speed": 3})
    case.train.report_training_metrics(2, {"loss": 0.4})
    case.train.report_validation_metrics(2, {"accuracy": 0.95})
    got = [(r.group, r.steps_completed, r.metrics) for r in case.finish().of(MetricReport)]
    assert got == [
        ("training", 1, {"loss": 0.5}),
        ("validation", 1, {"accuracy": 0.9}),
        ("inference", 2, {"speed": 3}),
        ("training", 2, {"loss": 0.4}),
        ("validation", 2, {"accuracy": 0.95}),
    ]
    assert case.link.of(MetricReport)[0].batch_metrics == [{"loss": 0.25}, {"loss": 0.75}]


def test_a_report_carries_its_window() -> None:
    """Training metrics say how many batches they are averages of; what cannot be a number of batches is refused."""
    case = Reporting()
    case.train.report_training_metrics(105, {"loss": 0.5}, window=5)
    case.train.report_training_metrics(200, {"loss": 0.5})
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match=f"window is {wrong!r}"):
            case.train.report_training_metrics(300, {"loss": 0.5}, window=wrong)  # type: ignore[arg-type]
    assert [report.window for report in case.finish().of(MetricReport)] == [5, None]


def test_validation_refuses_none_and_drops_bytes(caplog: pytest.LogCaptureFixture) -> None:
    """C-48: None is a RuntimeError naming the metric; bytes are left out with a warning."""
    case = Reporting()
    with pytest.raises(RuntimeError, match="'a' is None"):
        case.train.report_validation_metrics(1, {"a": None})
    with caplog.at_level(logging.WARNING, "determined.core"):
        case.train.report_validation_metrics(1, {"a": 1, "b": b"x"})
    assert [r.metrics for r in case.finish().of(MetricReport)] == [{"a": 1}]
    assert "'b'" in caplog.text


def test_other_groups_are_not_filtered() -> None:
    """C-49: None in another group is sent as it is."""
    case = Reporting()
    case.train.report_metrics("inference", 1, {"a": None})
    assert case.finish().of(MetricReport)[0].metrics == {"a": None}


@pytest.mark.parametrize("progress", [1.01, -0.1, float("nan"), "half"])
def test_progress_is_a_fraction(progress: object) -> None:
    """C-50: progress outside [0, 1] is a ValueError that shows the value."""
    case = Reporting()
    with pytest.raises(ValueError, match="from 0 to 1"):
        case.train.report_progress(progress)  # type: ignore[arg-type]
    case.train.report_progress(1)
    case.train.report_progress(np.float32(0.5))
    assert [r.progress for r in case.finish().of(ProgressReport)] == [1.0, 0.5]


def test_best_validation_starts_unknown_and_follows_the_searcher_metric() -> None:
    """C-51: None before the first validation; then the best of this run and of what the link knows."""
    case = Reporting(searcher={"metric": "loss", "smaller_is_better": True})
    assert case.train.get_experiment_best_validation() is None
    case.train.report_validation_metrics(1, {"loss": 3.0})
    case.train.report_validation_metrics(2, {"loss": float("nan")})
    case.train.report_validation_metrics(3, {"loss": 5.0, "other": 0.0})
    assert case.train.get_experiment_best_validation() == 3.0
    case.link.best = 2.0
    assert case.train.get_experiment_best_validation() == 2.0
    case.finish()


def test_the_best_is_asked_for_when_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: what was best before a checkpoint counts this run's own validations, however late the store hears."""
    case = Reporting()
    monkeypatch.setattr(case.link, "best_before", lambda _: float(len(case.link.reports)))
    case.train.report_validation_metrics(1, {"loss": 0.5})
    assert case.train.best_before("some checkpoint") == 1.0
    case.finish()


def test_upload_is_for_manual_mode(tmp_path: Path) -> None:
    """C-52: upload_tensorboard_files() in AUTO mode is a RuntimeError that names MANUAL."""
    files = EventFiles(tmp_path, TensorboardMode.AUTO)
    train = TrainContext(event_files=files, tensorboard_mode=TensorboardMode.AUTO)
    with pytest.raises(RuntimeError, match="MANUAL"):
        train.upload_tensorboard_files()


def test_auto_mode_needs_a_place() -> None:
    """C-54: AUTO without a place for event files is a ValueError at construction."""
    with pytest.raises(ValueError, match="event_files"):
        TrainContext(tensorboard_mode=TensorboardMode.AUTO)


def test_upload_passes_selector_and_mangler(tmp_path: Path) -> None:
    """Contract 5.1: in MANUAL mode the selector chooses files and the mangler names them."""
    seen: list[object] = []
    files = EventFiles(tmp_path, TensorboardMode.MANUAL)
    train = TrainContext(event_files=files, upload_event_files=lambda *given: seen.append(given))
    keep, rename = (lambda path: True), (lambda path, rank: path)
    train.upload_tensorboard_files(keep, rename)
    assert seen == [(keep, rename)]


def test_a_second_early_exit_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Contract 5.7 Better: a second early exit warns and is not sent."""
    case = Reporting()
    case.train.report_early_exit(EarlyExitReason.INVALID_HP)
    with caplog.at_level(logging.WARNING, "determined.core"):
        case.train.report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)
    assert [r.reason for r in case.finish().of(EarlyExitReport)] == ["EXITED_REASON_INVALID_HP"]
    assert "ignored" in caplog.text


@pytest.mark.parametrize("how", ["ignore", "raise", "send"])
def test_other_ranks_do_not_duplicate_reports(how: str) -> None:
    """Contract 5.7 Better: reports of other ranks are ignored, refused or sent, as chosen."""
    case = Reporting(is_chief=False, non_chief_reports=how)
    if how == "raise":
        with pytest.raises(RuntimeError, match="chief"):
            case.train.report_training_metrics(1, {"loss": 1.0})
    else:
        case.train.report_training_metrics(1, {"loss": 1.0})
    assert len(case.finish().reports) == (1 if how == "send" else 0)


def test_the_same_checks_on_every_rank() -> None:
    """Contract 5.7 Better: a bad metric is refused wherever it is reported, also where it would be ignored."""
    case = Reporting(is_chief=False)
    with pytest.raises(TypeError, match="metric 'loss'"):
        case.train.report_training_metrics(1, {"loss": object()})
    case.finish()


@pytest.mark.parametrize("group", ["", "a.b", 5])
def test_a_group_is_a_name_without_dots(group: object) -> None:
    """Contract 5.2: a group name holds no dot."""
    with pytest.raises(ValueError, match="without dots"):
        TrainContext().report_metrics(group, 1, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("group", ["avg_metrics", "validation_metrics", "x" * 65])
def test_a_group_that_the_store_would_refuse_raises_in_the_caller(group: str) -> None:
    """The rules of a report are in one place, `store.messages`; one that breaks a rule raises where it is made."""
    with pytest.raises(errors.InvalidValue, match=r"Use 64 at most|Choose another name"):
        TrainContext().report_metrics(group, 1, {"loss": 1.0})


@pytest.mark.parametrize("steps", [1.5, "3", None])
def test_steps_are_whole_numbers(steps: object) -> None:
    """A step that is no whole number is refused with its value."""
    with pytest.raises(TypeError, match="steps_completed is"):
        TrainContext().report_training_metrics(steps, {})  # type: ignore[arg-type]


def test_steps_fit_into_64_bits() -> None:
    """What neither the store nor TensorBoard could hold is refused where it is given; the greatest that fits is not."""
    case = Reporting()
    with pytest.raises(ValueError, match=r"is 9223372036854775808; expected .* 0 to 2\*\*63 - 1"):
        case.train.report_training_metrics(2**63, {"loss": 1.0})
    case.train.report_training_metrics(2**63 - 1, {"loss": 1.0})
    assert [report.steps_completed for report in case.finish().of(MetricReport)] == [2**63 - 1]


def test_metadata_of_an_earlier_attempt_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 5.1: get_metadata() reads what the run has, also after a restart; setting replaces it."""
    case = Reporting()
    monkeypatch.setattr(case.link, "metadata", lambda: {"restarts": 1})
    assert case.train.get_metadata() == {"restarts": 1}
    assert case.train.set_metadata({"restarts": 2}) == {"restarts": 2}
    assert case.train.get_metadata() == {"restarts": 2}
    case.finish()


def test_metadata_is_kept_and_replaced() -> None:
    """Contract 1.5 Better: metadata works locally; setting replaces, and the caller's dict stays the caller's."""
    case = Reporting()
    assert case.train.get_metadata() is None
    assert case.train.set_metadata({"a": {"b": 1}}) == {"a": {"b": 1}}
    assert case.train.set_metadata({"c": torch.tensor(2)}) == {"c": 2}
    assert case.train.get_metadata() == {"c": 2}
    assert [r.metadata for r in case.finish().of(MetadataReport)] == [{"a": {"b": 1}}, {"c": 2}]


def test_status_is_sent() -> None:
    """Contract 5.1: set_status sends a short text."""
    case = Reporting()
    case.train.set_status("validating")
    assert [r.status for r in case.finish().of(StatusReport)] == ["validating"]


def test_batches_may_come_as_columns() -> None:
    """Decision 7: columns are sent as an array per name, and read as a dict per batch by whoever wants that."""
    case = Reporting()
    columns = BatchColumns({"loss": np.array([1.0, 2.0])}, lambda: [{"loss": 1.0}, {"loss": 2.0}])
    case.train.report_training_metrics(2, {"loss": 1.5}, columns)
    (report,) = case.finish().of(MetricReport)
    assert report.batch_metrics == {"loss": array.array("d", [1.0, 2.0])}
    assert report.batches() == [{"loss": 1.0}, {"loss": 2.0}]
