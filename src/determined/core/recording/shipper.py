"""Shipper: sends reports to the link in the background, in order; a report costs the training thread one append.

Reports that the link cannot take now are kept and sent again; what it refuses for good, the next report raises.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Sequence

from determined import errors
from determined.core.recording.link import Link, NullLink
from determined.store.messages import MetricReport, Report, RunStateReport

logger = logging.getLogger("determined.core")

KEPT_REPORTS = 10_000
"""How many reports are kept while the link is unavailable; then the oldest are lost, and counted."""
LINGER_SECONDS = 0.8
"""Reports that come within this time of each other leave together: a fast loop makes hundreds a second."""
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
HISTORY_SECONDS = 10.0
"""How long to flush before the store is asked about this run's own reports."""
LAST_CHANCE_SECONDS = 5.0
NOTICE_SECONDS = 10.0
STUCK_SECONDS = 30.0
"""At the end, a link that has not delivered anything for this long is given up."""
SECURE_SECONDS = 5.0
"""How long a checkpoint waits for the store to have what came before it, where no file can be written."""
BEAT_SECONDS = 30.0
"""How often a run with nothing to report records that it is alive."""

Follower = Callable[[Sequence[Report]], None]


class Shipper:
    """A queue that one background thread empties into a link.

    The thread starts with the first report. Nothing ever blocks or breaks the caller: if the link is unavailable,
    reports are kept and retried, at most `KEPT_REPORTS` of them in memory. More than that, and what is left at the end,
    the link may keep in a file; if it cannot, they are lost, with one warning. If the link refuses a
    report, that error is raised by every later `put()` and by `close()`.

    Args:
        link: Where reports go.
        follower: Gets all reports too, in the same thread (TensorBoard files are written this way). Its
            errors are logged once and end it.
    """

    def __init__(self, link: Link | None = None, follower: Follower | None = None) -> None:
        self._link = link or NullLink()
        self._follower = follower
        self._is_off = type(self._link) is NullLink and follower is None
        self._changed = threading.Condition()
        self._waiting: collections.deque[Report] = collections.deque()
        self._sending: list[Report] = []  # what the thread has taken and not yet delivered
        self._put = 0  # how many reports there were so far
        self._delivered = 0
        self._copying = threading.Lock()
        self._copied = 0  # of those that were put, how many have been copied to the disk, or have arrived
        self._copies: collections.deque[int] = collections.deque()  # those on the disk, by the last report in each
        self._lost = 0
        self._kept = 0  # at the end, in a file
        self._unavailable: errors.LinkUnavailable | None = None
        self._refusal: Exception | None = None
        self._closing = False
        self._is_hurried = False  # somebody waits for the reports to be delivered
        self._is_idle = False  # the thread waits for a first report
        self._give_up_at = float("inf")
        self._thread: threading.Thread | None = None

    def put(self, report: Report) -> None:
        """Queue a report; it is delivered soon, after all earlier ones."""
        if self._is_off:
            return
        with self._changed:
            if self._refusal is not None:
                raise self._refusal
            if self._closing:
                raise RuntimeError("This context is closed: reports go inside the `with core.init()` block.")
            self._waiting.append(report)
            self._put += 1
            if len(self._waiting) > KEPT_REPORTS:
                self._waiting.popleft()
                self._lost += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="determined-reports", daemon=True)
                self._thread.start()
            elif self._is_idle:
                self._changed.notify_all()
            if self._link.is_managed and isinstance(report, MetricReport) and report.group == "validation":
                self._is_hurried = True  # a search decides by it whether this trial goes on
                self._changed.notify_all()

    def mark_pending(self, storage_id: str) -> None:
        """Note that a checkpoint is about to be stored or deleted: if this process dies now, the next run looks."""
        self._link.mark_pending(storage_id)

    def secure(self) -> None:
        """Copy every undelivered report to the disk: a checkpoint that survives a kill never lacks those before it.

        It costs one small file, and waits for the store only if no file can be written.
        """
        with self._copying:
            with self._changed:
                pending = [*self._sending, *self._waiting]
                number = self._put
            new = pending[-(number - self._copied) :] if number > self._copied else []
            if not new or self._link.copy(new, number):
                self._copied = number
                self._copies.extend([number] if new else [])
                return
        if self._unavailable is None:
            self.flush(SECURE_SECONDS)

    def _drop_copies(self) -> None:
        """Remove the copies of delivered reports."""
        with self._copying:
            with self._changed:
                arrived = self._put - len(self._sending) - len(self._waiting)
            self._copied = max(self._copied, arrived)
            while self._copies and self._copies[0] <= arrived:
                self._link.drop_copy(self._copies.popleft())

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until everything that was put is delivered; False if it could not be in time."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._waiting or self._sending:
                self._is_hurried = True
                self._changed.notify_all()
                left = deadline - time.monotonic()
                if left <= 0 or self._refusal is not None or not self._changed.wait(left):
                    return not (self._waiting or self._sending)
        return True

    def close(self) -> None:
        """Deliver what is left, then stop. A link that stays unavailable is given a few last seconds.

        Raises:
            Exception: What the link refused, if it did.
        """
        with self._changed:
            self._closing = True
            self._give_up_at = time.monotonic() + LAST_CHANCE_SECONDS
            self._changed.notify_all()
        self._join()
        if self._kept:
            logger.warning(
                "%d reports could not be written to %s (%s). They are kept, and the next run delivers them.",
                self._kept, self._link.place, self._unavailable,
            )  # fmt: skip
        if self._lost:
            logger.warning("%d reports were lost: %s (%s).", self._lost, self._link.place, self._unavailable)
        self._kept = self._lost = 0
        if self._refusal is not None:
            raise self._refusal

    def _join(self) -> None:
        """Wait for the thread, as long as it delivers something."""
        thread, self._thread = self._thread, None
        delivered, since = -1, time.monotonic()
        while thread is not None and thread.is_alive():
            if delivered != self._delivered:
                delivered, since = self._delivered, time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                self._lost += self._left()
                self._unavailable = self._unavailable or errors.LinkUnavailable("it does not answer")
                return  # a daemon: it ends with the process
            thread.join(NOTICE_SECONDS)
            if thread.is_alive():
                logger.info("Waiting for %d reports to be written to %s ...", self._left(), self._link.place)

    def _left(self) -> int:
        return len(self._sending) + len(self._waiting)

    def _run(self) -> None:
        while (reports := self._take()) is not None:
            if not reports:
                self._beat()
                continue
            self._follow(reports)
            try:
                self._deliver(reports)
            except Exception as refusal:  # noqa: BLE001 - the next report raises it
                with self._changed:
                    self._refusal = refusal
                    self._sending = []
                    self._waiting.clear()
                    self._changed.notify_all()
                self._drop_copies()
                self._end_refused(refusal)
                return
            with self._changed:
                self._delivered += len(self._sending)
                self._sending = []
                self._changed.notify_all()
            self._drop_copies()

    def _take(self) -> list[Report] | None:
        """Return all queued reports; none if none came for `BEAT_SECONDS`, and None when there will be no more."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._is_idle = True
                if not self._changed.wait(BEAT_SECONDS):
                    return []
            self._is_idle = False
            self._changed.wait_for(lambda: self._closing or self._is_hurried, LINGER_SECONDS)
            self._is_hurried = False
            reports = list(self._waiting)
            self._waiting.clear()
            self._sending = reports
            return reports

    def _deliver(self, reports: list[Report]) -> None:
        attempt = 0
        while True:
            try:
                self._link.send(reports)
            except errors.LinkUnavailable as unavailable:
                if self._unavailable is None:
                    logger.warning("Reports cannot be written now (%s); training goes on, they are kept.", unavailable)
                self._unavailable = unavailable
                is_last = not self._wait_to_retry(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                is_full = len(self._waiting) > KEPT_REPORTS // 2
                if (is_last or is_full) and self._keep_pending(reports, is_last):
                    return
                attempt += 1
            else:
                if attempt:
                    logger.info("Reports are written again to %s.", self._link.place)
                    self._unavailable = None if not self._lost else self._unavailable
                return

    def _end_refused(self, refusal: Exception) -> None:
        """Record that the run ended, with the reason: nothing more of it will be recorded."""
        try:
            self._link.send([RunStateReport("ERROR", f"{type(refusal).__name__}: {refusal}")])
        except Exception as failed:  # noqa: BLE001 - the refusal itself says more
            logger.debug("That the run has ended is not recorded: %s", failed)

    def _keep_pending(self, reports: list[Report], is_last: bool) -> bool:
        """Have the link keep all undelivered reports in a file; at the end, what it cannot keep is lost."""
        with self._changed:
            waiting = list(self._waiting)
            self._waiting.clear()
        is_kept = self._link.keep(reports + waiting)
        if is_kept:
            self._kept += len(reports) + len(waiting) if is_last else 0
        elif is_last:
            self._lost += len(reports) + len(waiting)
        else:
            with self._changed:
                self._waiting.extendleft(reversed(waiting))
        return is_kept or is_last

    def _beat(self) -> None:
        try:
            self._link.beat()
        except Exception as failed:  # noqa: BLE001 - the next report that fails warns
            logger.debug("That the run is alive is not recorded in %s: %s", self._link.place, failed)

    def _wait_to_retry(self, seconds: float) -> bool:
        """Pause between attempts; False when the run is closing and its last chance is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)
            if not self._closing:
                return True
        time.sleep(min(RETRY_SECONDS[0], seconds))
        return time.monotonic() < self._give_up_at

    def _follow(self, reports: list[Report]) -> None:
        if self._follower is None:
            return
        try:
            self._follower(reports)
        except Exception:
            logger.warning("Writing TensorBoard files failed; no more are written in this run.", exc_info=True)
            self._follower = None
