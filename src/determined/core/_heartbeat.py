"""How a run says that it came up and how it ended, also when nothing but `sys.exit` or an uncaught error tells."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, NoReturn

from determined.core._metrics import Shipper
from determined.store.messages import RunStateReport


class Heartbeat:
    """Reports RUNNING at the start, and COMPLETED or ERROR at the end.

    Args:
        shipper: Takes the reports.
        watches_exit: Also notice an uncaught exception and `sys.exit` with a failure, for runs without a `with` block.
    """

    def __init__(self, shipper: Shipper, watches_exit: bool = False) -> None:
        self._shipper = shipper
        self._watches_exit = watches_exit
        self._failed = False
        self._previous: tuple[Any, Any] | None = None

    def start(self) -> None:
        """The run is up."""
        self._shipper.put(RunStateReport("RUNNING"))
        if self._watches_exit:
            self._previous = (sys.excepthook, sys.exit)
            # Kept as attributes: a bound method is a new object each time, and close() asks whether it is still ours.
            self._hooks = (self._uncaught, self._exit)
            sys.excepthook = self._hooks[0]
            sys.exit = self._hooks[1]

    def close(self, failed: bool = False) -> None:
        """The run ends, well or not."""
        if self._previous is not None:
            if sys.excepthook is self._hooks[0]:
                sys.excepthook = self._previous[0]
            if sys.exit is self._hooks[1]:
                sys.exit = self._previous[1]
            self._previous = None
        self._shipper.put(RunStateReport("ERROR" if failed or self._failed else "COMPLETED"))

    def _uncaught(self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        self._failed = True
        assert self._previous is not None
        self._previous[0](kind, value, traceback)

    def _exit(self, status: str | int | None = None, /) -> NoReturn:
        self._failed = status not in (None, 0)
        raise SystemExit(status)
