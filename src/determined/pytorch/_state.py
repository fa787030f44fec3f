"""The one list of what is saved: how far training has come, and every part with a state, by name and in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from determined import errors
from determined._types import Json, Stateful
from determined.pytorch.checkpoint.encoding import from_plain, to_plain


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
        self._thing = thing

    def state_dict(self) -> Any:
        """Return what to save; None for nothing."""
        return self._thing.state_dict()

    def encode(self, state: Any, name: str) -> Any:
        """Return a state as tensors and plain values."""
        return to_plain(state, name, keeps_code=self.keeps_code)

    def decode(self, saved: Any, name: str) -> Any:
        """Return a saved state as callbacks see it before it is restored."""
        return from_plain(saved, name) if self.is_shown_decoded else saved

    def mismatches(self, saved: Any) -> Iterable[str]:  # noqa: ARG002 - for those that can tell
        """Yield a sentence for each reason why `saved` (None if nothing was) cannot be loaded."""
        return ()

    def load_state_dict(self, saved: Any) -> None:
        """Restore what was saved, or None."""
        if saved is not None:
            self._thing.load_state_dict(saved)


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
        return {
            name: part.encode(state, f"the state of {name}")
            for name, part in self._parts.items()
            if isinstance(part, RankPart) and (state := part.state_dict()) is not None
        }

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

    def encode(self, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
        """Return what callbacks may have changed or added to, as tensors and plain values."""
        return {
            key: self._parts[key].encode(value, key) if key in self._parts else to_plain(value, key)
            for key, value in checkpoint.items()
        }

    def decode(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was read from a file as callbacks see it."""
        return {
            key: self._parts[key].decode(value, key) if key in self._parts else from_plain(value, key)
            for key, value in saved.items()
        }

    def for_rank(self, checkpoint: Mapping[str, Any], restoring: Restoring) -> dict[str, Any]:
        """Return the checkpoint with the states that this rank restores in place of those of all ranks."""
        mine = dict(checkpoint)
        for name, part in self._parts.items():
            if isinstance(part, RankPart):
                is_wanted = restoring.continues or not part.only_continued
                state = part.for_rank(checkpoint.get(name) or [], restoring) if is_wanted else None
                mine[name] = from_plain(state, f"the state of {name}")
        return mine

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
