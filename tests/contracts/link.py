"""What every link promises. Suites inherit `LinkContract` and supply `link`, of a new run, and `arrived`."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from determined.core.recording.link import Attached, History, Link
from determined.store.messages import (
    CheckpointReport,
    CheckpointUseReport,
    EarlyExitReport,
    EnvironmentReport,
    FitReport,
    LogLine,
    MetadataReport,
    MetricReport,
    PreemptionAcknowledged,
    ProgressReport,
    Report,
    RunStateReport,
    Signal,
    StatusReport,
)

Arrived = Callable[[], "list[int]"]
"""Reads around the link: the steps of the metrics that arrived, in order."""

STORAGE_ID = "4f1c22d0-0000-4000-8000-000000000000"
EVERY_KIND: list[Report] = [
    RunStateReport("RUNNING"),
    EnvironmentReport({"python": "3.10"}),
    FitReport(0),
    LogLine("hello", "stdout"),
    StatusReport("training"),
    ProgressReport(0.5),
    MetadataReport({"note": "x"}),
    CheckpointReport(STORAGE_ID, {"steps_completed": 1}, {"model.pt": 3}),
    CheckpointUseReport(STORAGE_ID),
    CheckpointReport(STORAGE_ID, {}, {}, "DELETED"),
    EarlyExitReport("EXITED_REASON_USER_REQUESTED_STOP"),
    PreemptionAcknowledged(),
    RunStateReport("COMPLETED"),
]


def metrics(*steps: int) -> list[MetricReport]:
    return [MetricReport("training", {"loss": 1.0 / step}, step) for step in steps]


class LinkContract:
    records = True
    """Whether reports arrive anywhere."""

    def expected(self, *steps: int) -> list[int]:
        return list(steps) if self.records else []

    def test_it_describes_itself(self, link: Link) -> None:
        """A link names the place that reports go to, and says whether it can ask to stop and was told its trial."""
        assert isinstance(link.place, str)
        assert link.place
        assert {type(link.listens), type(link.is_managed)} == {bool}

    def test_reports_arrive_in_order(self, link: Link, arrived: Arrived) -> None:
        """What was sent has arrived when `send` returns, in the order it was made."""
        link.send(metrics(1, 2))
        link.send(metrics(3))
        assert arrived() == self.expected(1, 2, 3)

    @pytest.mark.parametrize("report", EVERY_KIND, ids=lambda report: type(report).__name__)
    def test_every_kind_of_report_is_taken(self, report: Report, link: Link, arrived: Arrived) -> None:
        """Each kind of report may be sent, and what comes before and after it arrives."""
        link.send([*metrics(1), report, *metrics(2)])
        assert arrived() == self.expected(1, 2)

    def test_nothing_to_send_is_no_error(self, link: Link, arrived: Arrived) -> None:
        """An empty list may be sent, and a run may be alive without a report."""
        link.beat()
        link.send([])
        link.beat()
        assert arrived() == []

    def test_kept_reports_arrive_first(self, link: Link, arrived: Arrived) -> None:
        """Reports that a link keeps arrive before the next ones, each once; a link that cannot keep them says so."""
        is_kept = link.keep(metrics(1, 2))
        assert isinstance(is_kept, bool)
        link.send(metrics(3))
        link.send(metrics(4))
        assert arrived() == self.expected(*([1, 2] if is_kept else []), 3, 4)

    def test_copies_are_not_deliveries(self, link: Link, arrived: Arrived) -> None:
        """A copy is for the case that the process dies: reports arrive by `send`, once. Dropping none is no error."""
        assert isinstance(link.copy(metrics(1), 1), bool)
        link.send(metrics(1))
        link.drop_copy(1)
        link.drop_copy(1)
        link.drop_copy(99)
        assert arrived() == self.expected(1)

    @pytest.mark.parametrize("storage_id", [STORAGE_ID, "../outside", "a/b", "x" * 300])
    def test_a_pending_checkpoint_raises_nothing(self, storage_id: str, link: Link, arrived: Arrived) -> None:
        """Any id may be noted as pending, before and after its report, as often as it is stored and deleted."""
        link.mark_pending(storage_id)
        link.mark_pending(storage_id)
        link.begin_fit(FitReport(0))
        link.send([CheckpointReport(storage_id[:60], {"steps_completed": 1}, {}), *metrics(1)])
        assert arrived() == self.expected(1)

    def test_questions_about_nothing_have_an_answer(self, link: Link) -> None:
        """Before the first report every question has an answer, or None; none of them raises."""
        assert link.signal() is Signal.NONE
        assert link.recorded_as() is None
        assert link.best_validation() is None
        assert link.best_before("unknown") is None
        assert link.experiment_of("unknown") is None
        assert link.find_checkpoints("latest", "Trial", True) in (None, History([], set()))
        assert link.metadata() is None

    def test_a_run_knows_its_trial(self, link: Link) -> None:
        """Where runs are recorded, `attach` and `recorded_as` name the trial of this run; elsewhere both are None."""
        attached = link.attach()
        assert link.recorded_as() == attached
        assert (attached is not None) is self.can_attach
        assert attached is None or isinstance(attached, Attached)

    can_attach = False

    def test_threads_share_it(self, link: Link, arrived: Arrived) -> None:
        """One thread sends while others ask and beat."""
        problems: list[Exception] = []

        def ask() -> None:
            try:
                for _ in range(5):
                    link.signal()
                    link.beat()
                    link.recorded_as()
            except Exception as problem:
                problems.append(problem)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for step in range(1, 6):
            link.send(metrics(step))
        for thread in threads:
            thread.join()
        assert (problems, arrived()) == ([], self.expected(1, 2, 3, 4, 5))

    def test_closing_twice_is_no_error(self, link: Link) -> None:
        """Closing frees what is held; a second time does nothing."""
        link.send(metrics(1))
        link.close()
        link.close()
