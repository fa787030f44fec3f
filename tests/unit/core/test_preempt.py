"""PreemptContext: asked through a signal or the link, answered on all ranks at the same call."""

from __future__ import annotations

import io
import itertools
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from determined import core, errors
from determined.core import PreemptContext, PreemptMode, _preempt
from determined.core.recording.shipper import Shipper
from determined.store.messages import PreemptionAcknowledged
from tests.fakes import MemoryLink
from tests.ranks import run_threads


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_preempt, "POLL_SECONDS", 0.01)


@pytest.fixture
def preempt() -> Iterator[PreemptContext]:
    context = PreemptContext().start()
    yield context
    context.close()


def eventually(question: object, seconds: float = 90.0) -> bool:
    deadline = time.monotonic() + seconds
    while not question():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.parametrize("alias", [core.PreemptContext, core.DummyPreemptContext])
def test_it_has_to_be_started_once(alias: type[PreemptContext]) -> None:
    """C-55, C-85: asking before start, and starting twice, is a RuntimeError, not a hang."""
    context = alias()
    with pytest.raises(RuntimeError, match=r"before start\(\)"):
        context.should_preempt()
    context.start()
    with pytest.raises(RuntimeError, match="already"):
        context.start()
    context.close()


def test_one_acknowledgement_when_it_is_wanted() -> None:
    """C-56: auto_ack=False says yes without acknowledging; two later calls acknowledge exactly once."""
    link = MemoryLink(listens=True)
    link.asked_to_stop = True
    shipper = Shipper(link)
    context = PreemptContext(link=link, shipper=shipper).start()
    assert context.should_preempt(auto_ack=False) is True
    shipper.flush()
    assert link.of(PreemptionAcknowledged) == []
    assert context.should_preempt() is True
    assert context.should_preempt() is True
    context.close()
    shipper.close()
    assert len(link.of(PreemptionAcknowledged)) == 1


def test_chief_only_is_for_the_chief() -> None:
    """C-57: rank 1 in ChiefOnly mode gets a RuntimeError; the chief does not wait for anybody."""

    def body(distributed: core.DistributedContext) -> object:
        context = PreemptContext(distributed, PreemptMode.ChiefOnly).start()
        try:
            if distributed.rank == 0:
                return [context.should_preempt() for _ in range(3)]
            with pytest.raises(RuntimeError, match="rank 1"):
                context.should_preempt()
            return None
        finally:
            context.close()

    assert run_threads(2, body) == [[False] * 3, None]


@pytest.mark.parametrize("asked", [0, 1])
def test_all_ranks_hear_it_at_the_same_call(asked: int) -> None:
    """C-58: both ranks say yes first at the same call number, whichever of them was asked to stop."""
    link = MemoryLink(listens=True)

    def body(distributed: core.DistributedContext) -> int:
        context = PreemptContext(distributed, link=link if distributed.rank == 0 else None).start()
        for call in range(100_000):
            if distributed.rank == asked and call == 100:
                if asked == 0:
                    link.asked_to_stop = True
                else:
                    context._signals.received = True  # a thread cannot be sent a signal of its own
            if context.should_preempt():
                break
            if distributed.rank == 1 and call % 10 == 0:
                time.sleep(0.001)
        context.close()
        return call

    first, second = run_threads(2, body)
    assert first == second
    assert 100 <= first < 99_999


def test_only_the_chief_asks_the_link() -> None:
    """C-58: in WorkersAskChief mode only the chief's link is asked."""
    links = [MemoryLink(listens=True), MemoryLink(listens=True)]

    def body(distributed: core.DistributedContext) -> None:
        context = PreemptContext(distributed, link=links[distributed.rank]).start()
        context.should_preempt()
        context.close()

    run_threads(2, body)
    assert links[0].times_asked > 0
    assert links[1].times_asked == 0


@pytest.fixture
def batch_seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Have the chief's clock go by so much from one look at it to the next."""

    def go(seconds: float) -> None:
        ticks = itertools.count()
        clock = types.SimpleNamespace(monotonic=lambda: next(ticks) * seconds)
        monkeypatch.setattr(_preempt, "time", clock)

    return go


def test_most_calls_exchange_nothing(batch_seconds: Callable[[float], None]) -> None:
    """Contract 6.4 Better: asking at every batch costs an exchange now and then, not one each time."""
    batch_seconds(0.001)

    def body(distributed: core.DistributedContext) -> int:
        exchanges = 0
        gather = distributed.allgather

        def counted(value: object) -> object:
            nonlocal exchanges
            exchanges += 1
            return gather(value)

        distributed.allgather = counted  # type: ignore[method-assign,assignment]
        context = PreemptContext(distributed).start()
        for _ in range(1600):
            context.should_preempt()
        context.close()
        return exchanges

    first, second = run_threads(2, body)
    assert first == second
    assert first < 1600 / 3


def test_slow_loops_hear_it_at_once(batch_seconds: Callable[[float], None]) -> None:
    """Contract 6.4 Better: a loop slower than the exchange period talks at every call, so no batch is lost to it."""
    batch_seconds(_preempt.EXCHANGE_SECONDS * 1.2)

    def body(distributed: core.DistributedContext) -> int:
        context = PreemptContext(distributed).start()
        for call in range(10):
            if distributed.rank == 0 and call == 4:
                context._signals.received = True
            if context.should_preempt():
                break
        context.close()
        return call

    assert run_threads(2, body) == [4, 4]


def test_workers_ask_alone_in_their_mode() -> None:
    """C-59: with WorkersAskMaster rank 1 asks while rank 0 does not call at all."""
    link = MemoryLink(listens=True)
    link.asked_to_stop = True

    def body(distributed: core.DistributedContext) -> bool | None:
        if distributed.rank == 0:
            return None
        context = PreemptContext(distributed, PreemptMode.WorkersAskMaster, link=link).start()
        answer = context.should_preempt()
        context.close()
        return answer

    assert run_threads(2, body) == [None, True]


def test_a_link_in_trouble_is_asked_again() -> None:
    """C-60: while the link fails the answer is no; when it is back and says stop, yes. Nothing is raised."""
    link = MemoryLink(listens=True)
    link.trouble = errors.LinkUnavailable("gone")
    link.asked_to_stop = True
    context = PreemptContext(link=link).start()
    assert context.should_preempt() is False
    assert eventually(lambda: link.times_asked > 3)
    link.trouble = None
    assert eventually(context.should_preempt)
    context.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2, signal.SIGINT])
def test_signals_ask_to_stop(number: int, preempt: PreemptContext, capfd: pytest.CaptureFixture[str]) -> None:
    """Contract 6.4 Better, decision 3: SIGTERM, SIGUSR2 and one Ctrl-C mean: save and leave. It stays so."""
    assert preempt.should_preempt() is False
    os.kill(os.getpid(), number)
    assert preempt.should_preempt() is True
    assert preempt.should_preempt() is True
    assert "next safe point" in capfd.readouterr().err


def test_a_second_ctrl_c_interrupts_at_once(preempt: PreemptContext) -> None:
    """Issue: the second Ctrl-C is the ordinary one."""
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_sigterm_changes_nothing(preempt: PreemptContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that repeats itself does not kill the checkpoint being written, however late it does so."""
    monkeypatch.setattr(_preempt, "PATIENCE_SECONDS", -1.0)
    assert preempt.should_preempt() is False
    for _ in range(3):
        signal.raise_signal(signal.SIGTERM)
    assert preempt.should_preempt() is True


def test_handlers_chain_and_come_back() -> None:
    """Issue: a handler that was there is called too, and is in place again after close."""
    heard: list[int] = []

    def mine(number: int, frame: object) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGTERM, mine)
    try:
        context = PreemptContext().start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.should_preempt() is True
        context.close()
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored() -> None:
    """nohup ignores what it ignores: such a signal is left alone."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        context = PreemptContext().start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.should_preempt() is False
        context.close()
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What the handlers heard that a script had for SIGTERM and SIGUSR2 before any context."""
    names: list[str] = []
    numbers = (signal.SIGTERM, signal.SIGUSR2)
    before = [signal.signal(number, lambda n, _: names.append(signal.Signals(n).name)) for number in numbers]
    yield names
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_each_kind_of_signal_that_waits_is_delivered(heard: list[str]) -> None:
    """Decision 3: while a context closes nothing is cut off, and no request to stop is lost for another one."""
    context = PreemptContext().start()
    context.hold()
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert heard == []
    context.close()
    assert heard == ["SIGUSR2", "SIGTERM"]


def test_what_was_printed_is_written_before_the_signal_is_delivered(
    heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 3: everything is written, so the last lines of a log file too; a signal ends a process without that."""

    class Output(io.StringIO):
        def flush(self) -> None:
            heard.append("flush")

    context = PreemptContext().start()
    context.hold()
    os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr(sys, "stdout", Output())
    monkeypatch.setattr(sys, "stderr", None)
    context.close()
    monkeypatch.undo()
    assert heard == ["flush", "SIGTERM"]


def test_a_handler_that_came_later_hears_a_waiting_signal_once(heard: list[str]) -> None:
    """Issue: a script that wraps our handler is not called a second time; the handler before ours still is."""
    context = PreemptContext().start()
    ours, outer = signal.getsignal(signal.SIGTERM), list[int]()
    assert callable(ours)

    def wrap(number: int, frame: FrameType | None) -> None:
        outer.append(number)
        ours(number, frame)

    signal.signal(signal.SIGTERM, wrap)
    context.hold()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (len(outer), heard) == (1, [])
    context.close()
    assert (len(outer), heard) == (1, ["SIGTERM"])
    os.kill(os.getpid(), signal.SIGTERM)
    assert (len(outer), heard) == (2, ["SIGTERM", "SIGTERM"])


def test_contexts_that_close_in_the_order_they_opened_swallow_nothing(heard: list[str]) -> None:
    """Issue: after the last close a signal does what it did before the first start."""
    first, second = PreemptContext().start(), PreemptContext().start()
    first.close()
    second.close()
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == ["SIGTERM"]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("while_closing", [False, True])
def test_a_context_closed_by_another_thread_swallows_nothing(while_closing: bool, heard: list[str]) -> None:
    """Issue: only the main thread can give handlers back, so the next signal does."""
    context = PreemptContext().start()
    context.hold()
    if while_closing:
        os.kill(os.getpid(), signal.SIGTERM)
    closing = threading.Thread(target=context.close)
    closing.start()
    closing.join()
    if not while_closing:
        os.kill(os.getpid(), signal.SIGTERM)
    assert eventually(lambda: heard == ["SIGTERM"])
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_is_heard_without_a_stderr(preempt: PreemptContext) -> None:
    """Decision 3: that nobody reads what is said about it does not turn a request to stop into a crash."""
    stderr = os.dup(2)
    os.close(2)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    assert preempt.should_preempt() is True


def test_it_can_be_used_in_a_with_statement() -> None:
    """A script that makes its own PreemptContext uses it in a `with`: it watches inside, and not after."""
    before = signal.getsignal(signal.SIGTERM)
    with PreemptContext() as preempt:
        assert not preempt.should_preempt()
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
