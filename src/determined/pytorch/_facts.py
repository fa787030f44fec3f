"""What a trial can ask its context: hyperparameters, config, seed and ids, and which batch is trained."""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Mapping
from typing import Any

from determined import errors
from determined._info import ClusterInfo, TrialInfo

logger = logging.getLogger("determined.pytorch")


@dataclasses.dataclass
class Position:
    """The batch being trained, or trained last. Not saved, unlike `Progress`."""

    batch_idx: int | None = None
    epoch_idx: int = 0
    epoch_length: int | None = None
    epoch_shift: int = 0  # of `TrainingStream`, for what counts epochs by batch_idx
    starts_epoch: bool = False
    ends_epoch: bool = False

    def current(self, question: str) -> int:
        """Return the batch's index; raise `InternalException` before the first batch, naming the question."""
        if self.batch_idx is None:
            raise errors.InternalException(
                f"{question} has no answer before the first training batch. Ask inside train_batch() or later."
            )
        return self.batch_idx


class TrialFacts:
    """The getters of `PyTorchTrialContext`, which says what the arguments are."""

    def __init__(
        self,
        trial_info: TrialInfo | None,
        trial_seed: int | None,
        hparams: dict[str, Any] | None,
        slots_per_trial: int,
        exp_conf: dict[str, Any] | None,
        steps_completed: int,
    ) -> None:
        self.trial_info = trial_info
        self._trial_seed = trial_seed
        self._hparams = hparams
        self._exp_conf = exp_conf
        self._batch_sizes = _batch_sizes(hparams, slots_per_trial)
        self._steps_completed = steps_completed
        self.position = Position()

    # What the trial was given.

    def get_global_batch_size(self) -> int:
        """Records per batch over all slots: the hyperparameter `global_batch_size`, divisible by the slots."""
        return self._known_batch_sizes()[0]

    def get_per_slot_batch_size(self) -> int:
        """Records per batch of one slot."""
        return self._known_batch_sizes()[1]

    def _known_batch_sizes(self) -> tuple[int, int]:
        if self._batch_sizes is None:
            raise ValueError(
                "There is no batch size: hparams has no 'global_batch_size'. "
                "Pass for example pytorch.init(hparams={'global_batch_size': 32})."
            )
        return self._batch_sizes

    def get_experiment_config(self) -> dict[str, Any]:
        """The experiment config; ValueError if there is none."""
        if self._exp_conf is None:
            raise ValueError("There is no experiment config. Pass one with pytorch.init(exp_conf={...}).")
        return self._exp_conf

    def get_data_config(self) -> dict[str, Any]:
        """The `data` section of the experiment config."""
        return self.get_experiment_config().get("data") or {}

    def get_hparams(self) -> dict[str, Any]:
        """All hyperparameters; ValueError if there are none."""
        if self._hparams is None:
            raise ValueError("There are no hyperparameters. Pass them with pytorch.init(hparams={...}).")
        return self._hparams

    def get_hparam(self, name: str) -> Any:
        """One hyperparameter; ValueError if there is none of that name."""
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(f"There is no hyperparameter {name!r}. There are {sorted(map(str, hparams))}.")
        if name == "global_batch_size":
            logger.warning(
                "get_hparam('global_batch_size') is the size over all slots. To build a data loader use "
                "context.get_per_slot_batch_size()."
            )
        return hparams[name]

    def get_trial_seed(self) -> int:
        """The seed that the random streams of this trial started from."""
        if self._trial_seed is None:
            raise errors.InternalException("This context was made without a seed. pytorch.init() always has one.")
        return self._trial_seed

    def continue_with_seed(self, seed: int) -> None:
        """Use the seed that resumed training began with. For the trainer."""
        self._trial_seed = seed

    def get_initial_batch(self) -> int:
        """How many batches were trained before: those that a data loader of your own has to skip.

        `fit()` knows which checkpoint it goes on from, so ask in `build_training_data_loader()`, not in `__init__`.
        """
        return self._steps_completed

    def start_at(self, batches_trained: int) -> None:
        """Set how many batches were trained before. For the trainer."""
        self._steps_completed = batches_trained

    def get_experiment_id(self) -> int:
        """The experiment's number; ValueError in a plain `python train.py`, which belongs to none."""
        return self._known_trial("get_experiment_id").experiment_id

    def get_trial_id(self) -> int:
        """The trial's number; ValueError in a plain `python train.py`, which has none."""
        return self._known_trial("get_trial_id").trial_id

    def _known_trial(self, call: str) -> TrialInfo:
        if self.trial_info is None:
            raise ValueError(
                f"{call}() has no answer: this process was not started by an experiment. "
                "Guard it with `if determined.get_cluster_info():`."
            )
        return self.trial_info

    # Where training is.

    def current_train_batch(self) -> int:
        """The batch being trained, or trained last, from 0."""
        return self.position.current("current_train_batch()")

    def current_train_epoch(self) -> int:
        """The epoch of that batch, from 0."""
        self._current_in_epoch("current_train_epoch()")
        return self.position.epoch_idx

    def is_epoch_start(self) -> bool:
        """Whether that batch is the first of its epoch."""
        self._current_in_epoch("is_epoch_start()")
        return self.position.starts_epoch

    def is_epoch_end(self) -> bool:
        """Whether that batch is the last of its epoch."""
        self._current_in_epoch("is_epoch_end()")
        return self.position.ends_epoch

    def _current_in_epoch(self, question: str) -> None:
        self.position.current(question)
        if self.position.epoch_length is None:
            raise errors.InternalException(f"{question} has no answer before the training data loader exists.")


def find_trial_info(info: ClusterInfo | None) -> TrialInfo | None:
    """Return what this process was told about its trial; None if it trains none."""
    return info.trial if info is not None and info.task_type == "TRIAL" else None


def _batch_sizes(hparams: Mapping[str, Any] | None, slots: int) -> tuple[int, int] | None:
    """Return records per batch over all slots, and of one slot; None if the hyperparameters do not say."""
    size = (hparams or {}).get("global_batch_size")
    if not size:
        return None
    if not isinstance(size, int) or isinstance(size, bool):
        raise errors.InvalidExperimentException(f"global_batch_size is {size!r}, expected an int.")
    slots = max(slots, 1)
    if size < slots:
        raise errors.InvalidExperimentException(
            f"global_batch_size={size} is smaller than slots_per_trial={slots}, so some slots would receive no "
            f"records. Use at least {slots}, or fewer slots."
        )
    per_slot = size // slots
    if per_slot * slots != size:
        logger.warning(
            "global_batch_size=%d does not divide by %d slots: each gets %d records, %d in all.",
            size,
            slots,
            per_slot,
            per_slot * slots,
        )
    return per_slot * slots, per_slot


def sample_hparams(space: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """Return one value per hyperparameter: constants as they are, ranges and choices drawn with this seed.

    Args:
        space: The `hyperparameters` section of an experiment config.
        seed: The same seed draws the same values.
    """
    draw = random.Random(seed)
    return {name: _sample(value, draw) for name, value in space.items()}


def _sample(value: Any, draw: random.Random) -> Any:
    if not isinstance(value, Mapping):
        return value
    kind = value.get("type")
    if kind == "const":
        return value["val"]
    if kind == "categorical":
        return draw.choice(list(value["vals"]))
    if kind == "int":
        return draw.randint(int(value["minval"]), int(value["maxval"]))
    if kind == "double":
        return draw.uniform(float(value["minval"]), float(value["maxval"]))
    if kind == "log":
        exponent = draw.uniform(float(value["minval"]), float(value["maxval"]))
        return float(value.get("base", 10.0)) ** exponent
    return {name: _sample(inner, draw) for name, inner in value.items()}


class FlagTypeError(errors.DeterminedError, TypeError, AssertionError):
    """A flag got something else than True or False."""


def check_flag(call: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise FlagTypeError(f"{call}() takes True or False, not {value!r}.")
