"""The random streams of this process, kept and put back cheaply enough to do so for every batch.

A copy of numpy's stream costs 30 microseconds and one of python's 8. Whether they have moved since the last copy shows
in two words of each, which costs a tenth of one; so a trial that draws from torch alone pays about 1 microsecond per
batch. One whose last window drew nothing pays nothing per batch: its streams are kept once per window.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.random import mtrand

from determined.pytorch.rng import seeds

T = TypeVar("T")
_Words = Any  # two words of a stream's memory, as a ctypes array


class KeptStreams:
    """Where the streams of `random`, `numpy` and `torch` stand, to go back to.

    Args:
        device: The kind of accelerator whose stream is kept too.

    Example::

        kept = KeptStreams()
        kept.keep()
        random.random(), torch.rand(1)
        kept.put_back()      # as if nothing had been drawn since keep()
    """

    def __init__(self, device: str | None = None) -> None:
        self.batch_idx: int | None = None
        """The batch that they were kept before, for those who keep them per batch."""
        self.have_moved = True
        """Whether the last window drew anything; then they are to be kept before each batch of the next."""
        self._device = device
        self._random: Any = random.getstate.__self__  # type: ignore[attr-defined]  # a method of the hidden instance
        self._python = random.getstate()
        self._python_words = _checked(_words_at(id(self._random) + object.__basicsize__), _first(self._python[1]))
        self._python_mark = _read(self._python_words)
        self._numpy: Any = None
        self._numpy_mark: list[int] = []
        self._watch_numpy()
        self._torch = torch.default_generator.get_state()
        self._on_device = self._device_state()
        self._at_window = self.stood()

    def begin_window(self, batch_idx: int) -> None:
        """Note where they stand before the first batch of a window."""
        self.keep(batch_idx)
        self._at_window = self.stood()

    def end_window(self) -> None:
        """Find out whether the window drew anything. From now on there is no batch to go back to."""
        self.keep(None)
        self.have_moved = self._device is not None or _differ(self._at_window, self.stood())

    def keep(self, batch_idx: int | None = None) -> None:
        """Note where the streams stand now. Draws nothing."""
        self.batch_idx = batch_idx
        words = self._python_words
        if words is None or words[:] != self._python_mark or self._random.gauss_next != self._python[2]:
            self._python, self._python_mark = random.getstate(), _read(words)
        words = self._numpy_words
        if mtrand.get_bit_generator() is not self._bits:
            self._watch_numpy()
        # A normal number that waits is used up without a trace in the words.
        elif words is None or words[:] != self._numpy_mark or self._numpy[3]:
            self._numpy, self._numpy_mark = np.random.get_state(), _read(words)
        self._torch = torch.default_generator.get_state()
        if self._device is not None:
            self._on_device = self._device_state()

    def stood(self) -> tuple[Any, Any, torch.Tensor]:
        """What was kept. It does not change when more is drawn."""
        return self._python, self._numpy, self._torch

    def put_back(self) -> None:
        """Go back to where they stood at the last `keep()`."""
        words = self._python_words
        if words is None or words[:] != self._python_mark or self._random.gauss_next != self._python[2]:
            random.setstate(self._python)
        if mtrand.get_bit_generator() is not self._bits:
            mtrand.set_bit_generator(self._bits)
        words = self._numpy_words
        if words is None or words[:] != self._numpy_mark or self._numpy[3]:
            np.random.set_state(self._numpy)
        torch.default_generator.set_state(self._torch)
        if self._on_device is not None:
            torch.get_device_module(self._device).set_rng_state(self._on_device)

    def _watch_numpy(self) -> None:
        self._bits = mtrand.get_bit_generator()
        self._numpy = np.random.get_state()
        words = _words_at(self._bits.ctypes.state_address + 621 * 4)  # the last three words, and the position
        self._numpy_words = _checked(words, [*self._numpy[1][621:], self._numpy[2]])
        self._numpy_mark = _read(self._numpy_words)

    def _device_state(self) -> Any:
        return None if self._device is None else torch.get_device_module(self._device).get_rng_state()


class OwnStreams:
    """Random streams that begin as a function of `key`, and go on from one block that runs on them to the next.

    Outside of the blocks, the process has its own. A change of both ways costs about 10 microseconds.

    Example::

        own = OwnStreams("sampler", seed)
        with own:
            indices = next(sampler)
    """

    def __init__(self, *key: int | str) -> None:
        self._outer = KeptStreams()
        self._become(lambda: seeds.seed_streams(*key))
        self._before = self._own.stood()

    def _become(self, put: Callable[[], None]) -> None:
        """Begin with what `put` puts into the streams of the process."""
        self._outer.keep()
        mtrand.set_bit_generator(np.random.MT19937(0))  # changing a reference is cheaper than copying a state
        put()
        self._own = KeptStreams()
        self._outer.put_back()

    def __enter__(self) -> None:
        self._outer.keep()
        self._before = self._own.stood()
        self._own.put_back()

    def __exit__(self, *_: object) -> None:
        self._own.keep()
        self._outer.put_back()

    def have_moved(self) -> bool:
        """Whether the last block drew anything."""
        return _differ(self._before, self._own.stood())

    def step_back(self) -> None:
        """Go back to where the last block began."""
        self._become(lambda: _set(*self._before))

    def state_dict(self) -> dict[str, Any]:
        """Where they stand, in tensors and plain values."""
        python, (name, words, *rest), tensor = self._own.stood()
        return {"random": python, "numpy": (name, torch.from_numpy(words.copy()), *rest), "torch": tensor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict()` was taken."""
        (version, internal, gauss), (name, words, *rest) = state["random"], state["numpy"]
        numpy = (name, np.asarray(words, dtype=np.uint32), *rest)
        self._become(lambda: _set((version, tuple(internal), gauss), numpy, state["torch"]))


def isolated_iterator(source: Iterable[T], own: OwnStreams) -> Iterator[T]:
    """Iterate over `source` on streams of its own; between items the process has its own back."""
    with own:
        iterator = iter(source)
    while True:
        with own:
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def _differ(before: tuple[Any, Any, torch.Tensor], after: tuple[Any, Any, torch.Tensor]) -> bool:
    """Whether something was drawn between two answers of `stood()`."""
    return (
        after[0] is not before[0]
        or (after[1] is not before[1] and str(after[1]) != str(before[1]))
        or not torch.equal(after[2], before[2])
    )


def _set(python: Any, numpy: Any, tensor: torch.Tensor) -> None:
    random.setstate(python)
    np.random.set_state(numpy)
    torch.default_generator.set_state(tensor)


def _words_at(address: int) -> _Words:
    return (ctypes.c_uint32 * 4).from_address(address)


def _read(words: _Words | None) -> list[int]:
    return [] if words is None else words[:]


def _first(internal: Any) -> list[int]:
    """What python's generator has in memory: the position, then the words."""
    return [internal[-1], *internal[:3]]


def _checked(words: _Words, expected: list[int]) -> _Words | None:
    """None if memory is laid out in another way here; then every copy is made."""
    return words if words[:] == [int(word) for word in expected] else None
