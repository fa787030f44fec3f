"""Which checkpoints of an experiment are kept: the rule itself, and what it means for the rows of a store.

Rows in, ids out. Removing the files is `artifacts`' business, and saying so in the store that of whoever removed them:
the client, or a run that ends.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from determined.errors import ConfigError
from determined.store import checkpoints, experiments, trials
from determined.store.metrics.rollups import real

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.database.connection import Store

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
        """Return the policy that a config's `checkpoint_storage` states, or None if it says nothing about keeping.

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
        order: Rises with the time of that validation.
        saved_at: When the checkpoint was reported.
    """

    uuid: str
    trial_id: int
    steps: int
    metric: float | None = None
    order: int = 0
    saved_at: datetime.datetime | None = None


def to_keep(
    candidates: Iterable[Candidate], policy: Policy, smaller_is_better: bool = True, protected: Collection[str] = ()
) -> set[str]:
    """Return the ids that stay: the best, the newest, and the protected ones.

    Args:
        candidates: All that one experiment has.
        policy: How many to keep.
        smaller_is_better: Which metric is the better one.
        protected: Ids that stay whatever the policy says.

    Example::

        two = [Candidate("a", 1, 100, metric=0.5), Candidate("b", 1, 200, metric=0.7)]
        assert to_keep(two, Policy(0, 1, 0)) == {"a"}
    """
    found = list(candidates)
    by_trial: dict[int, list[Candidate]] = {}
    for candidate in found:
        by_trial.setdefault(candidate.trial_id, []).append(candidate)
    kept = {candidate.uuid for candidate in found if candidate.uuid in protected}
    kept |= _best(found, policy.save_experiment_best, smaller_is_better)
    for own in by_trial.values():
        kept |= _best(own, policy.save_trial_best, smaller_is_better)
        kept |= {candidate.uuid for candidate in sorted(own, key=_age, reverse=True)[: policy.save_trial_latest]}
    return kept


def plan(conn: sa.Connection, experiment_id: int, policy: Policy | None = None) -> list[str]:
    """Return the checkpoints of an experiment that its policy does not keep. Nothing is changed.

    Registered ones, what some trial started from, and what a trial would be resumed from are kept in any case.

    Args:
        conn: Where.
        experiment_id: Whose checkpoints.
        policy: Instead of what the experiment's config says. Without either, a run of no controller keeps everything.

    Example::

        with store.read() as conn:
            unwanted = plan(conn, 7, Policy(save_trial_latest=2))
    """
    experiment = experiments.get(conn, experiment_id)
    chosen = policy or Policy.asked_for((experiment.config or {}).get("checkpoint_storage"))
    if chosen is None:
        if experiment.unmanaged:
            return []
        chosen = Policy()
    # In this order ties are in the order of their validations.
    rows = checkpoints.find(conn, experiment_id=experiment_id, sort_by="searcher_metric", descending=False)
    found = [_candidate(row, order, experiment.searcher_metric) for order, row in enumerate(rows)]
    protected = checkpoints.protected(conn, experiment_id) | _resumable(conn, experiment, found)
    kept = to_keep(found, chosen, experiment.smaller_is_better, protected)
    return [candidate.uuid for candidate in sorted(found, key=_age) if candidate.uuid not in kept]


def _candidate(row: checkpoints.CheckpointRow, order: int, metric: str | None) -> Candidate:
    value = real((row.validation_metrics or {}).get(metric)) if metric is not None else None
    return Candidate(row.uuid, row.trial_id, row.steps, value, order, row.report_time)


def _resumable(conn: sa.Connection, experiment: experiments.ExperimentRow, found: Iterable[Candidate]) -> set[str]:
    """Return the newest checkpoint of each trial that may continue: it has not ended, or its script resumes it."""
    over = {"COMPLETED"} if experiment.unmanaged else experiments.TERMINAL
    going = {trial.id for trial in trials.of_experiment(conn, experiment.id) if trial.state not in over}
    of_trial: dict[int, list[Candidate]] = {}
    for candidate in found:
        if candidate.trial_id in going:
            of_trial.setdefault(candidate.trial_id, []).append(candidate)
    return {max(own, key=_age).uuid for own in of_trial.values()}


def remove(
    store: Store,
    uuids: Iterable[str],
    delete: Callable[[checkpoints.CheckpointRow], bool],
    *,
    seconds: float = math.inf,
) -> tuple[list[str], list[str]]:
    """Delete the files of checkpoints and update their rows, one after the other.

    Args:
        store: Where they are recorded.
        uuids: Which; what `plan` returned.
        delete: Deletes the files of one and tells whether they are gone; False if somebody is reading them.
        seconds: Begin with no further one when so much time has passed; the next call goes on.

    Returns:
        The ids that are gone, and those that stayed: being read, registered since `plan` looked, or left for later.

    Example::

        gone, stayed = remove(store, unwanted, lambda row: open_storage(row.storage).delete_unread(row.uuid))
    """
    gone, stayed = [], []
    end = time.monotonic() + seconds
    for uuid in uuids:
        if time.monotonic() >= end:
            stayed.append(uuid)
            continue
        with store.read() as conn:
            row = checkpoints.get(conn, uuid)
            is_wanted = uuid in checkpoints.protected(conn, row.experiment_id)
        if is_wanted or not delete(row):
            stayed.append(uuid)
            continue
        with store.write() as conn:  # files first: see docs/decisions/retention.md
            checkpoints.set_state(conn, uuid, "DELETED")
        gone.append(uuid)
    return gone, stayed


def _best(candidates: Iterable[Candidate], number: int, smaller_is_better: bool) -> set[str]:
    def rank(candidate: Candidate) -> tuple[Any, ...]:
        value = candidate.metric or 0.0
        is_nan = math.isnan(value)  # NaN counts as worst possible
        signed = 0.0 if is_nan else value if smaller_is_better else -value
        return (is_nan, signed, candidate.order, candidate.steps, candidate.uuid)  # of equals the earlier validation

    validated = [candidate for candidate in candidates if candidate.metric is not None]
    return {candidate.uuid for candidate in sorted(validated, key=rank)[:number]}


def _age(candidate: Candidate) -> tuple[int, float, str]:
    saved_at = candidate.saved_at.timestamp() if candidate.saved_at else 0.0
    return (candidate.steps, saved_at, candidate.uuid)
