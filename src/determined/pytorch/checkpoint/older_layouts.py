"""Checkpoints of earlier releases (0.12 to 0.38): read through allow-lists, and brought into today's shape.

Those files are pickles, and a pickle is a program. Here it can make numbers, text, dates, paths, containers, tensors,
and arrays, which are put together by our own few lines rather than by numpy's; whatever else it names is refused,
unrun, unless the user's own program has told torch that it is safe.
"""

from __future__ import annotations

import datetime
import io
import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from determined import errors
from determined.pytorch.checkpoint.encoding import TYPE

STATE_FILES = ("state_dict.pth", "determined/state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt")
COUNTER_FILES = ("trial_state.pkl", "workload_sequencer.pkl")
_LARGEST_COUNTERS = 1 << 20
_DATES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)
_SINGLE = {  # until 0.12.11 there was one of each
    "model_state_dict": ("models_state_dict", "model"),
    "optimizer_state_dict": ("optimizers_state_dict", "optimizer"),
    "lr_scheduler": ("lr_schedulers_state_dict", "lr_scheduler"),
}


class UnreadableCheckpoint(errors.InvalidCheckpointException, errors.CheckpointDamaged):
    """A file is not one of a trial's checkpoint, or is damaged."""


class StateFileMissing(UnreadableCheckpoint, FileNotFoundError):
    """A directory has none of the files that hold a trial's state."""


def find_state_file(directory: Path) -> Path:
    """Return the file with the state, by its name in any release."""
    for name in STATE_FILES:
        if os.path.lexists(directory / name):
            return directory / name
    held = sorted(path.name for path in directory.iterdir())[:20] if directory.is_dir() else "nothing"
    raise StateFileMissing(
        f"{directory} is no trial's checkpoint: there is none of {', '.join(STATE_FILES)} in it, but {held}. "
        "Pass the directory or the id of a checkpoint that fit() wrote."
    )


def modernise(checkpoint: dict[str, Any], counts: Mapping[str, int], ranks: int = 1) -> None:
    """Bring the keys of 0.12 to 0.38 into today's form, in place.

    Args:
        checkpoint: What was read.
        counts: How many models, optimizers and lr_schedulers this trial wrapped.
        ranks: How many ranks restore it. Until 0.38 all of them got the chief's random streams.

    Raises:
        RuntimeError: Both forms are there, or there are several objects where that release had one.
    """
    for old, (new, kind) in _SINGLE.items():
        if old not in checkpoint:
            continue
        if new in checkpoint:
            raise errors.CheckpointDamaged(
                f"The checkpoint has both {old!r} and {new!r}, and only one can be meant. Remove one of them, "
                "for example in on_checkpoint_load_start()."
            )
        if counts[kind] > 1:
            raise errors.CheckpointDamaged(
                f"The checkpoint has the state of one {kind} ({old!r}), and this trial wrapped {counts[kind]}. "
                f"Wrap one, or make {new!r} of it in on_checkpoint_load_start()."
            )
        checkpoint[new] = [checkpoint.pop(old)][: counts[kind]]
    if not checkpoint.get("rng_states") and checkpoint.get("rng_state") is not None:
        checkpoint["rng_states"] = [checkpoint["rng_state"]] * ranks


def saved_counters(read: Callable[[str], bytes | None], place: object) -> dict[str, int] | None:
    """Return how far training was, under the names of `trial_state.pkl`; None if no file says it.

    Args:
        read: Returns the content of a file of the checkpoint, or None.
        place: What to call the checkpoint in an error.
    """
    for name in COUNTER_FILES:
        try:
            data = read(name)
        except (OSError, ValueError) as broken:
            raise UnreadableCheckpoint(f"{place}/{name} cannot be read: {broken}. Use another checkpoint.") from broken
        if data is None:
            continue
        saved = _read_counters(data, f"{place}/{name}")
        if "batches_trained" not in saved and "steps_completed" in saved:  # until 0.20
            saved["batches_trained"] = saved["steps_completed"]
            saved.pop("epochs_trained", None)
        if 0 <= saved.get("batches_trained", -1) <= sys.maxsize:
            return saved
        raise UnreadableCheckpoint(
            f"{place}/{name} holds {saved} and so no usable batches_trained: it does not say how far training was."
        )
    return None


def _read_counters(data: bytes, path: str) -> dict[str, int]:
    try:
        if len(data) > _LARGEST_COUNTERS:
            raise ValueError(f"it is too large: {len(data)} bytes, and {_LARGEST_COUNTERS} is the limit")
        saved = _CounterUnpickler(io.BytesIO(data)).load()
    except errors.InvalidCheckpointException as refused:
        raise UnreadableCheckpoint(f"{path}: {refused}") from None
    except Exception as broken:
        raise UnreadableCheckpoint(
            f"{path} cannot be read: {type(broken).__name__}: {broken}. Use another checkpoint."
        ) from broken
    saved = vars(saved) if isinstance(saved, _Bag) else saved
    if not isinstance(saved, dict):
        raise UnreadableCheckpoint(f"{path} holds a {type(saved).__name__}, not counters.")
    return {str(name): value for name, value in saved.items() if type(value) is int}


class _Bag:
    """Stands for an object of a class that earlier releases had; only its values are used."""


class _CounterUnpickler(pickle._Unpickler):  # Python's own: C's would set memory aside for whatever place a memo names
    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "determined":
            return _Bag
        raise refusal(f"{module}.{name}")

    def get_extension(self, code: int) -> Any:
        raise refusal(f"extension {code}")

    def persistent_load(self, pid: Any) -> Any:
        raise refusal(f"persistent id {str(pid)[:80]!r}")


def refusal(name: str) -> errors.InvalidCheckpointException:
    """Return the error for a file that names something it may not."""
    return errors.InvalidCheckpointException(
        f"The file asks for {name}, which is not on the list of what a checkpoint may hold, so nothing of it was run "
        "or loaded."
    )


def read_old(path: Path, load_options: Mapping[str, Any]) -> Any:
    """Read a state file that holds more than tensors and plain values.

    Args:
        path: The file.
        load_options: For `torch.load`; it reads with `weights_only` whatever they say.

    Raises:
        InvalidCheckpointException: It names something that is not on the list. Nothing of it ran.
        CheckpointDamaged: It is not a whole file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about old pickle protocols
            with torch.serialization.safe_globals(_allowed()):
                loaded = torch.load(path, **{**load_options, "weights_only": True})
        return _settled(loaded, 0)
    except errors.InvalidCheckpointException as refused:
        raise errors.InvalidCheckpointException(f"{path}: {refused}") from None
    except pickle.UnpicklingError as refused:
        raise errors.InvalidCheckpointException(f"{path}: {_refused_by_torch(str(refused))}") from None
    except Exception as broken:
        raise errors.CheckpointDamaged(
            f"{path} cannot be read: {type(broken).__name__}: {str(broken)[:300]}. Use another checkpoint."
        ) from broken


def _refused_by_torch(message: str) -> str:
    if named := re.search(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (\S+)", message):
        name = named.group(1)
        refused = refusal(name if "." in name else f"builtins.{name}")
        return (
            f"{refused} If it is a class of yours, and you trust the file, say "
            f"torch.serialization.add_safe_globals([{name.rpartition('.')[2]}]) first."
        )
    # Around the reason, torch advises to load without its guard.
    reason = message.split("WeightsUnpickler error:")[-1].split("Check the documentation")[0]
    reason = reason.split("Please file an issue")[0].strip()
    if reason.startswith("Unsupported operand"):
        reason = f"it is not in the form that torch.save() writes ({reason})."
    return f"The file is refused, and nothing of it was run or loaded: {reason[:300]}"


# Stand-ins for what a pickle calls. They take what numpy and the standard library wrote, and no more.


class _Dtype:
    """A numpy type of plain numbers."""

    def __init__(self, text: Any, align: Any = False, copy: Any = True) -> None:  # noqa: ARG002 - numpy's form
        if not (isinstance(text, str) and re.fullmatch(r"[biufc][0-9]{1,2}|\?", text)):
            raise refusal(f"a numpy array of type {str(text)[:40]!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) < 5 or state[2:5] != (None, None, None) or state[-1] != 0:
            raise refusal("a numpy type with parts")
        if state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """A numpy array, as far as it is known; `_settled` makes the real one."""

    def __init__(self, subtype: Any = None, shape: Any = None, typecode: Any = None) -> None:  # noqa: ARG002
        self.array: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        self.array = _filled(dtype, data).reshape(shape, order="F" if is_fortran else "C")


def _filled(dtype: Any, data: Any) -> np.ndarray[Any, Any]:
    if type(dtype) is not _Dtype or type(data) is not bytes:
        raise refusal("a numpy array of objects")
    filled = np.frombuffer(data, dtype=dtype.dtype)
    return filled.astype(filled.dtype.newbyteorder("="))  # a copy: the bytes are not for writing


def _scalar(dtype: Any, data: Any) -> Any:
    if isinstance(data, str):  # protocol 2 spells bytes as latin-1 text
        data = data.encode("latin-1")
    return _filled(dtype, data)[0]


class _Lookup(NamedTuple):
    owner: str


def _static_method(owner: Any, name: Any) -> dict[str, str]:
    """Stand for a function of OneCycleLR, which torch pickled by its name; the scheduler that is restored has it."""
    if isinstance(owner, _Lookup) and name in ("_annealing_cos", "_annealing_linear"):
        return {TYPE: "code", "name": f"{owner.owner}.{name}"}
    raise refusal(f"builtins.getattr of {str(name)[:60]!r}")


_ONE_CYCLE = _Lookup("OneCycleLR")


def _no_bytes() -> bytes:
    """Protocol 2 spells the empty bytes as a call; with an argument it would ask for memory."""
    return b""


def _defaultdict(*args: Any) -> dict[Any, Any]:
    """Return an ordinary dict: torch fills no other, and the object that is restored has the default."""
    if len(args) > 1 or (args and args[0] not in (list, dict, int, float, str, set, None)):
        raise refusal("collections.defaultdict with a function of its own")
    return {}


def _allowed() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """Return everything that a file may name, beside tensors and what torch allows, and what stands for it."""
    allowed: list[tuple[Any, str]] = [
        (_Array, "numpy.ndarray"),
        (_Dtype, "numpy.dtype"),
        (_defaultdict, "collections.defaultdict"),
        (_static_method, "builtins.getattr"),
        (_static_method, "__builtin__.getattr"),
        (_ONE_CYCLE, "torch.optim.lr_scheduler.OneCycleLR"),
        (Path, "pathlib.PosixPath"),
        (Path, "pathlib._local.PosixPath"),  # Python 3.13
    ]
    allowed += [(kind, f"datetime.{kind.__name__}") for kind in _DATES]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        allowed += [(_Array, f"{module}._reconstruct"), (_scalar, f"{module}.scalar")]
    for module in ("builtins", "__builtin__"):
        allowed += [(_no_bytes, f"{module}.bytes")]
        allowed += [(kind, f"{module}.{kind.__name__}") for kind in (list, dict, int, float, str, frozenset)]
    return list(allowed)


def _settled(value: Any, depth: int) -> Any:
    if depth > 100:
        raise refusal("values nested more than 100 levels deep")
    if isinstance(value, _Array):
        if value.array is None:
            raise refusal("a numpy array without content")
        return value.array
    if isinstance(value, (_Dtype, _Lookup)):
        raise refusal(f"a {type(value).__name__[1:].lower()} on its own")
    if isinstance(value, dict):
        for key in list(value):
            value[key] = _settled(value[key], depth + 1)
        return value
    if type(value) in (list, tuple):
        return type(value)(_settled(item, depth + 1) for item in value)
    return value
