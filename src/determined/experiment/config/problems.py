"""What is wrong with an experiment configuration, as a list: one problem per line, each with its path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Problem(NamedTuple):
    """One mistake: where it is (`searcher.max_trials`, `labels[2]`), and what to do about it."""

    path: str
    reason: str

    def __str__(self) -> str:
        separator = "" if not self.path or self.path.startswith("[") else "."
        return f"<config>{separator}{self.path}: {self.reason}"


def listed(problems: Iterable[Problem]) -> str:
    """All problems under one heading, as people read them."""
    return "\n".join(["invalid experiment configuration", *(str(problem) for problem in problems)])
