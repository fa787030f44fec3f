"""The generator: bit for bit the legacy stream of numpy, and it survives JSON."""

from __future__ import annotations

import json
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import errors
from determined.experiment.generator import Generator

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_doubles_are_those_of_numpy(seed: int) -> None:
    """2.3: `u = ((a>>5)*2^26 + (b>>6)) / 2^53` from two draws of RandomState(seed)."""
    generator, numpy = Generator(seed), np.random.RandomState(seed)
    assert [generator.uniform() for _ in range(700)] == [numpy.random_sample() for _ in range(700)]


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(0, 2**40))
def test_integers_are_those_of_numpy(seed: int, last: int) -> None:
    """2.3: an integer in 0..n is a draw masked to the bits of n, drawn again until it fits."""
    generator, numpy = Generator(seed), np.random.RandomState(seed)
    ours = [generator.integer(last) for _ in range(20)]
    assert ours == [numpy.randint(0, last + 1, dtype=np.uint64) if last else 0 for _ in range(20)]


def test_zero_draws_nothing() -> None:
    """2.3: n = 0 draws nothing."""
    one, other = Generator(7), Generator(7)
    assert one.integer(0) == 0
    assert one.word() == other.word()


def test_request_ids_are_version_4() -> None:
    """2.3: the UUID takes four draws, little-endian bytes, then version and variant bits are forced."""
    generator, numpy = Generator(3), np.random.RandomState(3)
    made = uuid.UUID(generator.uuid4())
    assert (made.version, made.variant) == (4, uuid.RFC_4122)
    raw = numpy.randint(0, 2**32, 4, dtype=np.uint32).astype("<u4").tobytes()
    assert made == uuid.UUID(bytes=raw, version=4)
    assert generator.word() == numpy.randint(0, 2**32, dtype=np.uint32)


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(0, 1500))
def test_a_restored_generator_goes_on(seed: int, drawn: int) -> None:
    """P-24: state as JSON text, anywhere in the stream, continues it exactly."""
    generator = Generator(seed)
    for _ in range(drawn):
        generator.word()
    later = Generator.restore(json.loads(json.dumps(generator.snapshot())))
    assert [later.word() for _ in range(700)] == [generator.word() for _ in range(700)]


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "7", None])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    """The message has the value and the range."""
    with pytest.raises(errors.SearchError, match="from 0 to 4294967295"):
        Generator(seed)
