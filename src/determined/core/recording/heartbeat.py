"""Reports that a run started, what it runs on, and how it ended, also by `sys.exit` or an uncaught error."""

from __future__ import annotations

import contextlib
import sys
import threading
from types import TracebackType
from typing import Any, NoReturn

from determined import errors
from determined._redact import redacted_text
from determined.core.recording.run_description import GIT_SECONDS, RunDescription, find_environment
from determined.core.recording.shipper import Shipper
from determined.store.messages import EnvironmentReport, RunStateReport

LONGEST_REASON = 500


class Heartbeat:
    """Reports RUNNING at the start, and at the end how the run ended.

    Args:
        shipper: Takes the reports.
        watches_exit: Also notice an uncaught exception and `sys.exit` with a failure, for runs without a `with` block.
    """

    def __init__(self, shipper: Shipper, watches_exit: bool = False) -> None:
        self._shipper = shipper
        self._watches_exit = watches_exit
        self._error: BaseException | None = None
        self._previous: tuple[Any, Any] | None = None

    def start(self) -> None:
        """Report that the run is up."""
        self._shipper.put(RunStateReport("RUNNING"))
        if self._watches_exit:
            self._previous = (sys.excepthook, sys.exit)
            # Kept as attributes: a bound method is a new object each time, and close() asks whether it is still ours.
            self._hooks = (self._uncaught, self._exit)
            sys.excepthook = self._hooks[0]
            sys.exit = self._hooks[1]

    def close(self, error: BaseException | None = None, *, was_asked_to_stop: bool = False, reason: str = "") -> None:
        """Report how the run ends.

        Args:
            error: What it ends with.
            was_asked_to_stop: It leaves because it was asked to, with work left.
            reason: Why training ended, if it ended well.
        """
        if self._previous is not None:
            if sys.excepthook is self._hooks[0]:
                sys.excepthook = self._previous[0]
            if sys.exit is self._hooks[1]:
                sys.exit = self._previous[1]
            self._previous = None
        self._shipper.put(end_state(error or self._error, was_asked_to_stop, reason))

    def _uncaught(self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        self._error = value
        assert self._previous is not None
        self._previous[0](kind, value, traceback)

    def _exit(self, status: str | int | None = None, /) -> NoReturn:
        self._error = SystemExit(status)
        raise SystemExit(status)


def end_state(error: BaseException | None, was_asked_to_stop: bool = False, reason: str = "") -> RunStateReport:
    """Return the report of a run that ends with this error, or with none.

    A run that was asked to stop and saved its work is PAUSED: it can be continued. One that Ctrl-C cut off is CANCELED.
    """
    if isinstance(error, errors.InvalidHP):
        return RunStateReport("COMPLETED", f"invalid hyperparameters: {_one_line(error)}")
    if error is None or isinstance(error, SystemExit):
        if was_asked_to_stop:
            return RunStateReport("PAUSED", reason or "asked to stop")
        if error is None or error.code in (None, 0):
            return RunStateReport("COMPLETED", reason)
        return RunStateReport("ERROR", f"exited with status {redacted_text(str(error.code))}")
    if isinstance(error, KeyboardInterrupt):
        return RunStateReport("CANCELED", "interrupted")
    text = _one_line(error)
    return RunStateReport("ERROR", f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _one_line(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - an exception that cannot even be shown
        return ""
    return redacted_text(lines[0])[:LONGEST_REASON] if lines else ""


class EnvironmentNote:
    """Finds out in a thread of its own what the run runs on, and reports it: nobody waits for git."""

    def __init__(self, shipper: Shipper, description: RunDescription) -> None:
        self._shipper = shipper
        self._description = description
        self._thread = threading.Thread(target=self._run, name="determined-environment", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Wait for the report, for a bounded time."""
        if self._thread.ident is not None:
            self._thread.join(GIT_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # the run goes on, and is recorded without
            self._shipper.put(EnvironmentReport(find_environment(self._description)))
