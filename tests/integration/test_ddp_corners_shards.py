"""Files that each rank adds to a checkpoint: they arrive together, each rank finds them again, clashes are refused."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from determined import core, pytorch
from determined.pytorch import Batch
from tests.ddp_trials import Regression, digest, elsewhere
from tests.forks import Nursery

MODES = {"plain": {}, "in the background": {"checkpoint_async": True}}


class Shards(pytorch.PyTorchCallback):
    """Each rank keeps a number of its own, and all of them one file that is the same."""

    def __init__(self, rank: int, clash: str = "") -> None:
        self.rank, self.clash = rank, clash
        self.own = 100 * rank
        self.found: list[Any] = []
        self.ids: list[str] = []

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "chief.txt").write_text("from the chief")

    def on_checkpoint_write_shard(self, checkpoint_dir: str) -> None:
        self.own += 1
        random.random()
        place = Path(checkpoint_dir)
        (place / "shards").mkdir()
        (place / "shards" / f"{self.rank}.json").write_text(json.dumps({"own": self.own}))
        (place / "same.txt").write_text("the same")
        if self.clash == "raises" and self.rank == 1:
            raise OSError("no space on rank 1")
        if self.clash:
            (place / self.clash).write_text(f"of rank {self.rank}")

    def on_checkpoint_read_shard(self, checkpoint_dir: str) -> None:
        place = Path(checkpoint_dir)
        self.own = json.loads((place / "shards" / f"{self.rank}.json").read_text())["own"]
        self.found = sorted(str(path.relative_to(place)) for path in place.rglob("*.*") if "code" not in path.parts)

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.ids.append(uuid)


def sharded(length: int, options: dict[str, Any], clash: str = "") -> dict[str, Any]:
    elsewhere()
    with pytorch.init(seed=7) as context:
        shards = Shards(context.distributed.rank, clash)
        trial = Regression(context, dropout=True, callbacks={"shards": shards})
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(length), checkpoint_period=Batch(2), latest_checkpoint="latest", **options
        )
        return {"own": shards.own, "found": shards.found, "ids": shards.ids, "digest": digest(trial)}


def checkpoints(home: Path) -> list[str]:
    return [path.name for path in (home / "checkpoints").iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize(("size", "mode"), [(1, "plain"), (2, "plain"), (2, "in the background")])
def test_files_of_every_rank(size: int, mode: str, nursery: Nursery, home: Path) -> None:
    """9.3: what ranks write is one checkpoint, manifest included, and on a resume each rank finds its own again.

    Writing them draws random numbers, and still the run goes on as one that nobody stopped.
    """
    first = nursery.run(size, sharded, [4, MODES[mode]])
    assert [rank["own"] for rank in first] == [100 * rank + 2 for rank in range(size)]
    assert len({tuple(rank["ids"]) for rank in first}) == 1
    assert sorted(first[0]["ids"]) == sorted(checkpoints(home))  # the hook told of each of them, on every rank
    second = nursery.run(size, sharded, [6, MODES[mode]])
    expected = ["chief.txt", "load_data.json", "metadata.json", "same.txt", "state_dict.pth", "trial_state.pkl"]
    for rank in second:
        assert set(rank["found"]) >= {*expected, *(f"shards/{number}.json" for number in range(size))}
    assert [rank["own"] for rank in second] == [100 * rank + 3 for rank in range(size)]
    if mode == "plain":
        whole = nursery.run(size, sharded, [6, {}], env={"DET_HOME": str(home / "whole")})
        assert [rank["digest"] for rank in second] == [rank["digest"] for rank in whole]


@pytest.mark.parametrize("clash", ["notes.txt", "state_dict.pth", "raises"])
def test_a_clash(clash: str, nursery: Nursery, home: Path) -> None:
    """P-94: different content under one name is an error on every rank that names file and ranks; nothing is stored.

    So it is with a file of the checkpoint itself, and with a rank that cannot write.
    """
    outcomes = nursery.start(2, sharded, [2, {}, clash]).wait()
    for rank, outcome in enumerate(outcomes):
        assert outcome.exit_code == 1, outcome.output
        if clash == "raises":
            assert outcome.error == ("OSError" if rank == 1 else "CollectiveError"), outcome.output
            assert "no space on rank 1" in outcome.text
        else:
            assert outcome.error == "RuntimeError", outcome.output
            assert "files conflicts between ranks" in outcome.text
            assert clash in outcome.text
            assert ("ranks 0, 1" if rank == 0 else "[0, 1]") in outcome.text
    assert checkpoints(home) == []


# Through core alone.


def uploaded(content: str) -> dict[str, Any]:
    elsewhere()
    with pytorch.init(seed=7) as context:
        rank, services = context.distributed.rank, context.core_context
        mine = Path(os.environ["DET_HOME"], f"mine-{rank}-{content}")
        mine.mkdir()
        (mine / f"{rank}.bin").write_bytes(bytes([rank]))
        (mine / "both.txt").write_text("equal" if content == "equal" else f"of rank {rank}")
        try:
            storage_id = services.checkpoint.upload(mine, {"steps_completed": 1}, shard=True)
        except RuntimeError as refused:
            return {"error": str(refused)}
        with services.checkpoint.restore_path(storage_id) as path:
            found = sorted(file.name for file in path.iterdir() if not file.name.startswith("."))
        selected = mine / "again"
        services.checkpoint.download(
            storage_id,
            selected,
            core.DownloadMode.NoSharedDownload,
            selector=lambda name: name == f"{1 - rank}.bin",
        )
        return {"id": storage_id, "found": found, "others": (selected / f"{1 - rank}.bin").read_bytes()[0]}


def test_the_sharded_upload_of_core(nursery: Nursery) -> None:
    """P-94, C-25, C-26: a directory of each rank becomes one checkpoint, or an error that names file and ranks."""
    chief, other = nursery.run(2, uploaded, ["equal"])
    assert chief["id"] == other["id"]
    assert {"0.bin", "1.bin", "both.txt", "metadata.json"} <= set(chief["found"])
    assert (chief["others"], other["others"]) == (1, 0)
    for rank, said in enumerate(nursery.run(2, uploaded, ["different"])):
        assert "both.txt" in said["error"]
        assert ("ranks 0, 1" if rank == 0 else "[0, 1]") in said["error"]
