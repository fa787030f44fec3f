"""core.init(): one way in, everything closed on the way out."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import determined
from determined import _info, core
from determined.core import _context
from determined.core.recording import shipper
from determined.core.recording.link import History
from determined.store.messages import CheckpointReport, EarlyExitReport, Report, RunStateReport
from tests import records
from tests.fakes import MemoryLink
from tests.ranks import run_threads


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    _info.reset_cluster_info()
    yield
    _info.reset_cluster_info()


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> MemoryLink:
    """The link that core.init() will choose."""
    link = MemoryLink()
    monkeypatch.setattr(_context, "choose_link", lambda *_: link)
    return link


def told(slots: int = 1, **config: object) -> None:
    """Make this process a managed trial."""
    trial = _info.TrialInfo(1, 1, 7, {}, dict(config))
    rendezvous = _info.RendezvousInfo(["127.0.0.1"], 0, [slots])
    _info.set_cluster_info(_info.ClusterInfo(task_type="TRIAL", _trial_info=trial, _rendezvous_info=rendezvous))


def test_a_local_run_has_every_service() -> None:
    """C-01: all services are there, and info is None."""
    with core.init() as context:
        assert context.info is None
        for name in ("checkpoint", "distributed", "preempt", "train", "searcher", "profiler", "experimental"):
            assert getattr(context, name) is not None


def test_invalid_hyperparameters_end_the_process_well(link: MemoryLink) -> None:
    """C-02 and 1.5 Better: SystemExit(0); the chief has reported INVALID_HP before anything was closed."""
    with pytest.raises(SystemExit) as caught, core.init():
        raise determined.InvalidHP("too big")
    assert caught.value.code == 0
    assert [r.reason for r in link.of(EarlyExitReport)] == ["EXITED_REASON_INVALID_HP"]
    assert link.is_closed


@pytest.mark.parametrize(
    ("storage", "error"),
    [
        (5, TypeError),
        ({"type": "shared_fs", "host_path": "/tmp"}, ValueError),
        ({}, ValueError),
        ("file://host/p", ValueError),
        ("http://x/y", ValueError),
        ("/tmp/x?y=1", ValueError),
        ("", ValueError),
    ],
)
def test_storage_that_makes_no_sense_is_refused(storage: object, error: type[Exception]) -> None:
    """C-03, C-05 and 1.5 Better: the documented error types, before anything starts."""
    with pytest.raises(error):
        core.init(checkpoint_storage=storage)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_both_forms_of_a_path(form: str, tmp_path: Path) -> None:
    """C-04: a path and its file:// form store in the same place."""
    with core.init(checkpoint_storage=form.format(tmp_path / "abc")) as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            (path / "f").write_text("x")
    assert (tmp_path / "abc" / storage_id / "f").read_text() == "x"


def test_several_slots_need_to_find_each_other() -> None:
    """C-06: a managed task with 2 slots and no `distributed` is a ValueError that says what to pass."""
    told(slots=2)
    with pytest.raises(ValueError, match="from_torch_distributed"):
        core.init()


def test_a_trial_without_a_length_has_no_operations() -> None:
    """C-07: every searcher method says why it cannot work."""
    told(searcher={"name": "single", "metric": "loss"})
    with core.init() as context:
        for call in ("operations", "acknowledge_out_of_ops", "get_configured_units"):
            with pytest.raises(ValueError, match="max_length"):
                getattr(context.searcher, call)()


def test_a_trial_uses_its_own_config(tmp_path: Path) -> None:
    """Contract 1.2: storage and searcher come from the experiment config of a managed trial."""
    told(
        searcher={"metric": "loss", "max_length": {"batches": 9}},
        checkpoint_storage={"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "s"},
    )
    with core.init() as context:
        assert context.checkpoint.location.rstrip("/").endswith(f"{tmp_path}/s")
        assert context.searcher.get_configured_units() is core.Unit.BATCHES
        assert context.info is not None


def test_alert_needs_a_cluster() -> None:
    """C-08: alert() in local mode is a ValueError."""
    with core.init() as context:
        with pytest.raises(ValueError, match="webhooks"):
            context.alert("title")


def test_everything_is_closed_even_if_one_part_fails(link: MemoryLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 Better: the first error is raised once all else is closed."""
    context = core.init().start()

    def broken() -> None:
        raise OSError("first")

    monkeypatch.setattr(context.profiler, "off", broken)
    monkeypatch.setattr(context.distributed, "close", broken)
    with pytest.raises(OSError, match="first"):
        context.close()
    assert link.is_closed
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_error_of_the_block_wins(link: MemoryLink) -> None:
    """What went wrong in the block is what the caller sees; the run is recorded as failed."""
    link.trouble = None

    def fail() -> None:
        with core.init() as context:
            context._shipper.flush()
            link.trouble = ValueError("refused")
            context.train.set_status("x")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


@pytest.mark.parametrize(("error", "state"), [(None, "COMPLETED"), (KeyError, "ERROR"), (SystemExit, "COMPLETED")])
def test_how_a_run_ended_is_recorded(link: MemoryLink, error: type[BaseException] | None, state: str) -> None:
    """C-70: a run that ends normally is COMPLETED, one that ends with an exception is ERROR."""

    def run() -> None:
        with core.init():
            if error is not None:
                raise error

    if error is None:
        run()
    else:
        with pytest.raises(error):
            run()
    assert [r.state for r in link.of(RunStateReport)] == ["RUNNING", state]


def test_a_plain_run_leaves_its_metrics_behind(home: Path) -> None:
    """5.7 Better: the metrics of a local run are in the store, TensorBoard files lie beside it."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        context.train.report_validation_metrics(1, {"accuracy": float("inf")})
        path = context.train.get_tensorboard_path()
    assert records.reported("training") == [(1, {"loss": 0.5})]
    assert records.reported("validation") == [(1, {"accuracy": float("inf")})]
    assert path.parent.parent == home
    assert len(list(path.glob("events*"))) == 1


@pytest.mark.parametrize("mode", list(core.TensorboardMode))
def test_tensorboard_mode_is_honoured_locally(mode: core.TensorboardMode) -> None:
    """1.5 Better: a real directory in both modes, event files of ours only in AUTO."""
    with core.init(tensorboard_mode=mode) as context:
        path = context.train.get_tensorboard_path()
        assert path.is_dir()
        context.train.report_training_metrics(1, {"loss": 0.5})
    assert bool(list(path.glob("events*"))) == (mode is core.TensorboardMode.AUTO)


def test_preempt_mode_is_honoured_locally() -> None:
    """1.5 Better: ChiefOnly means ChiefOnly in a local run too, and the next collective is not disturbed."""

    def body(distributed: core.DistributedContext) -> tuple[bool | None, str]:
        with core.init(distributed=distributed, preempt_mode=core.PreemptMode.ChiefOnly) as context:
            answer = context.preempt.should_preempt() if distributed.rank == 0 else None
            return answer, distributed.broadcast("next")

    assert run_threads(2, body) == [(False, "next"), (None, "next")]


def test_one_rank_fails_alone_without_hanging() -> None:
    """C-84: an exception on one rank, outside any collective, closes that rank's context at once."""

    def body(distributed: core.DistributedContext) -> str:
        try:
            with core.init(distributed=distributed):
                if distributed.rank == 1:
                    raise KeyError("mine")
                distributed.gather("waiting for rank 1")
        except (KeyError, determined.errors.CollectiveError) as error:
            return str(error)
        return "no error"

    waiting, failed = run_threads(2, body)
    assert "rank 1" in waiting
    assert "KeyError: 'mine'" in waiting, "the ranks that wait, and the record of the run, name the cause"
    assert failed == "'mine'"


def test_asking_before_start_is_an_error_not_a_hang() -> None:
    """C-85: should_preempt() without `with` or start() is a RuntimeError."""
    context = core.init()
    with pytest.raises(RuntimeError, match="before start"):
        context.preempt.should_preempt()


def test_closing_twice_is_harmless() -> None:
    """close() after close() does nothing."""
    context = core.init().start()
    context.close()
    context.close()


def test_a_dummy_context_records_nothing(home: Path, tmp_path: Path) -> None:
    """core.md 0: _dummy_init stores checkpoints and records nothing else."""
    with core._dummy_init(checkpoint_storage=str(tmp_path / "c")) as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        with context.checkpoint.store_path({"steps_completed": 1}) as (_, storage_id):
            pass
    assert (tmp_path / "c" / storage_id).is_dir()
    assert not home.exists()


def test_a_read_only_home_does_not_stop_training(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 4: where nothing can be recorded, training goes on and the loss is said in one line."""
    home.write_text("a file where the directory should be")
    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    assert len([r for r in caplog.records if "were lost" in r.getMessage()]) == 1


def test_signals_are_given_back() -> None:
    """After the block the process has its own handlers again."""
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)}
    with core.init():
        assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    assert {n: signal.getsignal(n) for n in before} == before


def test_a_handler_that_the_script_sets_stays() -> None:
    """C-09: what a script makes of SIGUSR1 within the block is its own, and stays after it."""
    heard: list[int] = []
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with core.init():
            signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_another_thread_may_close() -> None:
    """Contract 1.3: `close()` works wherever it is called, though only the main thread can set handlers."""
    failures: list[BaseException] = []
    before = signal.getsignal(signal.SIGUSR1)
    context = core.init().start()

    def close() -> None:
        try:
            context.close()
        except BaseException as failed:
            failures.append(failed)

    closing = threading.Thread(target=close)
    closing.start()
    closing.join()
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)
    assert failures == []


def test_distributed_is_a_distributed_context() -> None:
    """Contract 1.1: something else is a TypeError that says what to pass."""
    with pytest.raises(TypeError, match=r"distributed is True, a bool.*from_torch_distributed"):
        core.init(distributed=True)  # type: ignore[arg-type]


def test_environment_is_left_alone() -> None:
    """Opening a context sets no variables."""
    before = dict(os.environ)
    with core.init():
        pass
    assert dict(os.environ) == before


def test_the_newest_checkpoint_is_known_before_it_is_asked_for(
    link: MemoryLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4: "latest" is this run's own checkpoint as soon as it is saved, however late the store hears of it."""
    begun, may_go_on = threading.Event(), threading.Event()
    send = link.send

    def slow(reports: Sequence[Report]) -> None:
        begun.set()
        may_go_on.wait(30)
        send(reports)

    monkeypatch.setattr(link, "send", slow)
    monkeypatch.setattr(link, "find_checkpoints", lambda *_: History([str(len(link.of(CheckpointReport)))]))
    with core.init(checkpoint_storage=str(tmp_path)) as context:
        with context.checkpoint.store_path({"steps_completed": 1}):
            pass
        assert begun.wait(30)
        monkeypatch.setattr(shipper, "HISTORY_SECONDS", 0.0)
        assert context.train.find_checkpoints("latest", "Trial", True) is None  # there is no telling
        monkeypatch.setattr(shipper, "HISTORY_SECONDS", 30.0)
        may_go_on.set()
        assert context.train.find_checkpoints("latest", "Trial", True) == History(["1"])
