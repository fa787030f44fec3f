"""PreemptContext.should_preempt(): whether to save and stop, answered on all ranks at the same call.

The answer comes from a signal to this process or from the link. The caller decides what to do about it.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from determined import errors
from determined.core.ranks.distributed import DistributedContext
from determined.core.recording.link import Link, NullLink
from determined.core.recording.shipper import Shipper
from determined.store.messages import PreemptionAcknowledged, Signal

STOPPING = "Stopping at the next safe point, with a checkpoint."
PATIENCE_SECONDS = 1.0


class StopSignals:
    """SIGTERM, SIGUSR2 and the first Ctrl-C as requests to stop.

    Handlers that were there are called too, and are back after `restore()`. A signal between `hold()` and `restore()`
    must not cut off what is being written: it is delivered after that.
    Only the main thread can have handlers; in others nothing is installed. In a process that was forked from this one
    the handlers before them are called, except for the first Ctrl-C, which a terminal sends to all processes.
    Where nobody has ever asked whether to stop, a request that is repeated after `PATIENCE_SECONDS` calls those too.
    """

    def __init__(self, prints: bool) -> None:
        self.received = False
        self.number: int | None = None  # of the first that came
        self._first_received = 0.0
        self.is_polled = False  # whether anybody has ever asked
        self._prints = prints
        self._process = 0  # the one that installed them
        self._previous: dict[int, Any] = {}
        self._holds = False
        self._is_over = False
        self._held: list[int] = []

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        names = ("SIGTERM", "SIGUSR2", "SIGINT")
        for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and friends mean it
                self._previous[number] = signal.signal(number, self._handle)

    def hold(self) -> None:
        self._holds = True

    def restore(self) -> None:
        self._is_over = True
        # A handler that was installed after ours stays; it has seen what is held, and only the one before ours has not.
        ours = {number for number in self._previous if self._is_ours(number)}
        if threading.current_thread() is threading.main_thread():
            for number in ours:
                self._restore_handler(number)
        held, self._held = self._held, []
        if held:
            _flush_output()
        for number in held:
            if number in ours:
                signal.raise_signal(number)
            else:
                self._call_previous(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_copy = os.getpid() != self._process
        if self._is_over or (is_copy and number != signal.SIGINT):
            self._call_previous(number, frame)
            return
        again = self.received
        if again and (number == signal.SIGINT or self._is_unanswered()):
            self._call_previous(number, frame)
            return
        if not again:
            self.received, self.number, self._first_received = True, number, time.monotonic()
        if self._prints and not again and not is_copy:
            self._print_notice(number)
        if not self._holds:
            previous = self._previous.get(number)
            if callable(previous) and previous is not signal.default_int_handler:
                previous(number, frame)
        elif number not in self._held and (self._held or not again):  # one that stops already needs no second signal
            self._held.append(number)

    def _is_unanswered(self) -> bool:
        """Whether nobody asks; repeated at once it may be the same request, sent to a process and to its group."""
        waited = time.monotonic() - self._first_received
        return not self.is_polled and not self._holds and waited > PATIENCE_SECONDS

    def _call_previous(self, number: int, frame: FrameType | None) -> None:
        """Call the handler before ours, where a later handler, or a close in a thread, left ours installed."""
        previous = self._previous.get(number)
        if self._is_ours(number):
            self._restore_handler(number)
            signal.raise_signal(number)
        elif callable(previous):
            previous(number, frame)

    def _is_ours(self, number: int) -> bool:
        return signal.getsignal(number) == self._handle

    def _restore_handler(self, number: int) -> None:
        previous = self._previous.get(number)
        signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def _print_notice(self, number: int) -> None:
        text = "Leaving once everything is written." if self._holds else STOPPING
        text += " Ctrl-C again stops at once." if number == signal.SIGINT else ""
        with contextlib.suppress(OSError):  # stderr may be closed, or a pipe that nobody reads
            os.write(2, f"\n{text}\n".encode())  # no logging here: the interrupted code may hold a lock of it


def _flush_output() -> None:
    """Write out what was printed: a process that a signal ends does not do so itself."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, a pipe that nobody reads, or None
            stream.flush()


logger = logging.getLogger("determined.core")

POLL_SECONDS = 1.0
MANAGED_POLL_SECONDS = 0.25
"""A trial of a search is asked more often: what it trains after it was stopped is for nothing."""
FIRST_ANSWER_SECONDS = 5.0
EXCHANGE_SECONDS = 0.25
"""Ranks talk about preemption about this often, however often they ask."""
MOST_CALLS_BETWEEN_EXCHANGES = 128


class PreemptMode(enum.Enum):
    """Who asks whether to stop.

    `WorkersAskChief`: every rank calls `should_preempt()`, in step; all get the same answer at the same call.
    `ChiefOnly`: only the chief calls it, and tells the others in its own way.
    `WorkersAskMaster`: any rank calls it at any time; answers may differ for a moment.
    """

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext:
    """Says when to save and leave. Reached as `core_context.preempt`.

    SIGTERM, SIGUSR2 and the first Ctrl-C are requests to stop, as is one through the link; a second Ctrl-C interrupts
    at once. Once the answer was yes it stays yes.

    Example::

        for batch in batches:
            train(batch)
            if context.preempt.should_preempt():
                save()
                return
    """

    def __init__(
        self,
        distributed: DistributedContext | None = None,
        mode: PreemptMode = PreemptMode.WorkersAskChief,
        *,
        link: Link | None = None,
        shipper: Shipper | None = None,
    ) -> None:
        self._distributed = distributed or DistributedContext()
        self._mode = PreemptMode(mode)
        self._shipper = shipper or Shipper()
        asks_link = self._mode is PreemptMode.WorkersAskMaster or self._distributed.rank == 0
        self._watcher = _PreemptionWatcher(link or NullLink()) if asks_link else None
        self._signals = StopSignals(prints=self._distributed.rank == 0)
        self._exchange = _Exchange(self._distributed)
        self._started = False
        self._closed = False
        self._acknowledged = False

    def start(self) -> PreemptContext:
        """Begin to watch. `core.Context` does this."""
        if self._started:
            raise RuntimeError("PreemptContext.start() was already called.")
        self._started = True
        self._signals.install()
        if self._watcher is not None:
            self._watcher.start()
        return self

    def __enter__(self) -> PreemptContext:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self) -> None:
        """Stop asking the link; a signal that comes from now on waits until `close()`. `core.Context` does this."""
        if self._started:
            self._signals.hold()
            if self._watcher is not None:
                self._watcher.close()

    def close(self) -> None:
        """Stop watching, and restore the signal handlers that were there; a signal that waits is delivered to them."""
        if self._started and not self._closed:
            self._closed = True
            self.hold()
            self._signals.restore()

    def should_preempt(self, auto_ack: bool = True, *, at_once: bool = False) -> bool:
        """Whether to save and leave now.

        Args:
            auto_ack: Acknowledge the first yes. With False, call `acknowledge_preemption_signal()` before leaving, or
                leaving counts as having finished.
            at_once: Have ranks exchange what they know at this call, as one does where they meet anyway; every rank
                says the same. Otherwise it may take a few calls until one rank's signal is known to all.

        Raises:
            RuntimeError: Called before `start()`, or in `ChiefOnly` mode on a rank other than the chief.
        """
        if not self._started:
            raise RuntimeError("should_preempt() before start(): use it inside `with core.init() as context:`.")
        if self._mode is PreemptMode.ChiefOnly and self._distributed.rank != 0:
            raise RuntimeError(
                f"should_preempt() in ChiefOnly mode is for the chief; this is rank {self._distributed.rank}. "
                "Call it on rank 0, or open core.init() with PreemptMode.WorkersAskChief."
            )
        if self._mode is PreemptMode.WorkersAskChief and self._distributed.size > 1:
            answer = self._exchange.ask(self._is_asked_to_stop, at_once)
        else:
            answer = self._is_asked_to_stop()
        if answer and auto_ack and self._watcher is not None:
            self.acknowledge_preemption_signal()
        return answer

    def any_rank_stops(self, wants: bool) -> bool:
        """Whether any rank is asked to stop, or `wants` to; one exchange for both questions. Collective."""
        if self._distributed.size == 1:
            return self.should_preempt() or wants
        if self._mode is not PreemptMode.WorkersAskChief:
            asked = self.should_preempt(at_once=True)
            return any(self._distributed.allgather(wants)) or asked
        asked, wanted = self._exchange.ask_all(self._is_asked_to_stop, wants)
        if asked and self._watcher is not None:
            self.acknowledge_preemption_signal()
        return asked or wanted

    def acknowledge_preemption_signal(self) -> None:
        """Report that this process stops with work left and wants to be continued; later calls do nothing."""
        if not self._acknowledged:
            self._acknowledged = True
            self._shipper.put(PreemptionAcknowledged())

    @property
    def was_acknowledged(self) -> bool:
        """Whether this process has reported that it stops with work left."""
        return self._acknowledged

    @property
    def asked_by(self) -> str:
        """Who asked to stop, as far as this rank knows: "" if nobody did."""
        if self._signals.number is not None:
            return "Ctrl-C" if self._signals.number == signal.SIGINT else signal.Signals(self._signals.number).name
        if self._watcher is not None and self._watcher.is_asked:
            return "a request in the store, such as det trial stop"
        return "another rank" if self._acknowledged else ""

    def _is_asked_to_stop(self) -> bool:
        self._signals.is_polled = True
        if self._signals.received or self._watcher is None:
            return self._signals.received
        if self._watcher.awaits_answer:  # a request may be waiting already: give it a little time
            self._watcher.answered.wait(FIRST_ANSWER_SECONDS)
        return self._watcher.is_asked


class _Exchange:
    """Gives all ranks the same answer at the same call, without an exchange at every call.

    Every rank takes part in an exchange at the same calls: each exchange says after how many calls the next one comes.
    Fast loops talk about every `EXCHANGE_SECONDS`; loops slower than that talk at every call.
    """

    def __init__(self, distributed: DistributedContext) -> None:
        self._distributed = distributed
        self._answer = False
        self._calls_left = 0
        self._stride = 1
        self._last_exchange = float("-inf")

    def ask(self, is_asked_to_stop: Callable[[], bool], at_once: bool = False) -> bool:
        """Collective, though most calls exchange nothing."""
        if self._answer:
            return True
        if self._calls_left > 0 and not at_once:
            self._calls_left -= 1
            return False
        return self.ask_all(is_asked_to_stop)[0]

    def ask_all(self, is_asked_to_stop: Callable[[], bool], wants: bool = False) -> tuple[bool, bool]:
        """Whether any rank is asked to stop, and whether any wants to. Collective."""
        # Every rank answers, since a scheduler may send its signal to any one of them. The chief's stride counts.
        answers = self._distributed.allgather((is_asked_to_stop(), self._next_stride(), wants))
        self._answer = self._answer or any(stop for stop, _, _ in answers)
        self._stride = answers[0][1]
        self._calls_left = self._stride - 1
        return self._answer, any(wanted for _, _, wanted in answers)

    def _next_stride(self) -> int:
        now = time.monotonic()
        seconds_per_call = (now - self._last_exchange) / self._stride
        self._last_exchange = now
        if seconds_per_call * self._stride >= EXCHANGE_SECONDS:
            return max(1, min(self._stride, int(EXCHANGE_SECONDS / seconds_per_call)))
        return min(self._stride * 2, MOST_CALLS_BETWEEN_EXCHANGES)


class _PreemptionWatcher:
    """Asks the link now and then, in the background, and remembers a yes. A link that fails is asked again."""

    def __init__(self, link: Link, poll_seconds: float | None = None) -> None:
        self._link = link
        usual = MANAGED_POLL_SECONDS if link.is_managed else POLL_SECONDS
        self._poll_seconds = usual if poll_seconds is None else poll_seconds
        self.answered = threading.Event()
        self.awaits_answer = False
        """Whether the link may ask to stop as soon as it is asked, and has not answered yet."""
        self.is_asked = False
        """Whether the link has asked to stop."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._link.listens:
            self.awaits_answer = self._link.is_managed
            self._thread = threading.Thread(target=self._run, name="determined-preemption", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        has_warned = False
        while not self._stop.is_set() and not self.is_asked:
            try:
                self.is_asked = self._link.signal() is Signal.PREEMPT
            except Exception as failed:  # noqa: BLE001 - a link in trouble must not end training
                # Of a plain run the thread that writes its reports warns of the same.
                if not has_warned and (self._link.is_managed or not isinstance(failed, errors.LinkUnavailable)):
                    logger.warning("Cannot ask %s whether to stop (%s); asking again.", self._link.place, failed)
                has_warned = True
            self.awaits_answer = False
            self.answered.set()
            self._stop.wait(self._poll_seconds)
