"""The link to the store: what becomes of a run's reports, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from determined import artifacts, errors
from determined.core.recording.journal import UNSENT
from determined.core.recording.run_description import Run, RunDescription, new_run
from determined.core.recording.shipper import Shipper
from determined.core.recording.store_link import StoreLink
from determined.store import attempts, experiments, trials
from determined.store.messages import (
    CheckpointReport,
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
    now,
)
from tests import records
from tests.stores import PostgresServer, name_of

Opener = Callable[..., StoreLink]


@pytest.fixture
def storage(tmp_path: Path) -> dict[str, Any]:
    return {"type": "directory", "container_path": str(tmp_path / "checkpoints")}


@pytest.fixture
def who(storage: dict[str, Any]) -> RunDescription:
    return RunDescription(
        "train.py",
        owner="ada",
        script="/code/train.py",
        config={"searcher": {"metric": "loss", "smaller_is_better": True}},
        hparams={"lr": 0.1},
        seed=7,
        storage=storage,
        pid=os.getpid(),
        host="elsewhere",  # so that nobody looks whether the process lives
    )


@pytest.fixture
def open_link(store_place: str, who: RunDescription) -> Iterator[Opener]:
    """Makes links to one store; each is a run of its own."""
    made: list[StoreLink] = []

    def make(description: RunDescription | None = None, run: Run | None = None, rank: int = 0) -> StoreLink:
        made.append(StoreLink(run or new_run(), description or who, rank, store_place))
        return made[-1]

    yield make
    for link in made:
        link.close()


def loss(steps: int, value: float, group: str = "training") -> MetricReport:
    return MetricReport(group, {"loss": value}, steps)


def saved(storage_id: str, steps: int, **metadata: Any) -> CheckpointReport:
    return CheckpointReport(storage_id, {"steps_completed": steps, **metadata}, {"f": 3})


def test_a_run_becomes_an_experiment_of_one_trial(open_link: Opener, store_place: str) -> None:
    """Decision 4, P-91: everything that a run says is in the store when `send` returns."""
    link = open_link()
    link.send(
        [
            RunStateReport("RUNNING"),
            loss(1, 0.5),
            loss(1, 0.25, "validation"),
            LogLine("[rank=1] WARNING: hot", "stderr"),
            ProgressReport(0.25),
            ProgressReport(0.5),
            StatusReport("training"),
            MetadataReport({"note": "x"}),
            EnvironmentReport({"git": {"commit": "abc"}}),
            saved("c1", 1),
            EarlyExitReport("EXITED_REASON_USER_REQUESTED_STOP"),
            RunStateReport("ERROR", "ValueError: no"),
        ]
    )
    (experiment,) = records.table("experiments", store_place)
    assert (experiment["name"], experiment["script"], experiment["owner"]) == ("train.py", "/code/train.py", "ada")
    assert (experiment["state"], experiment["state_reason"]) == ("ERROR", "ValueError: no")
    assert (experiment["unmanaged"], experiment["searcher_metric"], experiment["progress"]) == (True, "loss", 0.5)
    assert experiment["config"]["hyperparameters"] == {"lr": 0.1}
    (trial,) = records.table("trials", store_place)
    assert (trial["hparams"], trial["seed"], trial["attempt"]) == ({"lr": 0.1}, 7, 1)
    assert (trial["runner_state"], trial["metadata"]) == ("training", {"note": "x"})
    assert (trial["searcher_metric_value"], trial["exit_reason"]) == (0.25, "EXITED_REASON_USER_REQUESTED_STOP")
    (allocation,) = records.table("allocations", store_place)
    assert (allocation["state"], allocation["exit_code"]) == ("TERMINATED", 1)
    assert allocation["environment"] == {"git": {"commit": "abc"}}
    (line,) = records.table("logs", store_place)
    assert (line["rank"], line["level"], line["text"], line["stdtype"]) == (1, "WARNING", "hot", "stderr")
    (checkpoint,) = records.table("checkpoints", store_place)
    assert (checkpoint["uuid"], checkpoint["steps"], checkpoint["size"]) == ("c1", 1, 3)


def test_the_same_reports_twice_are_one(open_link: Opener, store_place: str) -> None:
    """Decision 4: reports that are offered again because nobody heard the answer do no harm."""
    link = open_link()
    for _ in range(2):
        link.send([RunStateReport("RUNNING"), loss(1, 0.5), saved("c1", 1)])
    assert records.reported("training", store_place) == [(1, {"loss": 0.5})]
    assert len(records.table("checkpoints", store_place)) == len(records.table("experiments", store_place)) == 1


def test_a_resumed_run_continues_its_trial(open_link: Opener, store_place: str) -> None:
    """P-56: the next run of the script is attempt 2 of the trial, and what it repeats is replaced, not doubled."""
    first = open_link()
    first.send([loss(10, 1.0), loss(20, 0.9), saved("c20", 20), loss(30, 0.8), RunStateReport("ERROR", "killed")])
    second = open_link()
    second.send([RunStateReport("RUNNING"), LogLine("hello", "stdout")])
    assert len(records.table("experiments", store_place)) == 2, "it may be something new"
    second.send([FitReport(20, "c20", continues=True, joins=True), loss(30, 0.7), RunStateReport("COMPLETED")])
    (experiment,) = records.table("experiments", store_place)
    (trial,) = records.table("trials", store_place)
    assert (experiment["state"], trial["state"], trial["attempt"]) == ("COMPLETED", "COMPLETED", 2)
    assert [(steps, body["loss"]) for steps, body in records.reported("training", store_place)] == [
        (10, 1.0),
        (20, 0.9),
        (30, 0.7),
    ]
    (line,) = records.table("logs", store_place)
    assert line["allocation_id"].endswith(".2")


@pytest.mark.parametrize("difference", ["hparams", "script", "running", "weights only", "named"])
def test_what_only_starts_from_a_checkpoint_is_a_run_of_its_own(
    open_link: Opener, store_place: str, who: RunDescription, difference: str
) -> None:
    """P-62, issue 12: another script, other hyperparameters, a trial that still runs, or a checkpoint that was
    asked for by name is not continued but started from, and is the new experiment's parent."""
    first = open_link()
    first.send([loss(20, 0.9), saved("c20", 20)])
    if difference != "running":
        first.send([RunStateReport("COMPLETED")])
    changes: dict[str, Any] = {"hparams": {"hparams": {"lr": 0.2}}, "script": {"script": "/code/other.py"}}
    second = open_link(dataclasses.replace(who, **changes.get(difference, {})))
    second.send(
        [FitReport(20, "c20", continues=difference != "weights only", joins=difference != "named"), loss(30, 0.7)]
    )
    one, two = records.table("trials", store_place)
    assert (one["attempt"], two["attempt"]) == (1, 1)
    assert two["warm_start_checkpoint_uuid"] == "c20"
    assert [row["parent_id"] for row in records.table("experiments", store_place)] == [None, one["experiment_id"]]
    assert len(records.reported("training", store_place)) == 2


def test_a_second_fit_replaces_the_first(open_link: Opener, store_place: str) -> None:
    """P-57: fit() again from batch 0 in the same run reports the same steps again; the newer values count."""
    link = open_link()
    link.send([FitReport(0), loss(1, 1.0), loss(2, 0.9), FitReport(0), loss(1, 0.5)])
    assert records.reported("training", store_place) == [(1, {"loss": 0.5})]
    link.send([loss(2, 0.4), RunStateReport("COMPLETED")])
    assert [body["loss"] for _, body in records.reported("training", store_place)] == [0.5, 0.4]
    (trial,) = records.table("trials", store_place)
    assert (trial["attempt"], trial["state"]) == (2, "COMPLETED")


def test_a_conflict_is_a_warning_in_a_plain_run(
    open_link: Opener, store_place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P-71: a step told two ways keeps its first value, the rest arrives, and training is told once, not stopped."""
    link = open_link()
    with caplog.at_level(logging.WARNING, "determined.core"):
        link.send([loss(1, 1.0), loss(2, 1.0), loss(1, 2.0), loss(3, 1.0), loss(2, 5.0)])
    assert records.reported("training", store_place) == [(steps, {"loss": 1.0}) for steps in (1, 2, 3)]
    assert len([r for r in caplog.records if "not recorded" in r.getMessage()]) == 1
    link.close()
    assert "2 reports of this run are not recorded" in caplog.text


def test_a_conflict_is_an_error_where_it_was_promised(open_link: Opener, store_place: str, who: RunDescription) -> None:
    """P-71, C-47: a detached run is told with an error that names the metric; what else it said is not lost."""
    link = open_link(dataclasses.replace(who, is_detached=True))
    with pytest.raises(errors.MetricConflict, match="loss"):
        link.send([loss(1, 1.0), saved("c1", 1), loss(1, 2.0), loss(3, 1.0)])
    assert records.reported("training", store_place) == [(1, {"loss": 1.0}), (3, {"loss": 1.0})]
    assert [row["uuid"] for row in records.table("checkpoints", store_place)] == ["c1"]


def test_a_refused_run_has_ended_with_the_reason(open_link: Opener, store_place: str, who: RunDescription) -> None:
    """P-71, 4.13: what is not recorded any more does not look as if it went on until somebody misses it."""
    shipper = Shipper(open_link(dataclasses.replace(who, is_detached=True)))
    for report in (RunStateReport("RUNNING"), loss(1, 1.0), loss(1, 2.0), RunStateReport("COMPLETED")):
        shipper.put(report)
    with pytest.raises(errors.MetricConflict, match="loss"):
        shipper.close()
    (trial,) = records.table("trials", store_place)
    assert trial["state"] == "ERROR"
    assert "MetricConflict: 'loss'" in trial["state_reason"]


def test_a_checkpoint_without_a_step_is_kept(open_link: Opener, store_place: str) -> None:
    """core.md 3: a plain run may save without metadata; the record says the last step that was reported."""
    open_link().send([loss(5, 1.0), CheckpointReport("c", {}, {})])
    (row,) = records.table("checkpoints", store_place)
    assert row["steps"] == 5


def test_a_request_to_stop_arrives(open_link: Opener, store_place: str) -> None:
    """4.7: a row in the store is a request to stop; acknowledging it is one too."""
    link = open_link()
    assert link.signal() is Signal.NONE, "nothing is opened for the question alone"
    link.send([RunStateReport("RUNNING")])
    assert link.signal() is Signal.NONE
    with records.opened(store_place) as store, store.write() as conn:
        (row,) = attempts.of_trial(conn, 1)
        attempts.request_preemption(conn, row.allocation_id)
    assert link.signal() is Signal.PREEMPT
    link.send([PreemptionAcknowledged()])
    (allocation,) = records.table("allocations", store_place)
    assert allocation["preempt_acked"]


def test_one_connection_for_each_process(open_link: Opener, store_place: str, postgres: PostgresServer) -> None:
    """Issue 16: a run keeps one connection to a server, and other ranks none while they have nothing to report."""
    if not store_place.startswith("postgresql"):
        pytest.skip("a file has no connections to spare")
    run = new_run()
    chief, other = open_link(run=run), open_link(run=run, rank=1)
    chief.send([RunStateReport("RUNNING")])
    other.send([LogLine("hello", "stdout", 1)])
    chief.signal()
    mine = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name_of(store_place)}'"
    assert postgres.execute(mine) == [(2,)]
    other.beat()
    chief.beat()
    deadline = time.monotonic() + 60
    while postgres.execute(mine) != [(1,)]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    other.send([LogLine("again", "stdout", 1)])
    assert [row["text"] for row in records.table("logs", store_place)] == ["hello", "again"]


def test_other_ranks_add_to_the_run_of_the_chief(open_link: Opener, store_place: str) -> None:
    """Issue 6: console output of every rank is kept with the run, whoever is first."""
    run = new_run()
    chief, other = open_link(run=run), open_link(run=run, rank=1)
    thread = threading.Thread(target=other.send, args=([LogLine("from 1", "stdout", 1)],))
    thread.start()
    chief.send([LogLine("from 0", "stdout", 0)])
    thread.join()
    assert sorted((row["rank"], row["text"]) for row in records.table("logs", store_place)) == [
        (0, "from 0"),
        (1, "from 1"),
    ]
    assert len(records.table("allocations", store_place)) == 1


@pytest.mark.parametrize("fit", [FitReport(20, "c20", continues=True, joins=True), FitReport(0, None)])
def test_other_ranks_follow_the_chief(
    fit: FitReport, open_link: Opener, store_place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 6: to the trial that it continues, or into a second fit(); what they say is kept with it."""
    open_link().send([saved("c20", 20), RunStateReport("COMPLETED")])
    run = new_run()
    chief, other = open_link(run=run), open_link(run=run, rank=1)
    chief.send([loss(10, 0.5)] if fit.storage_id is None else [])
    other.send([LogLine("before", "stdout", 1)])
    chief.send([fit, loss(30, 0.7)] if fit.storage_id else [fit, loss(5, 0.7)])
    other.send([LogLine("after", "stdout", 1), MetricReport("cpu", {"cpu_util_simple": 1.0}, None)])
    newest = records.table("allocations", store_place)[-1]["allocation_id"]
    lines = [(row["text"], row["allocation_id"]) for row in records.table("logs", store_place)]
    assert [text for text, _ in lines] == ["before", "after"]
    assert lines[1][1] == newest
    assert not caplog.records


def test_a_question_follows_the_chief(open_link: Opener, store_place: str) -> None:
    """4.7: whoever asks just as the run goes over to the trial that it continues is answered for that one."""
    open_link().send([saved("c20", 20), MetadataReport({"of": "the first"}), RunStateReport("COMPLETED")])
    run = new_run()
    chief, other = open_link(run=run), open_link(run=run, rank=1)
    chief.send([])
    assert other.signal() is Signal.NONE
    chief.send([FitReport(20, "c20", continues=True, joins=True)])
    assert other.signal() is Signal.NONE
    assert other.metadata() == {"of": "the first"}
    with records.opened(store_place) as store, store.write() as conn:
        attempts.request_preemption(conn, attempts.of_trial(conn, 1)[-1].allocation_id)
    assert other.signal() is Signal.PREEMPT


def test_a_managed_trial_is_the_told_one(open_link: Opener, store_place: str, who: RunDescription) -> None:
    """4.4: a process that was told its trial reports for that attempt; its state and output are not its business."""
    told = _managed(store_place, who)
    link = open_link(told)
    link.send([RunStateReport("RUNNING"), loss(1, 0.5, "validation"), LogLine("x", "stdout"), RunStateReport("ERROR")])
    (trial,) = records.table("trials", store_place)
    assert (trial["state"], trial["attempt"], trial["total_batches"]) == ("ACTIVE", 1, 1)
    assert records.lines(store_place) == []
    assert link.signal() is Signal.NONE
    assert link.best_validation() == 0.5
    with records.opened(store_place) as store, store.write() as conn:
        attempts.begin(conn, trial["id"])
    with pytest.raises(errors.StaleAttempt):
        link.send([loss(2, 0.4)])


def test_an_unknown_trial_is_recorded_as_a_run(open_link: Opener, store_place: str, who: RunDescription) -> None:
    """Ids of another store mean nothing here: the run is recorded like any other."""
    open_link().send([RunStateReport("RUNNING")])
    told = dataclasses.replace(who, told_trial_id=1, told_experiment_id=1, told_attempt=1)
    open_link(told).send([loss(1, 0.5)])
    assert [row["unmanaged"] for row in records.table("experiments", store_place)] == [True, True]


def _managed(place: str, who: RunDescription) -> RunDescription:
    with records.opened(place) as store, store.write() as conn:
        experiment = experiments.create(
            conn, name="search", config={}, owner="ada", state="ACTIVE", searcher_metric="loss"
        )
        trial = trials.create(conn, experiment, hparams={}, state="ACTIVE")
        begun = attempts.begin(conn, trial)
    return dataclasses.replace(
        who,
        told_trial_id=trial,
        told_experiment_id=experiment,
        told_allocation_id=begun.allocation_id,
        told_attempt=begun.attempt,
    )


def test_the_same_outside_names_are_the_same_trial(open_link: Opener, store_place: str, who: RunDescription) -> None:
    """P-70: the same external ids again are the same trial, attempt 2, with its newest checkpoint and steps."""
    names = {"external_experiment_id": "exp", "external_trial_id": "t"}
    detached = dataclasses.replace(who, is_detached=True, config={**who.config, **names})
    first = open_link(detached)
    begun = first.attach()
    assert begun is not None
    assert (begun.attempt, begun.latest_checkpoint, begun.steps_completed) == (1, None, 0)
    first.send([loss(10, 1.0), saved("c10", 10), RunStateReport("ERROR")])
    again = open_link(detached).attach()
    assert again is not None
    assert (again.trial_id, again.experiment_id, again.attempt) == (begun.trial_id, begun.experiment_id, 2)
    assert (again.latest_checkpoint, again.steps_completed) == ("c10", 10)
    sibling = dataclasses.replace(detached, config={**detached.config, "external_trial_id": "u"})
    other = open_link(sibling).attach()
    assert other is not None
    assert other.experiment_id == begun.experiment_id
    assert other.trial_id != begun.trial_id


def test_a_named_trial_waits_for_the_store(
    open_link: Opener, who: RunDescription, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A trial with external ids may have a checkpoint to go on from, so it waits for the store; others do not."""
    named = dataclasses.replace(who, is_detached=True, config={**who.config, "external_experiment_id": "exp"})
    for description, answers in ((named, True), (dataclasses.replace(who, is_detached=True), False)):
        link = open_link(description)
        is_open, failures = link._open_store, iter(["two writers met", "the server is starting up"])

        def trouble(is_open: Any = is_open, failures: Any = failures) -> Any:
            if (why := next(failures, None)) is not None:
                raise errors.StoreUnavailable(why)
            return is_open()

        monkeypatch.setattr(link, "_open_store", trouble)
        assert (link.attach() is not None) is answers
    said = [record.getMessage() for record in caplog.records]
    assert [("trying for 30 seconds" in line, "goes on without" in line) for line in said] == [
        (True, False),
        (False, True),
    ]


def test_metadata_outlives_the_process(open_link: Opener, who: RunDescription) -> None:
    """Contract 5.1: a later attempt of the same trial reads the metadata that an earlier one has set."""
    names = {"external_experiment_id": "exp", "external_trial_id": "t"}
    detached = dataclasses.replace(who, is_detached=True, config={**who.config, **names})
    first = open_link(detached)
    assert first.metadata() is None
    first.send([MetadataReport({"note": "x"})])
    assert open_link(detached).metadata() == {"note": "x"}
    assert open_link().metadata() is None, "a run of its own begins without"


def test_history_is_that_of_the_script(open_link: Opener, who: RunDescription) -> None:
    """Issue 6: "latest" and "best" are of earlier runs of this script, class and storage; others are named as such."""
    first = open_link()
    first.send(
        [saved("a", 1, trial_class="m:T", searcher_metric=0.1), saved("b", 2, trial_class="m:T", searcher_metric=0.2)]
    )
    first.send([saved("c", 3, trial_class="m:Other")])
    elsewhere = dataclasses.replace(who, storage={"type": "directory", "container_path": "/other"})
    open_link(elsewhere).send([saved("d", 4, trial_class="m:T")])
    open_link(dataclasses.replace(who, script="/other.py")).send([saved("e", 5, trial_class="m:T")])

    def ask(which: Any, name: str = "T", *, smaller: bool = True, **changes: Any) -> Any:
        return open_link(dataclasses.replace(who, **changes)).find_checkpoints(which, name, smaller)

    assert ask("latest").found == ["b", "a"]
    assert set(ask("latest").others) == {"c", "d", "e"}
    assert ask("latest", "m:T").found == ["b", "a"]
    assert ask("best").found == ["a", "b"]
    assert ask("best", smaller=False).found == ["b", "a"]
    new = ask("latest", script="/new.py")
    assert new.found == []
    assert set(new.others) == {"a", "b", "c", "d", "e"}
    assert ask("latest", script=None) is None


def test_history_is_that_of_the_same_hyperparameters(open_link: Opener, who: RunDescription) -> None:
    """Issue 12: "latest" and "best" are of runs with equal hyperparameters, numbers by value; the newest other one is
    named. What was saved in test mode never counts."""
    kind: dict[str, Any] = {"trial_class": "m:T", "searcher_metric": 0.5}
    open_link(dataclasses.replace(who, hparams={"lr": 1, "net": {"width": 8}})).send([saved("a", 1, **kind)])
    open_link(dataclasses.replace(who, hparams={"lr": 2, "net": {"width": 8}})).send([saved("b", 1, **kind)])
    open_link(dataclasses.replace(who, hparams={"lr": 1, "net": {"width": 8}})).send(
        [saved("t", 1, test_mode=True, **kind)]
    )

    for which in ("latest", "best"):
        same = open_link(dataclasses.replace(who, hparams={"net": {"width": 8.0}, "lr": 1.0}))
        history = same.find_checkpoints(which, "T", True)  # type: ignore[arg-type]  # it is one of the two
        assert history is not None
        assert list(history.found) == ["a"]
        third = open_link(dataclasses.replace(who, hparams={"lr": 3})).find_checkpoints(which, "T", True)  # type: ignore[arg-type]
        assert third is not None
        assert (list(third.found), third.unlike.place) == ([], "experiment 2")
        assert third.unlike.hparams == {"lr": 2, "net": {"width": 8}}


def test_a_clock_that_is_set_back_does_not_matter(open_link: Opener, who: RunDescription) -> None:
    """Issue 11: which checkpoint is the latest goes by the order of runs, attempts and steps, not by any clock."""
    day = datetime.timedelta(days=1)

    def at(report: CheckpointReport, days: int) -> CheckpointReport:
        return dataclasses.replace(report, time=report.time + days * day)

    def newest() -> list[str]:
        history = open_link().find_checkpoints("latest", "T", True)
        assert history is not None
        return list(history.found)

    kind = {"trial_class": "m:T"}
    first = open_link()
    first.send([at(saved("a1", 1, **kind), 0), at(saved("a2", 2, **kind), -1), RunStateReport("ERROR", "x")])
    assert newest() == ["a2", "a1"]
    other = open_link(dataclasses.replace(who, started=(now() - 9 * day).isoformat()))
    other.send([at(saved("b1", 1, **kind), -9), RunStateReport("COMPLETED", time=now() - 9 * day)])
    assert newest() == ["b1", "a2", "a1"], "a run that began later is newer, whatever its clock says"
    again = open_link()
    again.send([FitReport(1, "a1", continues=True, joins=True), at(saved("a3", 2, **kind), -5)])
    again.send([RunStateReport("COMPLETED", time=now() - 5 * day)])
    assert newest() == ["a3", "a2", "a1", "b1"], "a second attempt is newer than the first, and than runs before it"


def test_the_best_that_a_checkpoint_knew(open_link: Opener) -> None:
    """Decision 3: the policy "best" goes on from what was best when the checkpoint was saved, not from later ones."""
    link = open_link()
    link.send([loss(1, 0.5, "validation"), loss(2, 0.4, "validation"), saved("c2", 2), loss(3, 0.1, "validation")])
    assert link.best_before("c2") == 0.4
    assert link.best_before("unknown") is None


# What a dead run has left.


@contextlib.contextmanager
def dying(link: StoreLink) -> Iterator[StoreLink]:
    """The block, and then what the kernel does with a process that is killed."""
    yield link
    assert link._journal._lock is not None
    link._journal._lock.close()
    link._journal._lock = None


def publish(storage: dict[str, Any]) -> str:
    """A checkpoint that is there."""
    storage_id = str(uuid.uuid4())
    draft = artifacts.open_storage(storage).draft(storage_id)
    draft.publish(draft.put_bytes("metadata.json", b'{"steps_completed": 4}'))
    draft.discard()
    return storage_id


def test_kept_reports_are_delivered_by_the_next_run(open_link: Opener, store_place: str) -> None:
    """Decision 4: a run that never reached the store is recorded later, as it was."""
    with dying(open_link()) as link:
        assert link.keep([RunStateReport("RUNNING"), loss(1, 0.5), LogLine("hello", "stdout")])
        assert link.keep([RunStateReport("COMPLETED")])
    open_link().send([RunStateReport("RUNNING")])
    assert [row["state"] for row in records.table("experiments", store_place)] == ["COMPLETED", "RUNNING"]
    assert records.reported("training", store_place) == [(1, {"loss": 0.5})]
    assert records.lines(store_place) == ["hello"]
    assert not link._journal.directory.exists()


@pytest.mark.parametrize("arrived", [0, 2, 4])
def test_a_copy_is_delivered_once_whatever_has_arrived(open_link: Opener, store_place: str, arrived: int) -> None:
    """Issue 11: killed between the store's commit and its note of it, nothing is told twice, and nothing is lost."""
    reports = [LogLine("WARNING: hello", "stdout"), MetricReport("cpu", {"load": 0.5}), loss(1, 0.5), loss(2, 0.25)]
    with dying(open_link()) as link:
        link.send([RunStateReport("RUNNING"), *reports[:arrived]])
        assert link.copy(reports[:3], 3)
        assert link.copy(reports[3:], 4)
    open_link().send([RunStateReport("RUNNING")])
    assert records.reported("training", store_place) == [(1, {"loss": 0.5}), (2, {"loss": 0.25})]
    assert records.reported("cpu", store_place) == [(None, {"load": 0.5})]
    assert records.lines(store_place) == ["hello"]
    assert not link._journal.directory.exists()


def test_a_run_starts_when_it_starts(open_link: Opener, store_place: str, who: RunDescription) -> None:
    """Decision 4: a store that is reached late does not move the start of a run behind its own metrics and end."""
    start = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    early = dataclasses.replace(who, started=start.isoformat())
    link = open_link(early)
    link.send([RunStateReport("RUNNING"), RunStateReport("COMPLETED", time=start + datetime.timedelta(seconds=2))])
    with dying(open_link(early)) as dead:  # and it never reached the store itself
        assert dead.keep([dataclasses.replace(loss(1, 0.5), time=start + datetime.timedelta(seconds=9))])
    open_link(early).send([RunStateReport("RUNNING")])
    kinds = ("experiments", "trials", "allocations")
    assert {row["start_time"] for kind in kinds for row in records.table(kind, store_place)} == {start}
    ends = [row["end_time"] for row in records.table("trials", store_place)]
    assert ends == [start + datetime.timedelta(seconds=2), start + datetime.timedelta(seconds=9), None]


def test_what_belongs_to_another_store_stays(open_link: Opener, store_place: str, who: RunDescription) -> None:
    """DET_STORE may differ from run to run: what was meant for one store is not delivered to another."""
    with dying(open_link(dataclasses.replace(who, store="another"))) as link:
        link.keep([loss(1, 0.5)])
    open_link().send([RunStateReport("RUNNING")])
    assert len(records.table("experiments", store_place)) == 1
    assert (link._journal.directory / UNSENT).exists()


def test_kept_reports_go_first_when_the_store_is_back(open_link: Opener, store_place: str) -> None:
    """Decision 4: what was put aside while the store was away arrives before what came later."""
    link = open_link()
    link.send([RunStateReport("RUNNING")])
    link.keep([LogLine("one", "stdout")])
    link.keep([LogLine("two", "stdout")])
    link.send([LogLine("three", "stdout")])
    link.send([LogLine("four", "stdout")])
    assert records.lines(store_place) == ["one", "two", "three", "four"]


def test_a_published_checkpoint_is_adopted(open_link: Opener, store_place: str, storage: dict[str, Any]) -> None:
    """Issue 6: killed between publishing and recording, a checkpoint is recorded by the next run; one that was being
    deleted is recorded as gone; one that was never there is not recorded."""
    anothers = publish(storage)
    open_link().send([saved(anothers, 1)])
    with dying(open_link()) as link:
        link.send([RunStateReport("RUNNING"), saved("deleted", 3)])
        link.mark_pending("deleted")
        link.mark_pending("never")
        there = publish(storage)
        link.mark_pending(there)
        link.mark_pending(anothers)  # about to be deleted, when the process died
    open_link().send([RunStateReport("RUNNING")])
    found = {
        row["uuid"]: (row["state"], row["steps"], row["trial_id"]) for row in records.table("checkpoints", store_place)
    }
    assert found == {
        anothers: ("COMPLETED", 1, 1),
        "deleted": ("DELETED", 3, 2),
        there: ("COMPLETED", 4, 2),
    }
    assert not link._journal.directory.exists()


def test_a_deletion_is_adopted_from_a_run_that_nobody_knew(open_link: Opener, store_place: str) -> None:
    """Issue 6: killed before it was recorded, a run may have deleted a checkpoint of another: that is known then."""
    open_link().send([saved("gone", 1)])
    with dying(open_link()) as link:
        link.mark_pending("gone")
    open_link().send([RunStateReport("RUNNING")])
    (row,) = records.table("checkpoints", store_place)
    assert row["state"] == "DELETED"
    assert len(records.table("experiments", store_place)) == 2


@pytest.mark.parametrize("was_begun", [False, True])
def test_what_is_adopted_goes_to_the_trial_that_it_continues(
    open_link: Opener, store_place: str, storage: dict[str, Any], who: RunDescription, was_begun: bool
) -> None:
    """Issue 6: killed before it could say that it continues a trial, what a run has saved is still of that trial."""
    open_link().send([loss(1, 1.0), saved("c1", 1), RunStateReport("ERROR")])
    dead = dataclasses.replace(who, host=platform.node(), pid=2**22 + 1)  # no such process
    with dying(open_link(dead)) as link:
        if was_begun:
            link.send([RunStateReport("RUNNING")])
        link.begin_fit(FitReport(1, "c1", continues=True, joins=True))
        there = publish(storage)
        link.mark_pending(there)
    open_link().send([RunStateReport("RUNNING")])
    owners = {row["uuid"]: row["trial_id"] for row in records.table("checkpoints", store_place)}
    assert owners == {"c1": 1, there: 1}
    first, _ = records.table("trials", store_place)
    assert (first["attempt"], first["state"]) == (2, "ERROR")


def test_a_checkpoint_is_adopted_after_its_trial_was_continued(
    open_link: Opener, store_place: str, storage: dict[str, Any]
) -> None:
    """What a replaced attempt had saved is still a checkpoint of the trial; what it had to say is out of date."""
    with dying(open_link()) as link:
        link.send([loss(1, 1.0), saved("c1", 1), RunStateReport("ERROR")])
        there = publish(storage)
        link.mark_pending(there)
        link.keep([loss(2, 1.0)])
    with records.opened(store_place) as store, store.write() as conn:
        attempts.begin(conn, 1)
    open_link().send([RunStateReport("RUNNING")])
    assert {row["uuid"] for row in records.table("checkpoints", store_place)} == {"c1", there}
    assert records.reported("training", store_place) == [(1, {"loss": 1.0})]


def test_what_the_kinds_of_reports_are_called() -> None:
    """Every kind of report can wait in the journal: none is forgotten in its table."""
    from determined.core.recording.journal import KINDS

    def below(kind: type[Report]) -> set[type[Report]]:
        return {kind, *(deeper for child in kind.__subclasses__() for deeper in below(child))}

    assert below(Report) == set(KINDS.values())
