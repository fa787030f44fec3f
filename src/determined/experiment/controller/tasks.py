"""What an attempt is started with: the code, the config with its secrets, the checkpoint to go on from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from determined import _home
from determined.experiment.controller import custom, start
from determined.experiment.controller.managed import Managed
from determined.experiment.launchers.base import TaskSpec
from determined.experiment.slots import Slots, pick, pool_of
from determined.experiment.submission import secret_values
from determined.experiment.submission.submit import SUBMITTED
from determined.store import checkpoints, events, experiments, trials
from determined.store.attempts import Attempt
from determined.store.control import log_policies
from determined.store.database.connection import Store

if TYPE_CHECKING:
    import sqlalchemy as sa


def load(conn: sa.Connection, experiment_id: int) -> Managed:
    """Return an experiment as the store has it."""
    return Managed(conn, experiment_id, custom.method_of(conn, experiments.get(conn, experiment_id)))


def task_of(
    conn: sa.Connection, store: Store, experiment: Managed, attempt: Attempt, slots: Slots, devices: tuple[str, ...]
) -> TaskSpec:
    """Return the task of an attempt that has just begun."""
    trial = trials.get(conn, attempt.trial_id)
    own = checkpoints.newest(conn, attempt.trial_id)
    config = secret_values.restore(experiment.config, experiment.uuid)
    return TaskSpec(
        store=start.address(store),
        home=str(_home.data_directory()),
        store_id=store.id,
        allocation_id=attempt.allocation_id,
        task_id=attempt.task_id,
        experiment_id=attempt.experiment_id,
        trial_id=attempt.trial_id,
        attempt=attempt.attempt,
        trial_seed=trial.seed,
        hparams=secret_values.restore_hparams(trial.hparams, config),
        config=config,
        slots=len(devices),
        slot_kind=slots.kind,
        slot_ids=list(devices),
        threads=threads(len(devices), len(slots)),
        latest_checkpoint=own.uuid if own is not None else trial.warm_start_checkpoint_uuid,
        steps_completed=own.steps if own is not None else 0,
        code_snapshot_id=experiment.code_snapshot_id,
        versions=submitted_with(conn, experiment.id) if slots.nodes else {},
        excluded_nodes=log_policies.excluded_nodes(conn, attempt.task_id) if slots.nodes else [],
    )


def submitted_with(conn: sa.Connection, experiment_id: int) -> dict[str, str]:
    """Return the versions of Python and packages that an experiment was submitted with; empty if nobody noted them."""
    noted = events.newest(conn, experiment_id, before_id=None, kinds=(SUBMITTED,), limit=1)
    return dict(noted[0].body["versions"]) if noted else {}


def refusal(task: TaskSpec, slots: Slots) -> str | None:
    """Return a sentence if a trial can run nowhere any more because its log policies have excluded nodes, else None."""
    if not task.excluded_nodes or slots.may_grow:
        return None
    resources = task.config.get("resources") or {}
    left = slots.usable(pool_of(resources), task.excluded_nodes)
    if pick(left, task.slots, is_single_node=bool(resources.get("is_single_node"))) is not None:
        return None
    return (
        f"log policies have excluded {', '.join(task.excluded_nodes)}, and it needs {task.slots} slots of the "
        f"{len(left)} on other nodes"
    )


def threads(slots: int, all_slots: int, cores: int | None = None) -> int:
    """Return how many CPU threads a trial may use, if all slots were taken by trials like it.

    Example::

        threads(1, 2, cores=8)  # 4
    """
    cores = cores or os.cpu_count() or 1
    return max(1, cores * max(slots, 1) // max(all_slots, 1))
