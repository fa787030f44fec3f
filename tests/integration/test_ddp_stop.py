"""Several ranks stop at the same batch, whoever is asked and whenever, and go on as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.pytorch import Batch, Epoch
from tests.ddp_trials import RECORDS, Regression, digest, elsewhere, regress
from tests.forks import Nursery

LONG = 100_000
RANDOM = {"dropout": True, "shuffle": True}


class Asked(pytorch.PyTorchCallback):
    """Has a SIGTERM sent to this rank in one place."""

    def __init__(self, place: str) -> None:
        self.place = place

    def on_validation_start(self) -> None:
        self._ask("validation")

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        self._ask("saving")

    def _ask(self, place: str) -> None:
        if self.place == place:
            os.kill(os.getpid(), signal.SIGTERM)


def trained(asked: Sequence[int] = (), length: int = LONG) -> dict[str, Any]:
    """Train until stopped: these ranks are sent a SIGTERM in batch 10."""
    elsewhere()

    def on_batch(batch_idx: int) -> None:
        if batch_idx == 10:
            for _ in range(asked.count(int(os.environ["RANK"]))):
                os.kill(os.getpid(), signal.SIGTERM)

    return regress(trial={**RANDOM, "on_batch": on_batch}, latest_checkpoint="latest", max_length=Batch(length))


def asked_in(place: str) -> dict[str, Any]:
    """Train until a rank is sent a SIGTERM there: the chief, who saves, or the other."""
    elsewhere()
    asked = os.environ["RANK"] == ("0" if place == "saving" else "1")
    return regress(
        trial={**RANDOM, "callbacks": {"asked": Asked(place if asked else "")}},
        max_length=Batch(LONG),
        validation_period=Batch(20),
        checkpoint_period=Batch(20),
    )


def checkpoints(home: Path) -> dict[int, str]:
    """The checkpoints of a test, by the batch they were made at."""
    found = [path for path in (home / "checkpoints").iterdir() if not path.name.startswith(".")]
    batches = [json.loads((path / "metadata.json").read_text())["steps_completed"] for path in found]
    assert len(set(batches)) == len(batches), "one batch was saved twice"
    return {batch: path.name for batch, path in zip(batches, found, strict=True)}


def straight(batches: int, options: dict[str, Any]) -> dict[str, Any]:
    elsewhere()
    return regress(trial=options, max_length=Batch(batches))


@pytest.mark.parametrize("ranks", [[0, 1], [1], [0], [1, 1, 0]])
def test_asked_while_training(ranks: list[int], nursery: Nursery, home: Path, tmp_path: Path) -> None:
    """W19, 4.8: whichever rank is told, once or twice: both stop after the same batch, with one checkpoint.

    Then they go on to the same end, bit for bit, as two ranks that nobody stopped: shuffled, with dropout that differs
    between ranks.
    """
    first = nursery.run(2, trained, [ranks])
    (batch,) = checkpoints(home)
    assert [len(rank["seen"]) for rank in first] == [batch, batch]
    assert first[0]["digest"] == first[1]["digest"]
    if ranks == [1]:
        length = batch + 9
        second = nursery.run(2, trained, [[], length])
        whole = nursery.run(2, straight, [length, RANDOM], env={"DET_HOME": str(tmp_path / "straight")})
        assert [rank["digest"] for rank in second] == [rank["digest"] for rank in whole]
        for before, after, never_stopped in zip(first, second, whole, strict=True):
            assert before["seen"] + after["seen"] == never_stopped["seen"]


@pytest.mark.parametrize("place", ["validation", "saving"])
def test_asked_elsewhere(place: str, nursery: Nursery, home: Path) -> None:
    """4.8: a request during validation or saving is honoured after it, with a checkpoint of the batch it came at."""
    ends = nursery.run(2, asked_in, [place])
    assert [len(rank["seen"]) for rank in ends] == [20, 20]
    assert list(checkpoints(home)) == [20]


def asks_itself(stops_on: int) -> list[Any]:
    """One rank asks through its context, the other knows of nothing."""
    elsewhere()
    with pytorch.init(seed=7) as context:

        def on_batch(batch_idx: int) -> None:
            if batch_idx == 3 and context.distributed.rank == stops_on:
                context.set_stop_requested(True)

        trial = Regression(context, on_batch=on_batch)
        pytorch.Trainer(trial, context).fit(max_length=Batch(LONG), reporting_period=Batch(5))
        return [len(trial.seen), digest(trial)]


def test_one_rank_asks_itself(nursery: Nursery, home: Path) -> None:
    """W19: `set_stop_requested()` on one rank stops all of them, at the next stop."""
    ends = [nursery.run(2, asks_itself, [rank], env={"DET_HOME": str(home / str(rank))}) for rank in (0, 1)]
    assert [[rank[0] for rank in end] for end in ends] == [[5, 5], [5, 5]]
    assert len({rank[1] for end in ends for rank in end}) == 1


# Another number of ranks.


def part(batches: int | None, records: int) -> dict[str, Any]:
    """Train so many batches, or the rest of the first epoch and the second."""
    elsewhere()
    length = Batch(batches) if batches is not None else Epoch(2)
    options = {"records": records, "batch_size": 2, **RANDOM}
    return regress(trial=options, latest_checkpoint="latest", max_length=length)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("records", [RECORDS, 23])
def test_another_number_of_ranks(before: int, after: int, records: int, nursery: Nursery) -> None:
    """Decision 5: each record of the epoch is seen exactly once, whoever sees it, and the run goes on to its end."""
    first = nursery.run(before, part, [3, records])
    second = nursery.run(after, part, [None, records])
    seen = [number for rank in first for batch in rank["seen"] for number in batch]
    assert len(seen) == len(set(seen)) == 6 * before
    rest = [rank["seen"] for rank in second]
    assert len({len(batches) for batches in rest}) == 1
    steps_left = -(-(records - len(seen)) // (2 * after))
    epoch = [number for batches in rest for batch in batches[:steps_left] for number in batch]
    again = [number for batches in rest for batch in batches[steps_left:] for number in batch]
    assert set(seen) | set(epoch) == set(range(records)) == set(again)
    assert not set(seen) & set(epoch)
    # Twice only where a rank had none left, and stood in so that the others need not wait.
    for numbers, total in ((epoch, records - len(seen)), (again, records)):
        assert len(numbers) - total <= 2 * (after - 1)
    assert len({rank["digest"] for rank in second}) == 1


class Changes(pytorch.PyTorchCallback):
    """Has each rank see other metrics than the others: worse and worse ones on the chief, better ones elsewhere."""

    def __init__(self) -> None:
        self.rank, self.validations = int(os.environ["RANK"]), 0

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.validations += 1
        metrics["loss"] = self.validations if self.rank == 0 else -self.validations


def stopped_early() -> dict[str, Any]:
    elsewhere()
    callbacks = {"changes": Changes(), "stop": pytorch.EarlyStopping("loss", patience=2)}
    return regress(trial={"callbacks": callbacks}, max_length=Batch(LONG), validation_period=Batch(2))


def test_early_stopping_is_agreed_between_ranks(nursery: Nursery, home: Path) -> None:
    """Issue 12, 14: all ranks stop after the same validation, by the chief's value, with one checkpoint."""
    ends = nursery.run(2, stopped_early)
    assert [len(end["seen"]) for end in ends] == [6, 6]
    assert ends[0]["digest"] == ends[1]["digest"]
    assert list(checkpoints(home)) == [6]
