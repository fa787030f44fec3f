"""The pipe between an agent and whoever started it: orders in, questions out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from determined.experiment.attempt.output import Lifeline, Order

LOST = {"reason": "node b is lost"}
FAILED = {"reason": "node c ended with exit code 3", "code": 3}
NONE_LOST: dict[str, str] = {}


class Ends:
    """A lifeline, and the ends of its pipes that whoever started the agent holds."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._questions, questions = os.pipe()
        self._files = [orders, self._orders, self._questions, questions]
        self.lifeline = Lifeline(orders, questions)

    def say(self, *answers: dict[str, object] | dict[str, str]) -> None:
        for answer in answers:
            os.write(self._orders, json.dumps(answer).encode() + b"\n")

    def asked(self) -> bytes:
        return os.read(self._questions, 100)

    def cut(self) -> None:
        self._files.remove(self._orders)
        os.close(self._orders)

    def close(self) -> None:
        for file in self._files:
            os.close(file)


@pytest.fixture
def ends() -> Iterator[Ends]:
    opened = Ends()
    yield opened
    opened.close()


def test_a_node_that_is_lost_makes_the_attempt_lost(ends: Ends) -> None:
    """P-95: ranks that failed because a node is lost are no failure of the trial, also if others have failed, too."""
    ends.say(FAILED, LOST)
    ends.lifeline.ask_for_loss()
    assert ends.asked() == b"lost?\n"
    assert ends.lifeline.order == Order("node b is lost", None)


def test_ranks_fail_by_themselves(ends: Ends) -> None:
    """P-92: if all nodes are there, the failure stays what it is; those of other nodes have followed from it."""
    ends.say(FAILED, NONE_LOST)
    ends.lifeline.ask_for_loss()
    assert ends.lifeline.order is None


def test_nobody_answers(ends: Ends) -> None:
    """P-95: an attempt whose actor is gone is lost."""
    ends.cut()
    ends.lifeline.ask_for_loss()
    assert ends.lifeline.order is not None
    assert ends.lifeline.order.code is None
