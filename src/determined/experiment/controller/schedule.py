"""Which trials get the free slots: by priority, then in the order of submission. Pure: no store, no processes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from determined.experiment.slots import pick


@dataclass(frozen=True)
class Waiting:
    """One experiment that wants slots.

    Attributes:
        experiment_id: Which; smaller ones were submitted earlier.
        priority: Smaller ones come first.
        slots_per_trial: How many each of its trials takes; 0 takes none.
        max_slots: How many it may use at once; None is as many as there are.
        used: How many it uses now.
        queued: Request ids of its trials, in the order in which they are to start.
        usable: The slots that its trials can use; None is any.
        is_single_node: Whether all slots of a trial have to be on one node.
    """

    experiment_id: int
    priority: int
    slots_per_trial: int
    max_slots: int | None
    used: int
    queued: Sequence[str]
    usable: Collection[str] | None = None
    is_single_node: bool = False


@dataclass(frozen=True)
class Start:
    """Start this trial on these slots."""

    experiment_id: int
    request_id: str
    slots: tuple[str, ...]


def choose(waiting: Iterable[Waiting], free: Sequence[str]) -> list[Start]:
    """Return the trials to start now.

    A trial starts only when all its slots are free. One that waits for slots keeps those behind it from the slots that
    it can use, so that a large trial is not overtaken for ever; one that waits because of its own experiment's
    `max_slots` does not.

    Example::

        choose([Waiting(1, 42, 1, None, 0, ["a", "b"])], ["0"])  # [Start(1, "a", ("0",))]
    """
    left = list(free)
    chosen: list[Start] = []
    for experiment in sorted(waiting, key=lambda each: (each.priority, each.experiment_id)):
        used, wanted = experiment.used, experiment.slots_per_trial
        for request_id in experiment.queued:
            if experiment.max_slots is not None and used + wanted > experiment.max_slots:
                break
            fitting = [slot for slot in left if experiment.usable is None or slot in experiment.usable]
            picked = pick(fitting, wanted, is_single_node=experiment.is_single_node)
            if picked is None:
                left = [slot for slot in left if slot not in fitting]
                break
            chosen.append(Start(experiment.experiment_id, request_id, picked))
            used, left = used + wanted, [slot for slot in left if slot not in picked]
    return chosen
