"""The random streams of this process (python's, numpy's, torch's): seeded from a key, saved, and kept to go back to.

A copy of numpy's state takes 30 microseconds and one of python's 8. Comparing four words of each with the last copy
tells whether anything was drawn, in a tenth of a microsecond; so a trial that draws from torch alone pays about 1
microsecond per batch. A trial whose last window drew nothing pays nothing per batch: one copy per window is enough.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.random import mtrand

logger = logging.getLogger("determined.pytorch")

T = TypeVar("T")
_Words = Any  # four words of a generator's memory, as a ctypes array


def digest(*key: int | str, size: int = 32) -> bytes:
    """Return `size` bytes (at most 64) that depend on `key` alone, on any machine and in any release.

    A key is a few words and numbers, such as ("batch", seed, epoch, position).
    """
    return hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=size).digest()


def derive_seed(*key: int | str) -> int:
    """Return a seed below 2**63 for `key`."""
    return int.from_bytes(digest(*key, size=8), "little") >> 1


def seed_streams(*key: int | str) -> None:
    """Seed the process's streams of `random`, `numpy` and `torch` (CPU) for `key`. Costs about 10 microseconds."""
    words = digest(*key)
    random.seed(words[:16])
    np.random.seed(int.from_bytes(words[16:20], "little"))  # an array of words would cost five times as much
    # torch.manual_seed() also asks every accelerator, which costs 100 microseconds and has no place in a worker.
    torch.default_generator.manual_seed(int.from_bytes(words[24:32], "little") >> 1)


class RngState:
    """The states of all random streams of this process, to save and load.

    The keys are those that checkpoints have always had. numpy's words are a tensor, which `np.random.set_state` takes
    as well.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every stream. Draws nothing."""
        name, words, *rest = np.random.get_state()
        state: dict[str, Any] = {
            "cpu_rng_state": torch.get_rng_state(),
            "np_rng_state": (name, torch.from_numpy(np.array(words)), *rest),
            "random_rng_state": random.getstate(),
        }
        if (device := device_kind()) is not None:
            state["gpu_rng_state"] = torch.get_device_module(device).get_rng_state()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore every stream. Warn of one that was not saved or does not exist here, and leave it as it is."""
        _set(state_dict["random_rng_state"], state_dict["np_rng_state"], state_dict["cpu_rng_state"].cpu())
        device, saved = device_kind(), state_dict.get("gpu_rng_state")
        if device is not None and saved is not None:
            torch.get_device_module(device).set_rng_state(saved.cpu())
        elif device is not None:
            logger.warning("The checkpoint has no random state for a %s device; its stream goes on as it is.", device)
        elif saved is not None:
            logger.warning("The checkpoint has the random state of an accelerator, and there is none here: ignored.")


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Restore all streams after the block, whatever it draws."""
    before = RngState().state_dict()
    try:
        yield
    finally:
        RngState().load_state_dict(before)


def derive(seed: int, batches_trained: int, rank: int) -> None:
    """Seed the streams from these three alone, for a rank that has no saved state."""
    seed_streams("resume", seed, batches_trained, rank)
    if (device := device_kind()) is not None:
        torch.get_device_module(device).manual_seed(derive_seed("resume", "device", seed, batches_trained, rank))


def device_kind() -> str | None:
    """Return the kind of accelerator that this process trains on; None without one."""
    if not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


class KeptStreams:
    """A copy of the states of `random`, `numpy` and `torch`, to go back to.

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
        """The batch before which the copy was made, if there is one."""
        self.have_moved = True
        """Whether the last window drew anything; then call `keep()` before each batch of the next."""
        self._device = device
        self._random: Any = random.getstate.__self__  # type: ignore[attr-defined]  # a method of the hidden instance
        self._python = random.getstate()
        internal = self._python[1]  # in memory, the position comes first
        self._python_words = _words_at(id(self._random) + object.__basicsize__, [internal[-1], *internal[:3]])
        self._python_mark = _read(self._python_words)
        self._numpy: Any = None
        self._numpy_mark: list[int] = []
        self._watch_numpy()
        self._torch = torch.default_generator.get_state()
        self._on_device = self._device_state()
        self._at_window = self.copies()

    def begin_window(self, batch_idx: int) -> None:
        """Copy the states before the first batch of a window."""
        self.keep(batch_idx)
        self._at_window = self.copies()

    def end_window(self) -> None:
        """Set `have_moved`. From now on there is no batch to go back to."""
        self.keep(None)
        self.have_moved = self._device is not None or _differ(self._at_window, self.copies())

    def keep(self, batch_idx: int | None = None) -> None:
        """Copy the states. Draws nothing."""
        self.batch_idx = batch_idx
        words = self._python_words
        if words is None or words[:] != self._python_mark or self._random.gauss_next != self._python[2]:
            self._python, self._python_mark = random.getstate(), _read(words)
        words = self._numpy_words
        if mtrand.get_bit_generator() is not self._bits:
            self._watch_numpy()
        # Drawing the second of a pair of normal numbers, which numpy stores, does not change the words.
        elif words is None or words[:] != self._numpy_mark or self._numpy[3]:
            self._numpy, self._numpy_mark = np.random.get_state(), _read(words)
        self._torch = torch.default_generator.get_state()
        if self._device is not None:
            self._on_device = self._device_state()

    def copies(self) -> tuple[Any, Any, torch.Tensor]:
        """Return the copies. They do not change when more is drawn."""
        return self._python, self._numpy, self._torch

    def put_back(self) -> None:
        """Restore the states of the last `keep()`."""
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
        last = self._bits.ctypes.state_address + 621 * 4  # the last three words, and the position
        self._numpy_words = _words_at(last, [*self._numpy[1][621:], self._numpy[2]])
        self._numpy_mark = _read(self._numpy_words)

    def _device_state(self) -> Any:
        return None if self._device is None else torch.get_device_module(self._device).get_rng_state()


class OwnStreams:
    """Random streams seeded from `key`, which replace those of the process inside a `with` block.

    The next block goes on where the last one ended. Entering and leaving takes about 10 microseconds.

    Example::

        own = OwnStreams("sampler", seed)
        with own:
            indices = next(sampler)
    """

    def __init__(self, *key: int | str) -> None:
        self._outer = KeptStreams()
        self._become(lambda: seed_streams(*key))
        self._before = self._own.copies()

    def _become(self, put: Callable[[], None]) -> None:
        """Take over the states that `put` sets in the process."""
        self._outer.keep()
        mtrand.set_bit_generator(np.random.MT19937(0))  # changing a reference is cheaper than copying a state
        put()
        self._own = KeptStreams()
        self._outer.put_back()

    def __enter__(self) -> None:
        self._outer.keep()
        self._before = self._own.copies()
        self._own.put_back()

    def __exit__(self, *_: object) -> None:
        self._own.keep()
        self._outer.put_back()

    def have_moved(self) -> bool:
        """Whether the last block drew anything."""
        return _differ(self._before, self._own.copies())

    def step_back(self) -> None:
        """Restore the states with which the last block began."""
        self._become(lambda: _set(*self._before))

    def state_dict(self) -> dict[str, Any]:
        """Return the states, in tensors and plain values."""
        python, (name, words, *rest), tensor = self._own.copies()
        return {"random": python, "numpy": (name, torch.from_numpy(words.copy()), *rest), "torch": tensor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the states of `state_dict()`."""
        self._become(lambda: _set(state["random"], state["numpy"], state["torch"]))


def isolated_iterator(source: Iterable[T], own: OwnStreams) -> Iterator[T]:
    """Iterate over `source` with the streams `own`; between items the process has its own."""
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
    return (
        after[0] is not before[0]
        or (after[1] is not before[1] and str(after[1]) != str(before[1]))
        or not torch.equal(after[2], before[2])
    )


def _set(python: Any, numpy: Any, tensor: torch.Tensor) -> None:
    """Set the states of `random`, `numpy` and `torch`; a file has other types of sequences than they want."""
    version, internal, gauss = python
    random.setstate((version, tuple(internal), gauss))
    name, words, *rest = numpy
    np.random.set_state((name, np.asarray(words, dtype=np.uint32), *rest))
    torch.default_generator.set_state(tensor)


def _words_at(address: int, expected: list[int]) -> _Words | None:
    """Return four words of memory; None if it is laid out differently here, and every copy has to be made."""
    words = (ctypes.c_uint32 * 4).from_address(address)
    return words if words[:] == [int(word) for word in expected] else None


def _read(words: _Words | None) -> list[int]:
    return [] if words is None else words[:]
