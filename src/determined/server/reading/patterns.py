"""Regular expressions that a person typed, run in a process of their own.

Python's `re` may take for ever on a single line, and stops every thread of its process meanwhile. So a small process
does it; if it takes too long it is ended, and the person reads why.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType

from determined.errors import InvalidValue

MOST_SECONDS = 3.0

_PROGRAM = """
import json, re, sys
pattern = re.compile(json.loads(sys.stdin.readline()))
for line in sys.stdin:
    print(json.dumps([pattern.search(text) is not None for text in json.loads(line)]), flush=True)
"""


class Pattern:
    """A regular expression at work, for the length of a `with` block.

    Args:
        regex: What is looked for.
        seconds: For how long at most; 3 by default.

    Raises:
        InvalidValue: It is no regular expression; or, while it works, it takes too long.

    Example::

        with Pattern("loss=[0-9]+") as pattern:
            assert pattern.matches(["loss=3", "done"]) == [True, False]
    """

    def __init__(self, regex: str, seconds: float | None = None) -> None:
        try:
            re.compile(regex)
        except (re.error, OverflowError, RecursionError) as wrong:
            raise InvalidValue(f"{regex!r} is not a regular expression: {wrong}.") from None
        self._regex = regex
        self._seconds = MOST_SECONDS if seconds is None else seconds
        self._process: subprocess.Popen[str] | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Pattern:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def matches(self, texts: Sequence[str]) -> list[bool]:
        """Return of each text whether something in it matches."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(list(texts)) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise InvalidValue(
                f"{self._regex!r} took longer than {self._seconds:g} s, so it was given up. "
                "Avoid repeats inside of repeats, such as (a+)+, or search for a text."
            )
        found: list[bool] = json.loads(answer)
        return found

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._timer = threading.Timer(self._seconds, self._process.kill)
        self._timer.daemon = True
        self._timer.start()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._regex) + "\n")
        return self._process
