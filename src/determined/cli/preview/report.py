"""What a simulated search comes to: the table, the sentences below it, and the same for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined.cli.output.table import Column, Table
from determined.cli.output.values import Percent

if TYPE_CHECKING:
    from determined.experiment.hparams import Space
    from determined.experiment.simulation.play import World
    from determined.experiment.simulation.result import SimulatedTrial, Simulation

COLUMNS = [
    Column("Trained to", is_whole=True),
    Column("Trials planned"),
    Column("Trials simulated"),
    Column("Share of all training", "share"),
]


@dataclasses.dataclass(frozen=True)
class Group:
    """Trials that ended alike: the rung they were stopped at, or why they were not."""

    units: int
    label: str
    trials: Sequence[SimulatedTrial]
    planned: int | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """A simulation, and the words for it."""

    played: Simulation
    searcher: Mapping[str, Any]
    space: Space
    unit: str
    seed: int
    world: World

    def table(self) -> Table:
        """Make the table of how many trials ended where, as planned and as simulated."""
        rows = [
            (group.label, group.planned, len(group.trials), Percent(self._share(group.trials)))
            for group in self.groups()
        ]
        title = f"Simulated on synthetic learning curves (seed {self.seed}, curves {self.world.curves_seed})"
        return Table(COLUMNS, rows, title)

    def groups(self) -> list[Group]:
        """Group the trials by how they ended: at each rung, at the end, failed, unusable."""
        from determined.experiment.simulation.result import Ending

        by_rung: dict[int, list[SimulatedTrial]] = {}
        failed: list[SimulatedTrial] = []
        invalid: list[SimulatedTrial] = []
        rungs = self.rungs()
        for trial in self.played.trials:
            if trial.ending is Ending.FAILED:
                failed.append(trial)
            elif trial.ending is Ending.INVALID:
                invalid.append(trial)
            else:
                rung = max((rung for rung in rungs if rung <= trial.reached), default=0)
                by_rung.setdefault(rung, []).append(trial)
        planned = self._planned()
        groups = [
            Group(rung, self._label(rung, by_rung.get(rung, [])), by_rung.get(rung, []), planned.get(rung, 0))
            for rung in sorted(by_rung.keys() | planned.keys())
        ]
        groups += [Group(-1, "failed on the way", failed)] if failed else []
        return [*groups, Group(-1, "unusable hyperparameters", invalid)] if invalid else groups

    def rungs(self) -> list[int]:
        """Return where trials are compared; the last is the end of training."""
        from determined.experiment.simulation.play import rungs_of

        return rungs_of(self.searcher) or [self.played.max_time]

    def lines(self) -> Iterator[str]:
        """Yield sentences on what the search cost and found."""
        played = self.played
        time = (
            f"in the time of {_count(played.time / played.max_time)} training{'s' * (played.time != played.max_time)}"
        )
        at_once = f"{played.places} at a time"
        if played.units < played.all_units():
            saved = (
                f"{played.units:,} of {played.all_units():,} {self.unit} trained ({played.saved() * 100:.0f} % saved)"
            )
            yield f"{saved}, {time} instead of {_count(played.all_time() / played.max_time)}, {at_once}."
        else:
            yield f"{played.units:,} {self.unit} trained, {time}, {at_once}."
        if (best := played.best()) is not None and (possible := played.best_possible()) is not None:
            found = f"Best value {short(played.best_of(best))}, of trial {best.number}"
            if possible is best:
                yield f"{found}; no trial would have done better, trained to the end."
            else:
                missed = f"the best of all trials trained to the end {short(played.potential_of(possible))}"
                yield f"{found}; {missed}, of trial {possible.number}, which saw {possible.reached} {self.unit}."
        if restarts := sum(trial.restarts for trial in played.trials):
            yield f"{restarts} crash{'es' * (restarts > 1)}; after a crash a trial goes on from its newest validation."
        if played.state.value != "COMPLETED":
            yield f"The experiment would end as {played.state.value}. {played.reason}"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        played = self.played
        best, possible = played.best(), played.best_possible()
        return {
            "rows": self.table().records(),
            "state": played.state.value,
            "unit": self.unit,
            "units": played.units,
            "all_units": played.all_units(),
            "saved": played.saved(),
            "time": played.time,
            "all_time": played.all_time(),
            "places": played.places,
            "best": best and {"trial": best.number, "value": played.best_of(best)},
            "best_possible": possible and {"trial": possible.number, "value": played.potential_of(possible)},
            "found": [list(step) for step in played.found],
            "trials": [self._trial(trial) for trial in played.trials],
        }

    def _trial(self, trial: SimulatedTrial) -> dict[str, Any]:
        return {
            "number": trial.number,
            "hparams": trial.hparams,
            "reached": trial.reached,
            "units": trial.units,
            "restarts": trial.restarts,
            "best": self.played.best_of(trial) if trial.seen else None,
            "ending": trial.ending.value,
            "created": trial.created,
            "ended": trial.ended,
        }

    def _planned(self) -> dict[int, int]:
        from determined.experiment.simulation.play import rungs_of
        from determined.experiment.simulation.preview import halving_counts, preview

        if rungs_of(self.searcher):
            return halving_counts(self.searcher)
        return {self.played.max_time: sum(count for count, _ in preview(self.searcher, self.space))}

    def _label(self, rung: int, trials: Sequence[SimulatedTrial]) -> str:
        """Return where the trials ended: the rung, or the range if they ended elsewhere."""
        reached = [trial.reached for trial in trials] or [rung]
        low, high = min(reached), max(reached)
        return f"{low} {self.unit}" if low == high else f"{low} to {high} {self.unit}"

    def _share(self, trials: Sequence[SimulatedTrial]) -> float:
        return sum(trial.units for trial in trials) / self.played.units if self.played.units else 0.0


def short(value: float) -> str:
    """Format a simulated value with three digits."""
    return f"{value:.3g}"


def _count(amount: float) -> str:
    return f"{amount:,.1f}".removesuffix(".0")
