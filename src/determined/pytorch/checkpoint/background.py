"""Save in the background: copy the state in memory, and write it in a thread. One at a time."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from determined.pytorch.checkpoint.encoding import refill

Store = Callable[[], AbstractContextManager[tuple[Path, str]]]


class Snapshot:
    """Copies a state, each time into the memory of the copy before, so that only the first allocates memory.

    Tensors that share memory share it in the copy too. A copy is valid until the next one is made.
    """

    def __init__(self) -> None:
        self._free: defaultdict[tuple[int, bool], list[torch.Tensor]] = defaultdict(list)

    def copy(self, state: Any) -> Any:
        """Return `state` with all tensors copied to the CPU. Returns when the copy is complete."""
        self._copies: dict[int, torch.Tensor] = {}
        self._used: defaultdict[tuple[int, bool], list[torch.Tensor]] = defaultdict(list)
        self._devices: set[torch.device] = set()
        copied = self._value(state)
        for device in self._devices:
            torch.get_device_module(device).synchronize(device)
        self._free = self._used
        return copied

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return refill(value, {key: self._value(item) for key, item in value.items()})
        if type(value) in (list, tuple):
            return type(value)(self._value(item) for item in value)
        return set(value) if type(value) is set else value  # the rest cannot change

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if not _is_ordinary(tensor):
            return tensor.detach().clone().cpu()
        memory = self._memory(tensor.untyped_storage(), tensor.device)
        copy = torch.empty(0, dtype=tensor.dtype).set_(
            memory.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        if type(tensor) is nn.Parameter:
            return nn.Parameter(copy, tensor.requires_grad)
        return copy.requires_grad_(tensor.requires_grad)

    def _memory(self, storage: torch.UntypedStorage, device: torch.device) -> torch.Tensor:
        if storage.data_ptr() in self._copies:
            return self._copies[storage.data_ptr()]
        pinned = device.type == "cuda"
        key = (storage.nbytes(), pinned)
        memory = self._free[key].pop() if self._free[key] else torch.empty(key[0], dtype=torch.uint8, pin_memory=pinned)
        source = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
        memory.copy_(source, non_blocking=pinned)
        if device.type != "cpu":
            self._devices.add(device)
        self._used[key].append(memory)
        if storage.nbytes():  # tensors without content have no place in memory
            self._copies[storage.data_ptr()] = memory
        return memory


def _is_ordinary(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, nn.Parameter)
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_meta)
    )


class BackgroundSave:
    """One checkpoint that is being written.

    The directory is written, and later stored, in threads. In between, hooks for the directory run in the thread that
    calls `poll()` or `wait()`, which is the one that trains.

    Args:
        store: Opens the directory, as `checkpoint.store_path(metadata)` does; stores it on leaving.
        write: Fills the directory.
        hooks: What to run on the directory before it is stored; None for nothing.
    """

    def __init__(
        self, store: Store, write: Callable[[Path], None], hooks: Callable[[Path], None] | None = None
    ) -> None:
        self._hooks = hooks
        self._stack = contextlib.ExitStack()
        self._place: tuple[Path, str] | None = None
        self._failed: BaseException | None = None
        self._thread = self._start(lambda: self._begin(store, write))

    def poll(self) -> str | None:
        """Return the id once it is stored, None before. Raises its error."""
        return None if self._thread.is_alive() else self._go_on(waits=False)

    def wait(self) -> str:
        """Wait until it is stored, and return the id. Raises its error."""
        self._thread.join()
        found = self._go_on(waits=True)
        assert found is not None, "stored, or an error was raised"
        return found

    def _begin(self, store: Store, write: Callable[[Path], None]) -> None:
        self._place = self._stack.enter_context(store())
        write(self._place[0])
        if self._hooks is None:
            self._stack.close()

    def _go_on(self, *, waits: bool) -> str | None:
        """Run the hooks and start to store the directory, if that is left to do; return the id if it is stored."""
        hooks, self._hooks, place = self._hooks, None, self._place
        if hooks is not None and place is not None and self._failed is None:
            self._attempt(lambda: hooks(place[0]))
            if self._failed is None:
                self._thread = self._start(self._stack.close)
            if waits:
                self._thread.join()
        if self._failed is not None:
            raise self._failed
        return None if place is None or self._thread.is_alive() else place[1]

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        # Not a daemon: a program that ends without waiting still ends with a whole checkpoint.
        thread = threading.Thread(target=self._attempt, args=(work,), name="checkpoint-writer", daemon=False)
        thread.start()
        return thread

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failed:  # noqa: BLE001 - raised in the thread that trains
            self._stack.__exit__(type(failed), failed, failed.__traceback__)
            self._failed = failed
