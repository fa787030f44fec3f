"""The parts of a checkpoint, each with its rules: how it is saved, who restores it, and what may differ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from determined.pytorch._callback import PyTorchCallback, overrides
from determined.pytorch._rng import derive
from determined.pytorch._state import Part, RankPart, Restoring
from determined.pytorch.checkpoint import model_state
from determined.pytorch.checkpoint.encoding import from_plain, to_plain
from determined.pytorch.parallel.gradients import average_waiting

logger = logging.getLogger("determined.pytorch")

# What torch's optimizers got over the years; they put in the defaults themselves if an older file lacks them.
_ADDED_BY_TORCH = {"maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
_ASKED_FOR_BY_TORCH = {"lr_lambdas", "_schedulers"}  # without these its schedulers cannot be restored


class Listed(Part):
    """Objects that are saved as a list, in the order the trial wrapped them in."""

    is_shown_decoded = False  # functions in it are taken from the objects, once they are restored

    def __init__(self, kind: str, wrap: str, objects: Sequence[Any], saved_classes: Callable[[str], list[str]]) -> None:
        self.kind = kind
        self._wrap = wrap
        self._objects = objects
        self._saved_classes = saved_classes

    def classes(self) -> list[str]:
        """Return the names of their classes, for messages."""
        return [class_name(thing) for thing in self._objects]

    def mismatches(self, saved: Any) -> Iterable[str]:
        kinds = self._counted(self.classes())
        if saved is None and self._objects:
            yield f"It holds no {self.kind}s, and this trial wrapped {kinds}."
            return
        if not isinstance(saved or [], (list, tuple)):
            yield f"Its {self.kind}s are a {type(saved).__name__}, not a list."
            return
        saved = saved or []
        if len(saved) < len(self._objects):
            yield (
                f"It holds {self._counted(self._saved_classes(self.kind), len(saved))}, and this trial wrapped "
                f"{kinds}. Call context.{self._wrap}() for the same ones in the same order, or start without it."
            )
        for i, (thing, state) in enumerate(zip(self._objects, saved, strict=False)):
            for problem in self.differences(thing, state):
                yield f"{self.kind} {i} ({class_name(thing)}): {problem}"

    def differences(self, thing: Any, state: Any) -> Iterable[str]:
        """Yield the reasons why one saved state does not fit one object."""
        if not isinstance(state, Mapping):
            yield f"its saved state is a {type(state).__name__}, not a dict."
        elif thing is None:
            yield "there is no such object."

    def load_state_dict(self, saved: Any) -> None:
        saved = saved or []
        if len(saved) > len(self._objects):
            logger.warning(
                "The checkpoint holds %s and this trial wrapped %s: the first are loaded, the rest is left out.",
                self._counted(self._saved_classes(self.kind), len(saved)),
                self._counted(self.classes()),
            )
        was = [*self._saved_classes(self.kind), *[""] * len(saved)]
        for i, (thing, state) in enumerate(zip(self._objects, saved, strict=False)):
            if was[i] not in ("", class_name(thing)) and not isinstance(thing, nn.Module):  # models were compared
                logger.warning(
                    "%s %d was saved as %s, and is %s here: what both know is taken over.",
                    self.kind.capitalize(), i, was[i], class_name(thing),
                )  # fmt: skip
            self.load(thing, state, f"the state of {self.kind} {i} ({class_name(thing)})")

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
        return f"{count} {self.kind}{'' if count == 1 else 's'}{names}"


class Models(Listed):
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


class Optimizers(Listed):
    """The wrapped optimizers."""

    keeps_code = True

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


class Schedulers(Listed):
    """The wrapped learning rate schedulers."""

    keeps_code = True

    def __init__(self, schedulers: Sequence[Any], saved_classes: Callable[[str], list[str]]) -> None:
        super().__init__("lr_scheduler", "wrap_lr_scheduler", schedulers, saved_classes)

    def differences(self, thing: Any, state: Any) -> Iterable[str]:
        yield from super().differences(thing, state)
        if thing is not None and isinstance(state, Mapping):
            absent = sorted(_ASKED_FOR_BY_TORCH & set(thing.state_dict()) - set(state))
            if absent:
                yield f"it was saved by another kind of scheduler, which has no {', '.join(absent)}."


class HasScaler(Protocol):
    """The trial's context."""

    scaler: Any


class Scaler(Part):
    """The gradient scaler of the context, if there is one; it may be wrapped late."""

    def __init__(self, context: HasScaler) -> None:
        self._context = context

    def state_dict(self) -> Any:
        return None if self._context.scaler is None else self._context.scaler.state_dict()

    def load_state_dict(self, saved: Any) -> None:
        scaler = self._context.scaler
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
        if not isinstance(state, dict):
            return super().encode(state, name)
        return {key: to_plain(item, f"the state of callback {key!r}: state") for key, item in state.items()}

    def decode(self, saved: Any, name: str) -> Any:  # noqa: ARG002 - errors name the callback
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
            derive(*saved["derived"])
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
