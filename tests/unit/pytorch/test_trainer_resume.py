"""fit() goes on from a checkpoint, and writes checkpoints in the background."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import errors, pytorch
from determined.artifacts import Manifest
from determined.pytorch import Batch, ShouldExit, _trainer
from determined.pytorch.checkpoint import checkpointer
from determined.pytorch.checkpoint.saved import find_checkpoint
from tests.trials import OneWeightTrial, Recorder, Run, managed, stored_file, stored_state, train

pytestmark = pytest.mark.usefixtures("elsewhere")


class TestResume:
    def test_a_plain_run_goes_on_where_it_was(self) -> None:
        """T29, W3: a plain run goes on at the batch after the saved one, by id or by path, as on a cluster."""
        first = train(max_length=Batch(3), hooks={})
        second = train(max_length=Batch(6), hooks={}, latest_checkpoint=first.checkpoint, validation_period=Batch(2))
        assert second.of("batch")[0] == (3, 0, (7.0, 8.0))
        assert second.of("hook")[0] == ("on_trial_startup", 3, first.checkpoint)
        epochs = [hook for hook in second.of("hook") if hook[0].startswith("on_training_epoch")]
        assert epochs == [("on_training_epoch_end", 0), ("on_training_epoch_start", 1)]
        assert (second.batches, second.at("validation"), second.at("checkpoint")) == ([3, 4, 5], [4, 6], [6])

    def test_by_path(self, home: Path) -> None:
        """Issue 4: latest_checkpoint may be a directory."""
        first = train(max_length=Batch(3))
        path = stored_file(home, first.checkpoint, "")
        assert train(max_length=Batch(4), latest_checkpoint=str(path)).batches == [3]
        assert train(max_length=Batch(4), latest_checkpoint=path).batches == [3]

    @pytest.mark.parametrize("named", ["latest", "id", "path"])
    def test_the_manifest_is_read_once(self, home: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
        """A resume opens the checkpoint it found once: training reads and checks its manifest once, however named.

        What the search reads is not counted: when the store does not answer in time, it looks into the checkpoints.
        """
        first = train(max_length=Batch(3))
        reads: list[str] = []
        from_bytes = Manifest.from_bytes

        def counted(storage_id: str, data: bytes) -> Manifest:
            if threading.current_thread() is threading.main_thread():
                reads.append(storage_id)
            return from_bytes(storage_id, data)

        def found(*args: Any) -> Any:
            result = find_checkpoint(*args)
            reads.clear()
            return result

        monkeypatch.setattr(Manifest, "from_bytes", counted)
        monkeypatch.setattr(_trainer, "find_checkpoint", found)
        path = str(stored_file(home, first.checkpoint, ""))
        source = {"latest": "latest", "id": first.checkpoint, "path": path}[named]
        assert train(max_length=Batch(4), latest_checkpoint=source).batches == [3]
        assert reads == [first.checkpoint]

    def test_no_such_checkpoint(self) -> None:
        """6.4: an unknown id is CheckpointNotFound, before a hook runs."""
        run = Run([])
        with pytest.raises(errors.CheckpointNotFound, match="nothing-here"):
            train(run=run, latest_checkpoint="nothing-here", hooks={})
        assert run.batches == []

    @pytest.mark.parametrize("stop", range(1, 9))
    def test_shuffled_data(self, stop: int) -> None:
        """T45, T46: a run of 9 batches, and one that stops and goes on, see the same batches, without any switch."""
        options: dict[str, Any] = {"trial": {"loader": {"shuffle": True}}}
        straight = train(max_length=Batch(9), **options)
        first = train(max_length=Batch(stop), **options)
        second = train(max_length=Batch(9), latest_checkpoint=first.checkpoint, init={"seed": 99}, **options)
        assert first.data + second.data == straight.data
        assert second.trial.weight == straight.trial.weight

    def test_dropout_after_a_managed_restart(self) -> None:
        """T47: losses with dropout after a restart are those of the uninterrupted run."""
        with managed():
            straight = train(DropoutTrial, max_length=Batch(9), validation_period=Batch(3))
            first = train(DropoutTrial, max_length=Batch(3), validation_period=Batch(3))
        with managed(latest_checkpoint=first.checkpoint, steps_completed=3, seed=4):
            second = train(DropoutTrial, max_length=Batch(9), validation_period=Batch(3))
        assert first.at("loss") + second.at("loss") == straight.at("loss")

    def test_the_seed_of_a_resumed_run_is_the_one_it_began_with(self) -> None:
        """Decision 5: what is derived from the seed later, such as a shuffled validation, stays as it was."""
        first = train(max_length=Batch(2), init={"seed": 5})
        second = train(max_length=Batch(4), init={"seed": 6}, latest_checkpoint=first.checkpoint)
        assert second.context.get_trial_seed() == 5

    def test_a_loader_of_ones_own_can_skip_what_was_trained(self) -> None:
        """W3: get_initial_batch() is where a resumed run begins, locally too; 0 in a run that starts afresh."""

        class Skips(OneWeightTrial):
            def __init__(self, context: Any, log: Any) -> None:
                super().__init__(context, log)
                context.experimental.disable_dataset_reproducibility_checks()

            def build_training_data_loader(self) -> Any:
                batches = torch.utils.data.BatchSampler(range(len(self.data)), 2, drop_last=False)
                skipping = pytorch.adapt_batch_sampler(batches, repeat=True, skip=self.context.get_initial_batch())
                return torch.utils.data.DataLoader(self.data, batch_sampler=skipping)

        whole = train(Skips, max_length=Batch(6))
        first = train(Skips, max_length=Batch(3))
        rest = train(Skips, max_length=Batch(6), latest_checkpoint=first.checkpoint)
        assert rest.context.get_initial_batch() == 3
        assert first.of("batch") + rest.of("batch") == whole.of("batch")

    def test_what_hooks_change_in_a_checkpoint(self, home: Path) -> None:
        """T34: a key added before saving is in the file; a weight edited before loading is loaded."""
        first = train(max_length=Batch(2), hooks={"on_checkpoint_save_start": lambda c: c.update(extra=[1, "two"])})
        assert stored_state(home, first.checkpoint)["extra"] == [1, "two"]

        def edit(checkpoint: dict[str, Any]) -> None:
            assert checkpoint["extra"] == [1, "two"]
            checkpoint["models_state_dict"][0]["weight"] = torch.tensor([100.0])

        second = train(
            max_length=Batch(3), hooks={"on_checkpoint_load_start": edit}, latest_checkpoint=first.checkpoint
        )
        assert second.trial.weight == 100 - 5.5

    def test_a_file_added_by_a_hook(self, home: Path) -> None:
        """T35: it is part of the stored checkpoint."""
        write = {"on_checkpoint_write_end": lambda path: Path(path, "mine.txt").write_text("hello")}
        run = train(max_length=Batch(1), hooks=write)
        assert stored_file(home, run.checkpoint, "mine.txt").read_text() == "hello"

    def test_callback_states(self, caplog: pytest.LogCaptureFixture) -> None:
        """T36: callback `a` is restored, and of `b`, which was not there, it is said that it starts afresh."""
        first, second = Run([]), Run([])
        train(run=first, trial={"callbacks": {"a": Recorder(first.log, "a")}}, max_length=Batch(2))
        mine = {"a": Recorder(second.log, "a"), "b": Recorder(second.log, "b")}
        train(run=second, trial={"callbacks": mine}, max_length=Batch(2), latest_checkpoint=first.checkpoint)
        saved = first.hooks("a").index("state_dict") + 1
        since = second.hooks("a")[second.hooks("a").index("load_state_dict") + 1 :]
        assert mine["a"].seen == saved + len(since)
        assert "load_state_dict" not in second.hooks("b")
        assert "no state for callback 'b'" in caplog.text

    def test_the_files_of_a_checkpoint(self, home: Path) -> None:
        """T37, T38, W30: a checkpoint holds these files, with the counters; hparams are kept without a config."""
        Path("model.py").write_text("x = 1\n")
        Path(".detinclude").write_text("model.py\n")
        run = train(max_length=Batch(3), init={"hparams": {"lr": 0.1}})
        directory = stored_file(home, run.checkpoint, "")
        names = {path.name for path in directory.iterdir()}
        assert names >= {"code", "load_data.json", "metadata.json", "state_dict.pth", "trial_state.pkl"}
        assert (directory / "code" / "model.py").read_text() == "x = 1\n"
        assert json.loads((directory / "metadata.json").read_text())["steps_completed"] == 3
        assert json.loads((directory / "load_data.json").read_text())["hparams"] == {"lr": 0.1}

    def test_inside_an_aggregation_group(self) -> None:
        """W15: stopped after one of three batches, the gradients that wait are there after the resume."""
        options: dict[str, Any] = {"init": {"aggregation_frequency": 3}, "max_length": Batch(6)}
        straight = train(**options)
        first = train(trial={"does": _stop_at(4)}, **options)
        second = train(latest_checkpoint=first.checkpoint, **options)
        assert (first.at("checkpoint"), second.batches) == ([4], [4, 5])
        assert second.trial.weight == straight.trial.weight == pytest.approx(-23 / 3)

    def test_two_runs_at_once_in_one_storage(self) -> None:
        """Two runs that save in turns into one storage do not disturb each other."""
        first, second = Run([]), Run([])
        inner: list[Any] = []

        def other(batch_idx: int) -> None:
            if batch_idx == 2:
                inner.append(train(OtherTrial, run=second, checkpoint_period=Batch(1), max_length=Batch(3)))

        train(run=first, trial={"does": other}, checkpoint_period=Batch(1), max_length=Batch(4))
        assert inner == [second]
        assert (first.at("checkpoint"), second.at("checkpoint")) == ([1, 2, 3, 4], [1, 2, 3])
        again = train(latest_checkpoint="latest", max_length=Batch(5))
        assert again.batches == [4]
        assert train(OtherTrial, latest_checkpoint="latest", max_length=Batch(4)).batches == [3]


class OtherTrial(OneWeightTrial):
    """The same, under another name."""


class DropoutTrial(OneWeightTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = torch.nn.functional.dropout(self.model(batch)).mean() / 100
        self.log.append(("loss", loss.item()))
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss


def _stop_at(batches: int) -> Any:
    def does(batch_idx: int) -> None:
        if batch_idx == batches:
            raise ShouldExit

    return does


class TestAsync:
    def test_hooks_keep_their_order(self) -> None:
        """Issue 4: save start, write end, upload end for one checkpoint before the next begins, all in this thread."""
        threads: set[str] = set()
        note = {h: lambda *_, **__: threads.add(threading.current_thread().name) for h in CHECKPOINT_HOOKS}
        run = train(checkpoint_period=Batch(1), checkpoint_async=True, hooks=note, max_length=Batch(5))
        assert [hook for hook in run.hooks() if hook in CHECKPOINT_HOOKS] == CHECKPOINT_HOOKS * 5
        assert threads == {threading.current_thread().name}
        assert run.at("checkpoint") == [1, 2, 3, 4, 5]

    def test_training_goes_on_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Issue 4: the next batches are trained while the checkpoint is written; leaving waits for it."""
        trained = threading.Event()
        write = checkpointer._write

        def slow(*args: Any) -> Any:
            assert trained.wait(90)
            return write(*args)

        monkeypatch.setattr(checkpointer, "_write", slow)
        does = lambda batch_idx: trained.set() if batch_idx == 3 else None  # noqa: E731
        run = train(trial={"does": does}, checkpoint_period=Batch([2]), checkpoint_async=True, max_length=Batch(5))
        saved = [entry[:2] for entry in run.log if entry[0] in ("batch", "checkpoint")]
        assert saved.index(("checkpoint", 2)) > saved.index(("batch", 3))
        assert run.at("checkpoint") == [2, 5]

    def test_an_error_surfaces_at_the_next_stop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Issue 4: a full disk in the background ends training at the next stop, in the disk's own words."""
        run = Run([])
        monkeypatch.setattr(checkpointer, "_write", _full_disk)

        def wait(batch_idx: int) -> None:
            writers = [thread for thread in threading.enumerate() if thread.name == "checkpoint-writer"]
            for writer in writers if batch_idx == 2 else []:
                writer.join()  # it has failed before the next stop

        with pytest.raises(OSError, match="No space left"):
            train(
                run=run,
                trial={"does": wait},
                checkpoint_period=Batch([2]),
                reporting_period=Batch(1),
                checkpoint_async=True,
                max_length=Batch(50),
                hooks={},
            )
        assert run.batches == [0, 1, 2]
        assert (run.at("checkpoint"), run.hooks()[-1]) == ([], "on_trial_shutdown")

    def test_an_error_surfaces_at_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Issue 4: one that nobody saw before does not go unsaid."""
        monkeypatch.setattr(checkpointer, "_write", _full_disk)
        with pytest.raises(OSError, match="No space left"):
            train(checkpoint_async=True, max_length=Batch(1))

    def test_a_full_disk(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        """4.8: an error in writing propagates; no part of a checkpoint is left, and earlier ones are."""
        first = train(max_length=Batch(2))
        monkeypatch.setattr(checkpointer, "_write", _full_disk)
        run = Run([])
        with pytest.raises(OSError, match="No space left"):
            train(run=run, max_length=Batch(4), latest_checkpoint="latest", hooks={})
        assert run.hooks()[-1] == "on_trial_shutdown"
        assert [path.name for path in (home / "checkpoints").iterdir() if not path.name.startswith(".")] == [
            first.checkpoint
        ]

    def test_an_error_in_training_does_not_hide_behind_a_writer(self) -> None:
        """4.8: the user's error propagates, and what is being written still becomes a whole checkpoint."""
        run = Run([])
        with pytest.raises(ValueError, match="mine"):
            train(
                run=run,
                trial={"does": lambda b: _raise(ValueError("mine")) if b == 2 else None},
                checkpoint_period=Batch(2),
                checkpoint_async=True,
            )
        assert run.at("checkpoint") == [2]
        assert train(latest_checkpoint=run.checkpoint, max_length=Batch(3)).batches == [2]


CHECKPOINT_HOOKS = ["on_checkpoint_save_start", "on_checkpoint_write_end", "on_checkpoint_upload_end"]


def _full_disk(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def _raise(problem: Exception) -> None:
    raise problem
