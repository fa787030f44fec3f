"""Random streams kept before each batch: put back exactly, whatever was drawn and however little it shows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from determined.pytorch import _rng
from determined.pytorch._rng import KeptStreams, OwnStreams

DRAWS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "a whole round of python's words": lambda: random.getrandbits(32 * 624),
    "random.seed": lambda: random.seed(3),
    "numpy": np.random.rand,
    "numpy's normal numbers come in pairs": np.random.randn,
    "a whole round of numpy's words": lambda: np.random.rand(312),
    "np.random.seed": lambda: np.random.seed(3),
    "torch": lambda: torch.rand(1),
    "torch's normal numbers come in pairs": lambda: torch.randn(1).item(),
    "all": lambda: (random.gauss(0, 1), np.random.randn(3), torch.rand(1)),
}


def current() -> tuple[Any, ...]:
    name, words, *rest = np.random.get_state()
    return random.getstate(), (name, words.tolist(), *rest), torch.get_rng_state().tolist()


@pytest.fixture(autouse=True, params=["watched", "copied"])
def streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of the test's own; once as if memory were laid out in a way that nobody knows."""
    if request.param == "copied":
        monkeypatch.setattr(_rng, "_words_at", lambda address, expected: None)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)


@pytest.mark.parametrize("first", DRAWS)
def test_streams_are_put_back(first: str) -> None:
    """Kept again after a draw, and put back after another: each time the streams are what they were."""
    kept = KeptStreams()
    for second in (*DRAWS, *DRAWS):
        DRAWS[first]()
        kept.keep()
        before = current()
        DRAWS[second]()
        kept.put_back()
        assert current() == before
        DRAWS[second]()


@pytest.mark.parametrize("draw", DRAWS)
def test_own_streams_go_on_beside_those_of_the_process(draw: str) -> None:
    """Blocks on streams of one's own draw what one long block draws, and the process notices none of it."""
    own, whole = OwnStreams("key", 1), OwnStreams("key", 1)
    with whole:
        for _ in range(3):
            DRAWS[draw]()
        expected = current()
    for _ in range(3):
        before = current()
        with own:
            DRAWS[draw]()
        assert current() == before
        DRAWS["all"]()
    with own:
        assert current() == expected
    with OwnStreams("key", 2):
        assert current() != expected


def test_own_streams_inside_others() -> None:
    """A loader that is read by another loader has its own as well."""
    outer, inner = OwnStreams("outer"), OwnStreams("inner")
    before = current()
    with outer:
        random.random()
        at_outer = current()
        with inner:
            DRAWS["all"]()
        assert current() == at_outer
    assert current() == before


def test_the_words_are_where_they_are_looked_for(request: pytest.FixtureRequest) -> None:
    """On the platforms that are tested, streams are watched rather than copied."""
    if "watched" in request.node.name:
        kept = KeptStreams()
        assert kept._python_words is not None
        assert kept._numpy_words is not None
