"""A progress bar in a terminal or a notebook. Its own thread reads the counters."""

from __future__ import annotations

import contextlib
import datetime
import logging
import numbers
import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from determined import _notebook
from determined._wording import visible
from determined.core.recording import log_capture
from determined.pytorch._plan import Batch, FitPlan
from determined.pytorch.display.console import say

if TYPE_CHECKING:
    from determined.pytorch._plan import Progress

logger = logging.getLogger("determined.pytorch")

LINE_SECONDS = 5.0
"""Validations are printed this often at most, if there is no bar."""
SHOWN_METRICS = 3
NOTEBOOK_SECONDS = 0.5
"""How often a notebook is updated."""
RATE_FRAMES = 60  # over which the rate is averaged there
BAR_CELLS = 24


class Bar:
    """A progress bar that shows nothing."""

    def show(self, metrics: dict[str, Any], *, validation: bool = False) -> None:
        """Show new metrics."""

    def close(self) -> None:
        """Take it off the screen."""


class ValidationLines(Bar):
    """A line for a validation now and then, instead of a bar."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def show(self, metrics: dict[str, Any], *, validation: bool = False) -> None:
        is_logged = logger.isEnabledFor(logging.INFO) and logger.hasHandlers()  # every report is logged there, too
        if not validation or is_logged or time.monotonic() - self._last < LINE_SECONDS:
            return
        self._last = time.monotonic()
        values = ", ".join(f"{name} {value:.6g}" for name, value in _numbers(metrics).items())
        say(f"Batch {metrics['batches']}, epoch {metrics['epochs']}: {values or 'validated'}")


class RichBar(Bar):
    """Batches, epochs, rate, metrics and the time left.

    It is drawn by a thread of its own, which reads how far training is, so that the loop does nothing for it.
    """

    def __init__(
        self, plan: FitPlan, progress: Progress, epoch_length: int, searcher_metric: str | None = None
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Display
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text(f"{task.speed:,.3g}/s" if task.speed else "", no_wrap=True)

        bar = self

        class Live(Display):
            def get_renderables(self) -> Any:
                if bar._is_ready:
                    bar._update()
                yield from super().get_renderables()

        self._is_ready = False
        self._progress = progress
        self._searcher_metric = searcher_metric
        self._texts = {"training": "", "validation": ""}
        total = _total(plan, epoch_length)
        self._display = Live(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}" + ("/{task.total:,}" if total is not None else "")),
            Rate(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[metrics]}"),
            # Its frames are not recorded as log lines. What is printed meanwhile is: see _record_printed_lines.
            console=Console(file=log_capture.unrecorded(sys.stderr)) if sys.stderr else Console(stderr=True),
            refresh_per_second=5,
            transient=False,
        )
        self._task = self._display.add_task("epoch 0", total=total, completed=progress.batches_trained, metrics="")
        self._is_ready = True
        streams = {sys.stderr, sys.stdout}
        self._display.start()
        _record_printed_lines()
        self._moved = _move_log_lines(streams)

    def show(self, metrics: dict[str, Any], *, validation: bool = False) -> None:
        from rich.markup import escape

        text = escape(_metrics_text(metrics, self._searcher_metric if validation else None))
        self._texts["validation" if validation else "training"] = f"[dim]val[/] {text}" if validation else text

    def close(self) -> None:
        self._update()
        self._display.stop()
        for handler, stream in self._moved:
            handler.setStream(stream)

    def _update(self) -> None:
        self._display.update(
            self._task,
            completed=self._progress.batches_trained,
            description=f"epoch {self._progress.epochs_trained}",
            metrics="  ".join(text for text in self._texts.values() if text),
        )


class NotebookBar(Bar):
    """The same as one line of text in a cell's output, without widgets.

    The notebook replaces the line. One that is drawn with carriage returns breaks at each print().
    """

    def __init__(
        self, plan: FitPlan, progress: Progress, epoch_length: int, searcher_metric: str | None = None
    ) -> None:
        self._progress = progress
        self._searcher_metric = searcher_metric
        self._texts = {"training": "", "validation": ""}
        self._total = _total(plan, epoch_length)
        self._seen: deque[tuple[float, int]] = deque(maxlen=RATE_FRAMES)
        self._shown = self._frame()
        self._replace = _notebook.show_text(self._shown)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="determined-bar", daemon=True)
        self._thread.start()

    def show(self, metrics: dict[str, Any], *, validation: bool = False) -> None:
        text = _metrics_text(metrics, self._searcher_metric if validation else None)
        self._texts["validation" if validation else "training"] = f"val {text}" if validation else text

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # the notebook was closed: train without a bar
            while not self._is_over.wait(NOTEBOOK_SECONDS):
                self._draw()
            self._draw()

    def _draw(self) -> None:
        if (frame := self._frame()) != self._shown:
            self._shown = frame
            self._replace(frame)

    def _frame(self) -> str:
        done, total = self._progress.batches_trained, self._total
        self._seen.append((time.monotonic(), done))
        (first, before), (last, _) = self._seen[0], self._seen[-1]
        rate = (done - before) / (last - first) if done > before else 0.0
        parts = [f"epoch {self._progress.epochs_trained}"]
        if total is None:
            parts.append(f"{done:,}")
        else:
            filled = min(BAR_CELLS, BAR_CELLS * done // max(total, 1))
            parts.append(f"{'█' * filled}{'░' * (BAR_CELLS - filled)} {done:,}/{total:,}")
        if rate:
            parts.append(f"{rate:,.3g}/s")
            if total is not None and done < total:
                parts.append(f"{datetime.timedelta(seconds=round((total - done) / rate))} left")
        return "  ".join(parts + [text for text in self._texts.values() if text])


def _metrics_text(metrics: dict[str, Any], first: str | None) -> str:
    """Return a few numeric metrics as text, with the one named `first` at the beginning."""
    shown = _numbers(metrics)
    if first in shown:
        shown = {first: shown.pop(first), **shown}
    return "  ".join(f"{visible(str(name))} {value:.4g}" for name, value in list(shown.items())[:SHOWN_METRICS])


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in metrics.items() if k not in ("batches", "epochs") and isinstance(v, numbers.Real)}


def _record_printed_lines() -> None:
    """Record what is printed while the bar is shown as it was printed, not as the display draws it."""
    for proxy in (sys.stdout, sys.stderr):
        if (stream := getattr(proxy, "rich_proxied_file", None)) is not None:
            log_capture.record_as(proxy, stream)


def _move_log_lines(screen: set[Any]) -> list[tuple[logging.StreamHandler[Any], Any]]:
    """Show log lines above the bar; return the handlers that were changed, with their streams."""
    handlers = [*logging.getLogger().handlers, *logging.getLogger("determined").handlers]
    moved = [(h, h.stream) for h in handlers if isinstance(h, logging.StreamHandler) and h.stream in screen]
    for handler, _ in moved:
        handler.setStream(sys.stderr)  # the display's stream, which draws lines above the bar
    return moved


def make_bar(
    plan: FitPlan, progress: Progress, epoch_length: int, is_chief: bool, searcher_metric: str | None = None
) -> Bar:
    """Return a bar on the chief if a person can see it, else lines. `DET_PROGRESS` can be `off`, `on` or `auto`."""
    setting = os.environ.get("DET_PROGRESS", "auto").lower()
    is_kernel = _notebook.is_kernel()
    can_see = is_kernel or (sys.stderr is not None and sys.stderr.isatty())
    if not is_chief or setting in ("off", "0", "false", "no"):
        return Bar()
    if setting == "auto" and not can_see:
        return ValidationLines()
    try:
        return (NotebookBar if is_kernel else RichBar)(plan, progress, epoch_length, searcher_metric)
    except Exception as failed:  # noqa: BLE001 - such as another bar on the screen
        logger.warning("The progress bar cannot be shown; training continues without it: %s", failed)
        return Bar()


def _total(plan: FitPlan, epoch_length: int) -> int | None:
    """Return how many batches there will be; None if the length of an epoch is unknown."""
    if isinstance(plan.max_length, Batch):
        return plan.length
    return None if epoch_length == sys.maxsize else plan.length * epoch_length
