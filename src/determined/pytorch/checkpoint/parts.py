"""Everything that is saved, in order: each part with its rules, how it is saved, who restores it, what may differ."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from determined import errors
from determined._types import Stateful
from determined.pytorch import _rng
from determined.pytorch._callback import PyTorchCallback, overrides
from determined.pytorch.checkpoint import model_state
from determined.pytorch.checkpoint.encoding import from_plain, to_plain
from determined.pytorch.parallel.gradients import average_waiting

if TYPE_CHECKING:
    from determined.pytorch.parallel.precision import Precision

logger = logging.getLogger("determined.pytorch")

# What torch's optimizers got over the years; they put in the defaults themselves if an older file lacks them.
_ADDED_BY_TORCH = {"maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
_ASKED_FOR_BY_TORCH = {"lr_lambdas", "_schedulers"}  # without these its schedulers cannot be restored


class CheckpointMismatch(errors.InvalidCheckpointException, RuntimeError, IndexError):
    """The checkpoint does not fit this trial; nothing was loaded. The message lists all differences."""


@dataclass(frozen=True)
class Restoring:
    """Which rank restores a checkpoint, and what is known about the training that saved it."""

    rank: int
    size: int
    continues: bool
    """It is of the same trial, so that its counters and its data go on."""
    batches_trained: int
    seed: int


class Part:
    """Something that is saved, with the rules for it. Every rank restores what the chief has saved."""

    keeps_code = False
    """Its state may hold functions, and objects with a state of their own; see `to_plain`."""
    is_shown_decoded = True
    """Callbacks see its saved state decoded; otherwise it is decoded when it is restored."""

    def __init__(self, thing: Stateful) -> None:
        self.thing = thing

    def state_dict(self) -> Any:
        """Return what to save; None for nothing."""
        return self.thing.state_dict()

    def mismatches(self, saved: Any) -> Iterable[str]:  # noqa: ARG002 - for those that can tell
        """Yield a sentence for each reason why `saved` (None if nothing was) cannot be loaded."""
        return ()

    def load_state_dict(self, saved: Any) -> None:
        """Restore what was saved, or None."""
        if saved is not None:
            self.thing.load_state_dict(saved)


class RankPart(Part):
    """Something that every rank saves for itself. The checkpoint holds a list of the states, by rank."""

    is_shown_decoded = False
    only_continued = False
    """Only the trial that saved it restores it; one that takes over the weights does not."""
    chief_name: str | None = None
    """A second name under which the chief's state is saved alone."""

    def for_rank(self, saved: Sequence[Any], restoring: Restoring) -> Any:
        """Return the state that this rank restores, or None: its own, or the chief's if the number of ranks changed."""
        if not saved:
            return None
        return saved[restoring.rank if len(saved) == restoring.size else 0]


class TrainingState:
    """Everything that is saved, in the order it is saved and restored in.

    Example::

        state = TrainingState()
        state.track("optimizers_state_dict", Optimizers(context.optimizers))
        state.track("rng_states", RandomStreams(RngState()))  # last: restoring the others may draw random numbers
    """

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def track(self, name: str, part: Part) -> None:
        """Save and restore `part` under this key of the checkpoint, after the parts that were tracked before it."""
        if name in self._parts:
            raise ValueError(f"{name!r} is tracked already.")
        self._parts[name] = part

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the states that are this rank's own, by name, as tensors and plain values."""
        states = {name: part.thing.state_dict() for name, part in self._rank_parts()}
        return {name: to_plain(state, f"the state of {name}") for name, state in states.items() if state is not None}

    def state_dict(self, ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the states that all ranks share, and those of `ranks`, which each `rank_state_dict()` returned."""
        states: dict[str, Any] = {}
        for name, part in self._parts.items():
            if isinstance(part, RankPart):
                states[name] = [mine.get(name) for mine in ranks]
                if part.chief_name is not None:
                    states[part.chief_name] = ranks[0].get(name)
            elif (state := part.state_dict()) is not None:
                states[name] = state
        return states

    def encode(self, checkpoint: Mapping[str, Any], *, is_changed: bool = True) -> dict[str, Any]:
        """Return all of it as tensors and plain values.

        Args:
            checkpoint: What `state_dict()` returned, and more.
            is_changed: Callbacks may have changed it, so that the states of ranks may be plain no more.
        """
        plain = {} if is_changed else {name: checkpoint[name] for name, _ in self._rank_parts()}
        plain |= {
            name: part.encode(checkpoint[name], name)
            for name, part in self._parts.items()
            if isinstance(part, CallbackStates) and name in checkpoint
        }
        keeping = {name for name, part in self._parts.items() if part.keeps_code}
        return {
            key: plain[key] if key in plain else to_plain(value, key, keeps_code=key in keeping)
            for key, value in checkpoint.items()
        }

    def decode(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was read from a file as callbacks see it."""
        shown = {
            key: part.decode(saved[key]) if isinstance(part, CallbackStates) else saved[key]
            for key, part in self._parts.items()
            if key in saved and (isinstance(part, CallbackStates) or not part.is_shown_decoded)
        }
        return {key: shown[key] if key in shown else from_plain(value, key) for key, value in saved.items()}

    def for_rank(self, checkpoint: Mapping[str, Any], restoring: Restoring) -> dict[str, Any]:
        """Return the checkpoint with the states that this rank restores in place of those of all ranks."""
        states = {
            name: part.for_rank(checkpoint.get(name) or [], restoring)
            for name, part in self._rank_parts()
            if restoring.continues or not part.only_continued
        }
        mine = {name: from_plain(state, f"the state of {name}") for name, state in states.items()}
        return {**checkpoint, **{name: mine.get(name) for name, _ in self._rank_parts()}}

    def _rank_parts(self) -> list[tuple[str, RankPart]]:
        return [(name, part) for name, part in self._parts.items() if isinstance(part, RankPart)]

    def check(self, saved: Mapping[str, Any]) -> None:
        """Compare everything with what was saved, before anything changes.

        Raises:
            CheckpointMismatch: Something does not fit. One message lists all of it.
        """
        problems = [problem for name, part in self._parts.items() for problem in part.mismatches(saved.get(name))]
        if problems:
            raise CheckpointMismatch(
                "The checkpoint does not fit this trial, so nothing was loaded:\n  - " + "\n  - ".join(problems)
            )

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore every part from what `for_rank()` returned, in order, if all fit."""
        self.check(saved)
        for name, part in self._parts.items():
            part.load_state_dict(saved.get(name))


class Listed(Part):
    """Objects that are saved as a list, in the order the trial wrapped them in."""

    is_shown_decoded = False  # functions in it are taken from the objects, once they are restored
    kind: str
    wrap: str

    def __init__(self, objects: Sequence[Any]) -> None:
        self.objects = objects
        self.saved_classes: Sequence[str] = ()
        """The classes that were saved, where a checkpoint says it."""

    def classes(self) -> list[str]:
        """Return the names of their classes, for messages."""
        return [class_name(thing) for thing in self.objects]

    def mismatches(self, saved: Any) -> Iterable[str]:
        if saved is None and self.objects:
            yield f"It holds no {self.kind}s, and this trial wrapped {self._counted(self.classes())}."
            return
        saved = saved or []
        if not isinstance(saved, (list, tuple)):
            yield f"Its {self.kind}s are a {type(saved).__name__}, not a list."
            return
        if len(saved) < len(self.objects):
            yield (
                f"It holds {self._counted(self.saved_classes, len(saved))}, and this trial wrapped "
                f"{self._counted(self.classes())}. Call context.{self.wrap}() for the same ones in the same order, or "
                "start without it."
            )
        for i, (thing, state) in enumerate(zip(self.objects, saved, strict=False)):
            is_dict = isinstance(state, Mapping)
            unfit = (
                self.differences(thing, state)
                if is_dict
                else [f"its saved state is a {type(state).__name__}, not a dict."]
            )
            for problem in unfit:
                yield f"{self.kind} {i} ({class_name(thing)}): {problem}"

    def differences(self, thing: Any, state: Mapping[str, Any]) -> Iterable[str]:
        """Return the reasons why one saved state does not fit one object."""
        raise NotImplementedError

    def load_state_dict(self, saved: Any) -> None:
        saved, names = saved or [], self.classes()
        if len(saved) > len(self.objects):
            logger.warning(
                "The checkpoint holds %s and this trial wrapped %s: the first are loaded, the rest is left out.",
                self._counted(self.saved_classes, len(saved)),
                self._counted(names),
            )
        was = [*self.saved_classes, *[""] * len(saved)]
        for i, (thing, state) in enumerate(zip(self.objects, saved, strict=False)):
            if was[i] not in ("", names[i]) and not isinstance(thing, nn.Module):  # models were compared
                logger.warning(
                    "%s %d was saved as %s, and is %s here: what both know is taken over.",
                    self.kind.capitalize(), i, was[i], names[i],
                )  # fmt: skip
            self.load(thing, state, f"the state of {self.kind} {i} ({names[i]})")

    def load(self, thing: Any, state: Any, where: str) -> None:
        """Restore one object."""
        thing.load_state_dict(from_plain(state, where, live=thing.state_dict()))

    def state_dict(self) -> list[Any]:
        return [thing.state_dict() for thing in self.objects]

    def _counted(self, classes: Sequence[str], count: int | None = None) -> str:
        count = len(classes) if count is None else count
        names = f" ({', '.join(classes)})" if classes else ""
        return f"{count} {self.kind}{'' if count == 1 else 's'}{names}"


class Models(Listed):
    """The wrapped models, under plain names."""

    kind, wrap = "model", "wrap_model"

    def state_dict(self) -> list[Any]:
        return [model_state.model_state_dict(model) for model in self.objects]

    def differences(self, thing: Any, state: Mapping[str, Any]) -> Iterable[str]:
        return model_state.differences(thing, state)

    def load(self, thing: Any, state: Any, where: str) -> None:
        model_state.load_model_state_dict(thing, from_plain(state, where))


class Optimizers(Listed):
    """The wrapped optimizers."""

    kind, wrap = "optimizer", "wrap_optimizer"
    keeps_code = True

    def differences(self, thing: Any, state: Mapping[str, Any]) -> Iterable[str]:
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


class Schedulers(Listed):
    """The wrapped learning rate schedulers."""

    kind, wrap = "lr_scheduler", "wrap_lr_scheduler"
    keeps_code = True

    def differences(self, thing: Any, state: Mapping[str, Any]) -> Iterable[str]:
        absent = sorted(_ASKED_FOR_BY_TORCH & set(thing.state_dict()) - set(state))
        return [f"it was saved by another kind of scheduler, which has no {', '.join(absent)}."] if absent else []


class Scaler(Part):
    """The gradient scaler of the trial, if there is one; it may be wrapped late."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision

    def state_dict(self) -> Any:
        return None if self._precision.scaler is None else self._precision.scaler.state_dict()

    def load_state_dict(self, saved: Any) -> None:
        scaler = self._precision.scaler
        if scaler is not None and saved is not None:
            scaler.load_state_dict(saved)
        elif scaler is not None:
            logger.warning("The checkpoint has no state for the gradient scaler: it starts afresh.")
        elif saved is not None:
            logger.warning("The checkpoint has the state of a gradient scaler, and this trial wrapped none: left out.")


class CallbackStates(Part):
    """The states of the callbacks, by name."""

    def __init__(self, named: Mapping[str, PyTorchCallback]) -> None:
        self._named = named

    def state_dict(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self._named.items()}

    def encode(self, state: Any, name: str) -> Any:
        """Return the states as tensors and plain values; errors name the callback."""
        if not isinstance(state, dict):
            return to_plain(state, name)
        return {key: to_plain(item, f"the state of callback {key!r}: state") for key, item in state.items()}

    def decode(self, saved: Any) -> dict[str, Any]:
        """Return the saved states as callbacks see them before they are restored."""
        if not isinstance(saved, dict):
            return {}
        return {  # what no callback asks for stays as it is
            key: from_plain(item, f"the state of callback {key!r}") if key in self._named else item
            for key, item in saved.items()
        }

    def load_state_dict(self, saved: Any) -> None:
        saved = saved or {}
        for name, callback in self._named.items():
            if name in saved:
                callback.load_state_dict(saved[name])
            elif overrides(callback, "load_state_dict"):
                logger.warning(
                    "The checkpoint has no state for callback %r (%s): it starts afresh.", name, type(callback).__name__
                )


class DataPosition(RankPart):
    """Where each rank is in its training data."""

    only_continued = True

    def for_rank(self, saved: Sequence[Any], restoring: Restoring) -> Any:
        if not saved:  # of an older layout: where it was follows from the number of batches
            return {"version": 1, "batches": restoring.batches_trained}
        return super().for_rank(saved, restoring)


class WaitingGradients(RankPart):
    """The gradients that wait for more batches before the optimizer's step."""

    only_continued = True

    def for_rank(self, saved: Sequence[Any], restoring: Restoring) -> Any:
        if len(saved) == restoring.size:
            return saved[restoring.rank]
        return average_waiting([state or {} for state in saved])


class RandomStreams(RankPart):
    """The random streams of each rank. If the number of ranks has changed, new ones are derived from the seed."""

    chief_name = "rng_state"  # where scripts have always found it

    def for_rank(self, saved: Sequence[Any], restoring: Restoring) -> Any:
        if not saved or len(saved) == restoring.size:
            return super().for_rank(saved, restoring)
        logger.info("Saved by %d ranks: random streams begin anew.", len(saved))
        return {"derived": (restoring.seed, restoring.batches_trained, restoring.rank)}

    def load_state_dict(self, saved: Any) -> None:
        if saved is None:
            logger.warning("The checkpoint has no rng_state: random streams go on as they are.")
        elif "derived" in saved:
            _rng.derive(*saved["derived"])
        else:
            super().load_state_dict(saved)


def class_name(thing: Any) -> str:
    """Return the name of the user's class, without wrappers of ours and torch's."""
    if isinstance(thing, nn.Module):
        thing = model_state.plain_model(thing)
    inner = getattr(thing, "scheduler", None) or getattr(thing, "_scheduler", None)
    if type(thing).__module__.startswith("determined.") and inner is not None:
        thing = inner
    return type(thing).__name__
