"""Which checkpoints of an experiment are kept: the rule itself, and what it means for the rows of a store.

Rows in, ids out. Removing the files is `artifacts`' business, and saying so in the store that of whoever removed them:
the client, or a run that ends.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from determined.errors import ConfigError

KEYS = ("save_experiment_best", "save_trial_best", "save_trial_latest")


@dataclasses.dataclass(frozen=True)
class Policy:
    """How many checkpoints to keep; what none of the three numbers keeps is removed.

    Args:
        save_experiment_best: The best of all trials together.
        save_trial_best: The best of each trial.
        save_trial_latest: The newest of each trial.

    Example::

        assert Policy(save_trial_best=3).save_trial_latest == 1
    """

    save_experiment_best: int = 0
    save_trial_best: int = 1
    save_trial_latest: int = 1

    def __post_init__(self) -> None:
        for name, number in dataclasses.asdict(self).items():
            if type(number) is not int or number < 0:
                raise ConfigError(f"checkpoint_storage.{name} is {number!r}. Use a whole number from 0 up.")

    @classmethod
    def asked_for(cls, checkpoint_storage: object) -> Policy | None:
        """The policy that a config's `checkpoint_storage` states, or None if it says nothing about keeping.

        Example::

            assert Policy.asked_for({"save_trial_best": 2}) == Policy(0, 2, 1)
            assert Policy.asked_for({"type": "directory", "container_path": "/data"}) is None
        """
        if not isinstance(checkpoint_storage, Mapping):
            return None
        given = {key: checkpoint_storage[key] for key in KEYS if checkpoint_storage.get(key) is not None}
        return cls(**given) if given else None


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A checkpoint as the rule sees it.

    Args:
        uuid: The checkpoint.
        trial_id: Whose it is.
        steps: How far training had come.
        metric: The searcher metric of the validation at exactly these steps; None without one.
        validated_at: When that validation was reported.
        saved_at: When the checkpoint was.
    """

    uuid: str
    trial_id: int
    steps: int
    metric: float | None = None
    validated_at: datetime.datetime | None = None
    saved_at: datetime.datetime | None = None


def to_keep(
    checkpoints: Iterable[Candidate], policy: Policy, smaller_is_better: bool = True, protected: Collection[str] = ()
) -> set[str]:
    """The ids that stay: the best, the newest, and the protected ones.

    Args:
        checkpoints: All that one experiment has.
        policy: How many to keep.
        smaller_is_better: Which metric is the better one.
        protected: Ids that stay whatever the policy says.

    Example::

        two = [Candidate("a", 1, 100, metric=0.5), Candidate("b", 1, 200, metric=0.7)]
        assert to_keep(two, Policy(0, 1, 0)) == {"a"}
    """
    found = list(checkpoints)
    by_trial: dict[int, list[Candidate]] = {}
    for candidate in found:
        by_trial.setdefault(candidate.trial_id, []).append(candidate)
    kept = {candidate.uuid for candidate in found if candidate.uuid in protected}
    kept |= _best(found, policy.save_experiment_best, smaller_is_better)
    for own in by_trial.values():
        kept |= _best(own, policy.save_trial_best, smaller_is_better)
        kept |= {candidate.uuid for candidate in sorted(own, key=_age, reverse=True)[: policy.save_trial_latest]}
    return kept


def newest(checkpoints: Iterable[Candidate]) -> str | None:
    """The id that training would go on from, or None."""
    return max(checkpoints, key=_age).uuid if (checkpoints := list(checkpoints)) else None


def _best(candidates: Iterable[Candidate], number: int, smaller_is_better: bool) -> set[str]:
    def rank(candidate: Candidate) -> tuple[Any, ...]:
        value = candidate.metric
        if value is None or math.isnan(value):  # NaN counts as worst possible
            return (True, 0.0, *_validated(candidate))
        return (False, value if smaller_is_better else -value, *_validated(candidate))

    validated = [candidate for candidate in candidates if candidate.metric is not None]
    return {candidate.uuid for candidate in sorted(validated, key=rank)[:number]}


def _validated(candidate: Candidate) -> tuple[float, int, str]:
    """Of equally good ones the earlier validation comes first."""
    return (_seconds(candidate.validated_at), candidate.steps, candidate.uuid)


def _age(candidate: Candidate) -> tuple[int, float, str]:
    return (candidate.steps, _seconds(candidate.saved_at), candidate.uuid)


def _seconds(moment: datetime.datetime | None) -> float:
    return moment.timestamp() if moment else 0.0
