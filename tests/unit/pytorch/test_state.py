"""What is saved: counters, and the list that compares everything before it changes anything."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from determined.pytorch import PyTorchCallback
from determined.pytorch._plan import Progress
from determined.pytorch.checkpoint.parts import (
    CallbackStates,
    CheckpointMismatch,
    DataPosition,
    Models,
    Optimizers,
    Part,
    RandomStreams,
    RankPart,
    Restoring,
    Scaler,
    TrainingState,
    WaitingGradients,
)


class Cell:
    def __init__(self, value: int, log: list[str] | None = None, name: str = "") -> None:
        self.value, self.log, self.name = value, log, name

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]
        if self.log is not None:
            self.log.append(self.name)


def test_progress_is_restored() -> None:
    """6.1: every number of the progress comes back from its saved state."""
    progress = Progress(8, 2, 6, 8, 3)
    other = Progress()
    other.load_state_dict(progress.state_dict())
    assert other == progress


def test_progress_has_the_names_of_trial_state() -> None:
    """6.1: the keys of trial_state.pkl; step_id is always 0."""
    progress = Progress(8, 2, 6, 8, 3)
    saved = progress.trial_state()
    assert saved == {
        "trial_id": 3, "last_ckpt": 8, "step_id": 0, "last_val": 6, "batches_trained": 8, "epochs_trained": 2,
    }  # fmt: skip
    assert Progress.from_trial_state(saved, epoch_length=4) == progress


def test_parts_are_restored_in_order() -> None:
    """Style 3: saved, and restored, in the order they were tracked in."""
    log: list[str] = []
    state = TrainingState()
    for name in ("b", "a", "c"):
        state.track(name, (RankPart if name == "c" else Part)(Cell(1, log, name)))
    assert state.rank_state_dict() == {"c": {"value": 1}}
    states = state.state_dict([{"c": {"value": 1}}, {"c": {"value": 2}}])
    assert list(states.items()) == [("b", {"value": 1}), ("a", {"value": 1}), ("c", [{"value": 1}, {"value": 2}])]
    state.load_state_dict({"c": {"value": 4}, "a": {"value": 2}, "b": {"value": 3}})
    assert log == ["b", "a", "c"]
    with pytest.raises(ValueError, match="tracked already"):
        state.track("a", Part(Cell(1)))


def test_all_mismatches_come_in_one_message_and_nothing_changes() -> None:
    """Decision 6: loading compares everything first; all mismatches come in one message, and nothing changes."""
    model, second = nn.Linear(2, 3), nn.Linear(1, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *second.parameters()], lr=1.0)
    saved_model = nn.Linear(2, 4)
    cell = Cell(1)
    state = TrainingState()
    state.track("cell", Part(cell))
    state.track("models", models := Models([model, second]))
    models.saved_classes = ["Linear"]
    state.track("optimizers", Optimizers([optimizer, torch.optim.Adam(second.parameters())]))
    saved_optimizer = torch.optim.SGD(saved_model.parameters(), lr=1.0)
    before = model.weight.clone()
    with pytest.raises(CheckpointMismatch) as caught:
        state.load_state_dict(
            {
                "cell": {"value": 2},
                "models": [saved_model.state_dict()],
                "optimizers": [saved_optimizer.state_dict()],
            }
        )
    text = str(caught.value)
    assert "1 model (Linear), and this trial wrapped 2 models (Linear, Linear)" in text
    assert "model 0 (Linear): weight: saved with shape (4, 2), here (3, 2)" in text
    assert "1 optimizer, and this trial wrapped 2 optimizers (SGD, Adam)" in text
    assert "optimizer 0 (SGD): it was saved with parameter groups of [2] tensors, and here they have [4]" in text
    assert isinstance(caught.value, IndexError), "6.4: fewer entries than objects"
    assert cell.value == 1
    assert torch.equal(model.weight, before)


def test_surplus_entries_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """6.4: extra saved entries are ignored; we say so."""
    model = nn.Linear(2, 3)
    wanted = nn.Linear(2, 3)
    state = TrainingState()
    state.track("models", Models([model]))
    with caplog.at_level(logging.WARNING):
        state.load_state_dict({"models": [wanted.state_dict(), {}]})
    assert torch.equal(model.weight, wanted.weight)
    assert "the rest is left out" in caplog.text


@pytest.mark.parametrize("saved", [None, {"scale": 2.0}])
def test_a_scaler_on_one_side_is_a_warning(caplog: pytest.LogCaptureFixture, saved: Any) -> None:
    """6.4: a mismatch between checkpoint and context is only a warning."""
    with caplog.at_level(logging.WARNING):
        context = SimpleNamespace(scaler=None if saved else torch.amp.GradScaler("cpu"))
        Scaler(context).load_state_dict(saved)
    assert "gradient scaler" in caplog.text


class Remembers(PyTorchCallback):
    def __init__(self) -> None:
        self.got: Any = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.got = state_dict


def test_callbacks_without_saved_state(caplog: pytest.LogCaptureFixture) -> None:
    """T36, 5.5: known names are restored, an overriding callback without state is a warning, others are ignored."""
    callbacks = {"a": Remembers(), "b": Remembers(), "c": PyTorchCallback()}
    with caplog.at_level(logging.WARNING):
        CallbackStates(callbacks).load_state_dict({"a": {"n": 1}, "gone": {"n": 2}})
    assert callbacks["a"].got == {"n": 1}
    assert callbacks["b"].got is None
    assert [record.message for record in caplog.records] == [
        "The checkpoint has no state for callback 'b' (Remembers): it starts afresh."
    ]


def test_a_part_knows_what_a_rank_restores() -> None:
    """Each part carries its own rules for another number of ranks, and for another trial; no list of names does."""
    saved = {"own": [{"value": 1}, {"value": 2}], "data": [{"value": 3}, {"value": 4}], "free": [{"value": 5}] * 2}
    gradient = {"optimizers": [[torch.tensor([2.0])]]}
    saved |= {"gradients": [gradient, {"optimizers": [[torch.tensor([4.0])]]}]}
    state = TrainingState()
    state.track("own", RankPart(Cell(0)))
    state.track("data", DataPosition(Cell(0)))
    state.track("gradients", WaitingGradients(Cell(0)))
    state.track("free", RandomStreams(Cell(0)))
    same = state.for_rank(saved, Restoring(rank=1, size=2, continues=True, batches_trained=8, seed=7))
    assert (same["own"], same["data"], same["free"]) == ({"value": 2}, {"value": 4}, {"value": 5})
    assert same["gradients"]["optimizers"][0][0].item() == 4.0, "this rank's own"
    fewer = state.for_rank(saved, Restoring(rank=0, size=1, continues=True, batches_trained=8, seed=7))
    assert (fewer["own"], fewer["data"]) == ({"value": 1}, {"value": 3}), "the chief's"
    assert fewer["gradients"]["optimizers"][0][0].item() == 3.0, "the mean of all ranks"
    assert fewer["free"] == {"derived": (7, 8, 0)}, "streams that nobody has had"
    other = state.for_rank(saved, Restoring(rank=0, size=2, continues=False, batches_trained=8, seed=7))
    assert (other["own"], other["data"], other["gradients"]) == ({"value": 1}, None, None)
    older = state.for_rank({}, Restoring(rank=0, size=1, continues=True, batches_trained=8, seed=7))
    assert older["data"] == {"version": 1, "batches": 8}, "an older layout: counted from the beginning"
