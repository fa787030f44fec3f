"""One validation: batches in, reduced metrics out, and nothing of training changed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from determined import errors, pytorch
from determined.core import DistributedContext
from determined.pytorch import Batch, DataLoader, Reducer
from determined.pytorch._callback import Callbacks
from determined.pytorch._validate import Validation
from tests.ranks import run_threads
from tests.trials import OneWeightTrial, Run, train
from tests.unit.pytorch.contexts import make_context

pytestmark = pytest.mark.usefixtures("elsewhere")


def validated(values: list[Any], reducer: Any = Reducer.AVG, **options: Any) -> dict[str, Any]:
    """The validation metrics of batches that return these values under the name x."""
    given = iter(values)
    metrics: dict[str, Any] = train(
        trial={
            "evaluates": lambda _: {"x": next(given)},
            "validation_loader": lambda: DataLoader(torch.zeros(len(values), 1)),
            "reducer": reducer,
            **options,
        },
        max_length=Batch(1),
    ).of("validation")[0][1]
    return metrics


class TestCalls:
    def test_indices_begin_anew_in_every_validation(self) -> None:
        """T67: (self, batch, batch_idx) gets indices from 0 in each validation."""
        run = train(max_length=Batch(2), validation_period=Batch(1))
        assert run.at("evaluated") == [0, 1, 0, 1]

    def test_without_an_index(self) -> None:
        """T67: (self, batch) is called without one."""

        class Short(OneWeightTrial):
            def evaluate_batch(self, batch: Any) -> Any:  # type: ignore[override]
                return {"records": len(batch)}

        assert train(Short, max_length=Batch(1)).of("validation")[0][1]["records"] == 4

    def test_an_index_under_any_name(self) -> None:
        """T68, W8: (self, batch, idx), keyword-only batch_idx and **kwargs get the index too."""

        class Positional(OneWeightTrial):
            def evaluate_batch(self, batch: Any, idx: int) -> Any:  # type: ignore[override]
                return {"idx": idx}

        class KeywordOnly(OneWeightTrial):
            def evaluate_batch(self, batch: Any, *, batch_idx: int) -> Any:  # type: ignore[override]
                return {"idx": batch_idx}

        class Anything(OneWeightTrial):
            def evaluate_batch(self, batch: Any, **more: Any) -> Any:  # type: ignore[override]
                return {"idx": more["batch_idx"]}

        for kind in (Positional, KeywordOnly, Anything):
            assert train(kind, max_length=Batch(1)).of("validation")[0][1]["idx"] == 0.5

    def test_the_first_parameter_may_have_another_name(self) -> None:
        """W8: (self, data, **more) is called too."""

        class Renamed(OneWeightTrial):
            def evaluate_batch(self, data: Any, **more: Any) -> Any:  # type: ignore[override]
                return {"idx": more["batch_idx"]}

        class Both(OneWeightTrial):
            def evaluate_batch(self, data: Any, batch_idx: int) -> Any:  # type: ignore[override]
                return {"idx": batch_idx}

        for kind in (Renamed, Both):
            assert train(kind, max_length=Batch(1)).of("validation")[0][1]["idx"] == 0.5

    def test_models_are_in_evaluation_mode_without_gradients(self) -> None:
        """2.5, T96: gradients are off and models evaluate, in hooks and in a checkpoint that the policy takes too."""
        modes: dict[str, Any] = {}
        run = Run([])

        def note(where: str) -> Any:
            def call(*_: Any, **__: Any) -> Any:
                modes[where] = (run.trial.model.training, torch.is_grad_enabled())
                return {"x": 1.0}

            return call

        train(
            run=run,
            trial={"evaluates": note("batch"), "does": note("training")},
            hooks={
                "on_validation_start": note("start"),
                "on_validation_end": note("end"),
                "on_checkpoint_save_start": note("save"),
            },
            max_length=Batch(2),
            validation_period=Batch(1),
            checkpoint_policy="all",
        )
        assert modes == {
            "batch": (False, False),
            "start": (False, False),
            "save": (False, False),
            "end": (False, False),
            "training": (True, True),
        }

    def test_full_datasets(self) -> None:
        """T41: evaluate_full_dataset runs once per validation, over the whole loader, and may return what it likes."""

        class Full(OneWeightTrial):
            evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

            def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
                self.log.append(("all", [batch.flatten().tolist() for batch in data_loader]))
                return {"loss": torch.tensor(0.5), "curve": torch.ones(2), "note": "fine"}

        run = train(Full, max_length=Batch(2), validation_period=Batch(1), hooks={})
        assert run.of("all") == [([[1, 2, 3, 4], [5, 6, 7, 8]],)] * 2
        metrics = run.of("validation")[0][1]
        assert (metrics["loss"], metrics["note"], metrics["curve"].tolist()) == (0.5, "fine", [1, 1])
        assert not {"on_validation_epoch_start", "on_validation_epoch_end"} & set(run.hooks())

    def test_full_datasets_on_several_ranks(self) -> None:
        """T41: with two ranks it runs on rank 0 only, over the unsharded loader; both learn the metrics (W54)."""

        class Full(OneWeightTrial):
            evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

            def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
                self.log.append(("all", len(list(data_loader))))
                return {"loss": 0.5}

        def body(distributed: DistributedContext) -> Any:
            context = make_context(distributed=distributed, managed=False)
            trial = Full(context)
            validation = Validation(trial, context, Callbacks({}), DataLoader(torch.zeros(6, 1)), test_mode=False)
            return validation.run().metrics, trial.log

        assert run_threads(2, body) == [({"loss": 0.5}, [("all", 6)]), ({"loss": 0.5}, [])]

    def test_full_datasets_return_a_dict(self) -> None:
        """2.5: evaluate_full_dataset that returns no dict is a TypeError."""

        class Full(OneWeightTrial):
            evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

            def evaluate_full_dataset(self, data_loader: Any) -> Any:
                return 0.5

        with pytest.raises(TypeError, match=r"evaluate_full_dataset\(\) returned"):
            train(Full)


class TestReduction:
    @pytest.mark.parametrize(
        ("reducer", "expected"), [(Reducer.AVG, 1.5), (Reducer.SUM, 3), (Reducer.MAX, 2), (Reducer.MIN, 1)]
    )
    def test_reducers(self, reducer: Reducer, expected: float) -> None:
        """T71: values 1 and 2 become 1.5, 3, 2 or 1."""
        assert validated([1.0, 2.0], reducer)["x"] == expected
        assert validated([1.0, 2.0], {"x": reducer})["x"] == expected

    def test_vectors(self) -> None:
        """T73: [1, 2] and [2, 4] average to 2.25."""
        assert validated([np.array([1, 2]), torch.tensor([2.0, 4.0])])["x"] == 2.25

    @pytest.mark.parametrize(
        "reducer", [{}, {"y": Reducer.AVG}, {"x": Reducer.AVG, "y": Reducer.AVG}, {"x": "avg"}, "avg"]
    )
    def test_a_reducer_for_each_metric(self, reducer: Any) -> None:
        """T74: a dict that misses a key, has another, or holds something else is an InvalidExperimentException."""
        with pytest.raises(errors.InvalidExperimentException, match="evaluation_reducer"):
            validated([1.0], reducer)

    def test_no_data(self) -> None:
        """T75: an empty validation loader is a RuntimeError that says where to look, before anything is trained."""
        run = Run([])
        with pytest.raises(RuntimeError, match="build_validation_data_loader"):
            train(run=run, trial={"validation_loader": lambda: DataLoader(torch.zeros(0, 1))}, hooks={})
        assert run.hooks() == ["on_trial_startup", "on_trial_shutdown"]

    def test_no_data_of_unknown_length(self) -> None:
        """T75: a loader that does not say how long it is, and is empty, is found out in the first validation."""

        class Unmeasured:
            def __iter__(self) -> Any:
                return iter(())

        with pytest.raises(RuntimeError, match="build_validation_data_loader"):
            train(
                trial={"validation_loader": lambda: DataLoader(torch.zeros(1, 1), batch_sampler=Unmeasured())},
                max_length=Batch(1),
            )

    def test_the_same_names_always(self) -> None:
        """T70: differing names between validation batches are a ValueError; so it is within a training window."""
        given = iter([{"x": 1.0}, {"y": 1.0}])
        with pytest.raises(ValueError, match="same names"):
            train(trial={"evaluates": lambda _: next(given)}, max_length=Batch(1))
        with pytest.raises(ValueError, match="same names"):
            train(trial={"returns": lambda b: {"x": 1.0} if b == 0 else {"y": 1.0}}, max_length=Batch(3))

    def test_training_values(self) -> None:
        """T77, T78, W6, W36: tensors, None, text and ragged lists in training."""
        rows: list[dict[str, Any]] = [
            {"half": torch.tensor([1, 3], dtype=torch.bfloat16), "gap": None, "text": "a", "ragged": [1], "none": None},
            {
                "half": torch.tensor([1, 3], dtype=torch.bfloat16),
                "gap": 1.0,
                "text": "b",
                "ragged": [1, 2],
                "none": None,
            },
        ]
        run = train(trial={"returns": lambda b: rows[b]}, max_length=Batch(2))
        metrics, batches = run.of("training")[0][1:]
        assert {name: metrics[name] for name in rows[0]} == {
            "half": 2.0,
            "gap": 1.0,
            "text": None,
            "ragged": None,
            "none": None,
        }
        assert batches[0]["half"].tolist() == [1, 3]

    def test_a_tensor_is_the_loss(self) -> None:
        """T77: a bare tensor [1, 3] is the metric loss, 2.0 on average; the batch metric is the array."""
        run = train(trial={"returns": lambda _: torch.tensor([1.0, 3.0])}, max_length=Batch(2))
        metrics, batches = run.of("training")[0][1:]
        assert metrics["loss"] == 2.0
        assert batches[1]["loss"].tolist() == [1.0, 3.0]

    def test_an_empty_result(self) -> None:
        """2.4: train_batch may return an empty dict."""
        assert train(trial={"returns": lambda _: {}}, max_length=Batch(2)).of("training")[0][1] == {
            "batches": 2,
            "epochs": 0,
        }


class ReducingTrial(OneWeightTrial):
    """Metrics from reducers: one for both phases, one for validation only."""

    def __init__(self, context: Any, log: Any, *, name: str | None = "sum", result: Any = sum, **options: Any) -> None:
        super().__init__(context, log, **options)
        self.both = context.wrap_reducer(result, name=name)
        self.late = context.wrap_reducer(len, name="late", for_training=False)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.both.update(float(batch.sum()))
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        self.both.update(float(batch.sum()))
        self.late.update(1)
        return {}


class TestReducers:
    def test_reducers_only(self) -> None:
        """T84, T83: with {} from evaluate_batch only the reducers' metrics and the counters are reported."""
        run = train(ReducingTrial, max_length=Batch(4), validation_period=Batch(2))
        assert [entry[1] for entry in run.of("validation")] == [
            {"batches": 2, "epochs": 0, "sum": 36.0, "late": 2},
            {"batches": 4, "epochs": 1, "sum": 36.0, "late": 2},
        ]
        training = [entry[1] for entry in run.of("training")]
        assert [metrics["sum"] for metrics in training] == [10.0, 26.0]
        assert all("late" not in metrics for metrics in training)
        assert "sum" not in run.of("training")[0][2][0]

    @pytest.mark.parametrize(("name", "result"), [(None, sum), ("named", lambda values: {"a": sum(values)})])
    def test_a_name_or_a_dict(self, name: str | None, result: Any) -> None:
        """T82: no name and no dict, or a name and a dict, is an AssertionError."""
        with pytest.raises(AssertionError):
            train(ReducingTrial, {"name": name, "result": result}, max_length=Batch(1))

    def test_a_hook_adds_a_metric(self) -> None:
        """T85: what on_validation_end adds is reported."""
        run = train(hooks={"on_validation_end": lambda metrics: metrics.update(mine=7)}, max_length=Batch(1))
        assert run.of("validation")[0][1]["mine"] == 7

    def test_an_exit_in_a_validation_does_not_ask_reducers_of_nothing(self) -> None:
        """4.8: ShouldExit in a validation after the window was reported: a mean over nothing is not computed."""

        def mean(values: list[float]) -> float:
            return sum(values) / len(values)

        class Mean(ReducingTrial):
            def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
                raise pytorch.ShouldExit

        run = train(Mean, {"result": mean}, max_length=Batch(2))
        assert run.at("checkpoint") == [2]


class TestNothingChanges:
    def test_random_streams(self) -> None:
        """W59: whatever a validation draws, training does not notice; a worker's loader included."""

        class Draws(OneWeightTrial):
            def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
                return {"x": float(torch.rand(()) + np.random.rand())}

        def drawn(**schedule: Any) -> list[float]:
            seen: list[float] = []
            train(Draws, {"does": lambda _: seen.append(float(torch.rand(())))}, max_length=Batch(6), **schedule)
            return seen

        assert drawn() == drawn(validation_period=Batch(1))

    def test_events(self, home: Path) -> None:
        """T86: scalars of a window of 2 that ends at 10 are at 8 and 9; a validation's loss is val_loss."""
        pytest.importorskip("tensorboard")
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        train(ReducingTrial, max_length=Batch(10), reporting_period=Batch([8]))
        seen: dict[str, list[int]] = {}
        for file in home.glob("tensorboard/**/*tfevents*"):
            for event in EventFileLoader(str(file)).Load():
                for value in event.summary.value:
                    seen.setdefault(value.tag, []).append(event.step)
        assert seen["Determined/loss"] == list(range(10))
        assert seen["Determined/sum"] == [8, 10]
        assert seen["Determined/val_sum"] == [10]

    def test_modes_of_parts_are_restored(self) -> None:
        """4.6: before each window all models are put into training mode, in validation into the other."""
        run = train(max_length=Batch(2), validation_period=Batch(1))
        assert run.trial.model.training is True

    def test_a_short_last_batch_is_remarked_on(self, caplog: pytest.LogCaptureFixture) -> None:
        """W37: AVG weighs batches; that it does is said when it matters."""
        caplog.set_level(logging.INFO, "determined.pytorch")
        train(trial={"validation_loader": lambda: DataLoader(torch.zeros(5, 1), batch_size=2)}, max_length=Batch(1))
        assert "RECORD_AVG" in caplog.text
