"""Random streams: saved and restored as one."""

from __future__ import annotations

import io
import logging
import random
from typing import Any

import numpy as np
import pytest
import torch

from determined.pytorch import _rng
from determined.pytorch._rng import RngState


def draw() -> tuple[Any, ...]:
    return (random.random(), np.random.rand(), torch.rand(1).item(), np.random.randn())


def through_a_file(state: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def test_streams_continue() -> None:
    """T46: the state is read with weights_only, and draws continue where it was taken; the Gaussian half too."""
    np.random.randn()
    saved = through_a_file(RngState().state_dict())
    first = draw()
    draw()
    RngState().load_state_dict(saved)
    assert draw() == first


def test_looking_draws_nothing() -> None:
    """Taking the state changes nothing."""
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    first = draw()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    RngState().state_dict()
    assert draw() == first


def test_scripts_can_use_the_parts() -> None:
    """6.2: the keys of the original, each fit for its library."""
    saved = through_a_file(RngState().state_dict())
    assert list(saved) == ["cpu_rng_state", "np_rng_state", "random_rng_state"]
    first = draw()
    torch.set_rng_state(saved["cpu_rng_state"])
    np.random.set_state(saved["np_rng_state"])
    random.setstate(saved["random_rng_state"])
    assert draw() == first


def test_the_state_of_0_38_is_read() -> None:
    """6.2: numpy's words as an array, python's as a tuple, as the original pickled them."""
    saved = {
        "cpu_rng_state": torch.get_rng_state(),
        "np_rng_state": np.random.get_state(),
        "random_rng_state": random.getstate(),
    }
    first = draw()
    RngState().load_state_dict(saved)
    assert draw() == first


def test_a_device_that_is_gone_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """6.4: surplus GPU state is a warning."""
    with caplog.at_level(logging.WARNING):
        RngState().load_state_dict({**RngState().state_dict(), "gpu_rng_state": torch.get_rng_state()})
    assert "there is none here" in caplog.text


def test_derived_streams_differ_by_rank_and_place() -> None:
    """Decision 5: with another world size streams are re-derived, deterministically, per rank."""
    seen = {}
    for key in [(1, 5, 0), (1, 5, 1), (1, 6, 0), (2, 5, 0), (1, 5, 0)]:
        _rng.derive(*key)
        drawn = draw()
        assert seen.setdefault(key, drawn) == drawn
    assert len(set(seen.values())) == 4
