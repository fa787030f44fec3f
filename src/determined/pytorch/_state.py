"""The one list of what is saved: how far training has come, and everything with a state, by name and in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from determined import errors
from determined._types import Json, Stateful
from determined.pytorch._callback import PyTorchCallback, overrides
from determined.pytorch.checkpoint import model_state
from determined.pytorch.checkpoint.encoding import from_plain

logger = logging.getLogger("determined.pytorch")

# What torch's optimizers got over the years; they put in the defaults themselves if an older file lacks them.
_ADDED_BY_TORCH = {"maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
_ASKED_FOR_BY_TORCH = {"lr_lambdas", "_schedulers"}  # without these its schedulers cannot be restored


@dataclass
class Progress:
    """How far training has come. Everything here is saved; nothing else is.

    `last_validation` and `last_checkpoint` are the numbers of batches at which those happened; 0 stands for never.
    """

    batches_trained: int = 0
    epochs_trained: int = 0
    last_validation: int = 0
    last_checkpoint: int = 0
    trial_id: int = 0

    def state_dict(self) -> dict[str, Json]:
        return asdict(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name in asdict(self):
            setattr(self, name, int(state_dict[name]))

    def trial_state(self) -> dict[str, int]:
        """The same under the names that `trial_state.pkl` has always had."""
        return {
            "trial_id": self.trial_id,
            "last_ckpt": self.last_checkpoint,
            "step_id": 0,
            "last_val": self.last_validation,
            "batches_trained": self.batches_trained,
            "epochs_trained": self.epochs_trained,
        }

    @classmethod
    def from_trial_state(cls, saved: Mapping[str, Any], epoch_length: int) -> Progress:
        """Read `trial_state.pkl`. Until 0.20 it had no epochs: they follow from the length of one."""
        batches = int(saved["batches_trained"])
        return cls(
            batches_trained=batches,
            epochs_trained=int(saved.get("epochs_trained", batches // epoch_length)),
            last_validation=int(saved.get("last_val") or 0),
            last_checkpoint=int(saved.get("last_ckpt") or 0),
            trial_id=int(saved.get("trial_id") or 0),
        )


class CheckpointMismatch(errors.InvalidCheckpointException, RuntimeError, IndexError):
    """What a checkpoint holds does not fit this trial; nothing was loaded. The message lists everything."""


class TrainingState:
    """Everything that is saved, in the order it is saved and restored in.

    Example::

        state = TrainingState()
        state.track("optimizers_state_dict", Optimizers(context.optimizers))
        state.track("rng_state", RngState())    # last: restoring the others may draw random numbers
    """

    def __init__(self) -> None:
        self._parts: dict[str, Stateful | Part] = {}
        self._per_rank: set[str] = set()

    def track(self, name: str, part: Stateful | Part, *, per_rank: bool = False) -> None:
        """Save and restore `part` under this name, after those that came before it.

        Args:
            name: The key of the checkpoint.
            part: What has a state.
            per_rank: Every rank has a state of its own; of the others, the chief's is everybody's.
        """
        if name in self._parts:
            raise ValueError(f"{name!r} is tracked already.")
        self._parts[name] = part
        if per_rank:
            self._per_rank.add(name)

    def state_dict(self) -> dict[str, Any]:
        """The state of every part that ranks share, by name; of a part that has none (None), nothing."""
        return self._states(per_rank=False)

    def rank_state_dict(self) -> dict[str, Any]:
        """The same, of the parts that are this rank's own."""
        return self._states(per_rank=True)

    def _states(self, *, per_rank: bool) -> dict[str, Any]:
        parts = ((name, part) for name, part in self._parts.items() if (name in self._per_rank) is per_rank)
        states = ((name, part.state_dict()) for name, part in parts)
        return {name: state for name, state in states if state is not None}

    def check(self, saved: Mapping[str, Any]) -> None:
        """Compare everything with what was saved, before anything changes.

        Raises:
            CheckpointMismatch: Something does not fit. One message lists all of it.
        """
        problems = [
            problem
            for name, part in self._parts.items()
            if isinstance(part, Part)
            for problem in part.mismatches(saved.get(name))
        ]
        if problems:
            raise CheckpointMismatch(
                "The checkpoint does not fit this trial, so nothing was loaded:\n  - " + "\n  - ".join(problems)
            )

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore every part, in order, if all fit; of the parts per rank, `saved` holds this rank's.

        What was not saved stays as it is; the part says so if it minds.
        """
        self.check(saved)
        for name, part in self._parts.items():
            if isinstance(part, Part):
                part.load_state_dict(saved.get(name))
            elif name in saved:
                part.load_state_dict(saved[name])


class Part:
    """Something of the trial that is saved, and knows what it can be restored from."""

    def state_dict(self) -> Any:
        """What to save; None for nothing."""
        raise NotImplementedError

    def mismatches(self, saved: Any) -> Iterable[str]:  # noqa: ARG002 - for those that can tell
        """One sentence for each reason why `saved` (None if nothing was) cannot be loaded."""
        return ()

    def load_state_dict(self, saved: Any) -> None:
        """Restore what was saved, or None."""
        raise NotImplementedError


class _Listed(Part):
    """Objects that are saved as a list, in the order the trial wrapped them in."""

    def __init__(self, kind: str, wrap: str, objects: Sequence[Any], saved_classes: Callable[[str], list[str]]) -> None:
        self._kind = kind
        self._wrap = wrap
        self._objects = objects
        self._saved_classes = saved_classes

    def classes(self) -> list[str]:
        """What they are, for messages."""
        return [class_name(thing) for thing in self._objects]

    def mismatches(self, saved: Any) -> Iterable[str]:
        kinds = self._counted(self.classes())
        if saved is None and self._objects:
            yield f"It holds no {self._kind}s, and this trial wrapped {kinds}."
            return
        if not isinstance(saved or [], (list, tuple)):
            yield f"Its {self._kind}s are a {type(saved).__name__}, not a list."
            return
        saved = saved or []
        if len(saved) < len(self._objects):
            yield (
                f"It holds {self._counted(self._saved_classes(self._kind), len(saved))}, and this trial wrapped "
                f"{kinds}. Call context.{self._wrap}() for the same ones in the same order, or start without it."
            )
        for i, (thing, state) in enumerate(zip(self._objects, saved, strict=False)):
            for problem in self.differences(thing, state):
                yield f"{self._kind} {i} ({class_name(thing)}): {problem}"

    def differences(self, thing: Any, state: Any) -> Iterable[str]:
        """Why one saved state does not fit one object."""
        if not isinstance(state, Mapping):
            yield f"its saved state is a {type(state).__name__}, not a dict."
        elif thing is None:
            yield "there is no such object."

    def load_state_dict(self, saved: Any) -> None:
        saved = saved or []
        if len(saved) > len(self._objects):
            logger.warning(
                "The checkpoint holds %s and this trial wrapped %s: the first are loaded, the rest is left out.",
                self._counted(self._saved_classes(self._kind), len(saved)),
                self._counted(self.classes()),
            )
        was = [*self._saved_classes(self._kind), *[""] * len(saved)]
        for i, (thing, state) in enumerate(zip(self._objects, saved, strict=False)):
            if was[i] not in ("", class_name(thing)) and not isinstance(thing, nn.Module):  # models were compared
                logger.warning(
                    "%s %d was saved as %s, and is %s here: what both know is taken over.",
                    self._kind.capitalize(), i, was[i], class_name(thing),
                )  # fmt: skip
            self.load(thing, state, f"the state of {self._kind} {i} ({class_name(thing)})")

    def load(self, thing: Any, state: Any, where: str) -> None:
        """Restore one object."""
        thing.load_state_dict(from_plain(state, where, live=thing.state_dict()))

    def state_dict(self) -> list[Any]:
        return [self.save(thing) for thing in self._objects]

    def save(self, thing: Any) -> Any:
        """The state of one object."""
        return thing.state_dict()

    def _counted(self, classes: list[str], count: int | None = None) -> str:
        count = len(classes) if count is None else count
        names = f" ({', '.join(classes)})" if classes else ""
        return f"{count} {self._kind}{'' if count == 1 else 's'}{names}"


class Models(_Listed):
    """The wrapped models, under plain names."""

    def __init__(self, models: Sequence[nn.Module], saved_classes: Callable[[str], list[str]]) -> None:
        super().__init__("model", "wrap_model", models, saved_classes)

    def save(self, thing: Any) -> Any:
        return model_state.model_state_dict(thing)

    def differences(self, thing: Any, state: Any) -> Iterable[str]:
        if not isinstance(state, Mapping):
            return [f"its saved state is a {type(state).__name__}, not a dict."]
        plain = model_state.plain_model(thing)
        if model_state._judges_itself(plain):
            return []
        layers = list(model_state._layers(plain))
        own = {model_state._plain_name(name, layers): (name, value) for name, value in plain.state_dict().items()}
        return model_state._differences(model_state._match(state, own), own)

    def load(self, thing: Any, state: Any, where: str) -> None:
        model_state.load_model_state_dict(thing, from_plain(state, where))


class Optimizers(_Listed):
    """The wrapped optimizers."""

    def __init__(self, optimizers: Sequence[Any], saved_classes: Callable[[str], list[str]]) -> None:
        super().__init__("optimizer", "wrap_optimizer", optimizers, saved_classes)

    def differences(self, thing: Any, state: Any) -> Iterable[str]:
        if not isinstance(state, Mapping):
            return [f"its saved state is a {type(state).__name__}, not a dict."]
        if type(thing).load_state_dict is not torch.optim.Optimizer.load_state_dict:
            return []  # it judges for itself
        saved = [len(group.get("params", ())) for group in state.get("param_groups", ())]
        own = [len(group["params"]) for group in thing.param_groups]
        if saved != own:
            return [f"it was saved with parameter groups of {saved} tensors, and here they have {own}."]
        if type(thing).__module__.startswith("torch.optim."):  # it would take anything, and fail in its first step
            needed = set(thing.defaults) - _ADDED_BY_TORCH
            absent = sorted({name for group in state["param_groups"] for name in needed - set(group)})
            if absent:
                return [f"it was saved by another kind of optimizer, which has no {', '.join(absent)}."]
        return []


class Schedulers(_Listed):
    """The wrapped learning rate schedulers."""

    def __init__(self, schedulers: Sequence[Any], saved_classes: Callable[[str], list[str]]) -> None:
        super().__init__("lr_scheduler", "wrap_lr_scheduler", schedulers, saved_classes)

    def differences(self, thing: Any, state: Any) -> Iterable[str]:
        yield from super().differences(thing, state)
        if thing is not None and isinstance(state, Mapping):
            absent = sorted(_ASKED_FOR_BY_TORCH & set(thing.state_dict()) - set(state))
            if absent:
                yield f"it was saved by another kind of scheduler, which has no {', '.join(absent)}."


class Scaler(Part):
    """The gradient scaler, if there is one."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler

    def state_dict(self) -> Any:
        return None if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, saved: Any) -> None:
        if self._scaler is not None and saved is not None:
            self._scaler.load_state_dict(from_plain(saved, "the state of the gradient scaler"))
        elif self._scaler is not None:
            logger.warning("The checkpoint has no state for the gradient scaler: it starts afresh.")
        elif saved is not None:
            logger.warning("The checkpoint has the state of a gradient scaler, and this trial wrapped none: left out.")


class CallbackStates(Part):
    """What the callbacks want to keep, by name."""

    def __init__(self, named: Mapping[str, PyTorchCallback]) -> None:
        self._named = named

    def state_dict(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self._named.items()}

    def load_state_dict(self, saved: Any) -> None:
        saved = saved or {}
        for name, callback in self._named.items():
            if name in saved:
                callback.load_state_dict(saved[name])
            elif overrides(callback, "load_state_dict"):
                logger.warning(
                    "The checkpoint has no state for callback %r (%s): it starts afresh.", name, type(callback).__name__
                )


def class_name(thing: Any) -> str:
    """The user's class, out of our wrappers and torch's."""
    if isinstance(thing, nn.Module):
        thing = model_state.plain_model(thing)
    inner = getattr(thing, "scheduler", None) or getattr(thing, "_scheduler", None)
    if type(thing).__module__.startswith("determined.") and inner is not None:
        thing = inner
    return type(thing).__name__
