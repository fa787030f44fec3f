"""The trial context: what it knows, what it wraps, and what it refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import determined
from determined import _info, errors, pytorch
from determined.pytorch import LRScheduler, PyTorchTrialContext
from determined.pytorch.data.to_device import choose_device
from tests.unit.pytorch.contexts import OneWeight, Trial, make_context, make_trial

BATCH = LRScheduler.StepMode.STEP_EVERY_BATCH


@pytest.fixture
def managed() -> Iterator[None]:
    """This process was started by an experiment."""
    trial = determined.TrialInfo(trial_id=3, experiment_id=2, trial_seed=11, hparams={"lr": 0.5})
    _info.set_cluster_info(determined.ClusterInfo(_trial_info=trial))
    yield
    _info.reset_cluster_info()


# What it knows.


@pytest.mark.parametrize(("size", "slots", "expected"), [(4, 2, (4, 2)), (3, 2, (2, 1)), (5, 0, (5, 5))])
def test_batch_sizes_divide_by_slots(size, slots, expected, caplog):
    """T60: 3 records on 2 slots are 1 each and 2 in all, with a warning."""
    with caplog.at_level(logging.WARNING, "determined.pytorch"):
        context = make_context(hparams={"global_batch_size": size}, slots=slots)
    assert (context.get_global_batch_size(), context.get_per_slot_batch_size()) == expected
    assert bool(caplog.records) == (size != expected[0])


@pytest.mark.parametrize(("size", "slots"), [(1, 2), (4.0, 1), ("8", 1), (True, 1)])
def test_impossible_batch_sizes_are_refused(size, slots):
    """T60: fewer records than slots, or no int."""
    with pytest.raises(errors.InvalidExperimentException, match="global_batch_size"):
        make_context(hparams={"global_batch_size": size}, slots=slots)


def test_without_hparams_getters_say_so():
    """T61: ValueError from the getters of batch sizes, hyperparameters and config."""
    context = make_context()
    for getter in (
        context.get_global_batch_size,
        context.get_per_slot_batch_size,
        context.get_hparams,
        lambda: context.get_hparam("lr"),
        context.get_experiment_config,
        context.get_data_config,
    ):
        with pytest.raises(ValueError, match=r"pytorch\.init\("):
            getter()


def test_getters_return_what_was_given(caplog):
    """3.2: the dict itself, values by name, an unknown name with those there are."""
    hparams, config = {"lr": 0.1, "global_batch_size": 2}, {"data": {"path": "/x"}}
    context = make_context(hparams=hparams, exp_conf=config)
    assert context.get_hparams() is hparams
    assert context.get_experiment_config() is config
    assert context.get_data_config() == {"path": "/x"}
    assert make_context(exp_conf={}).get_data_config() == {}
    assert context.get_hparam("lr") == 0.1
    assert not caplog.records
    assert context.get_hparam("global_batch_size") == 2
    assert "get_per_slot_batch_size" in caplog.text
    with pytest.raises(ValueError, match=r"'momentum'.*'lr'"):
        context.get_hparam("momentum")
    assert context.get_initial_batch() == 0


def test_there_is_always_a_seed():
    """Decision 3: get_trial_seed works locally; only a hand-made context can lack one."""
    assert make_context(seed=7).get_trial_seed() == 7
    with pytest.raises(errors.InternalException, match="seed"):
        make_context(seed=None).get_trial_seed()


def test_local_runs_have_no_ids():
    """W10: asking a local run for its experiment or trial id is a ValueError that says why."""
    context = make_context()
    for getter in (context.get_experiment_id, context.get_trial_id):
        with pytest.raises(ValueError, match="not started by an experiment"):
            getter()


def test_managed_runs_have_ids_and_hparams(managed, tmp_path):
    """W12: hparams default to those that the process was started with."""
    with determined.core.init(checkpoint_storage=str(tmp_path)) as services:
        context = PyTorchTrialContext(services, 11, None, 1, 0, None, 1, 0, True, False)
    assert (context.get_experiment_id(), context.get_trial_id(), context.get_hparam("lr")) == (2, 3, 0.5)
    own = PyTorchTrialContext(services, 11, {"lr": 1}, 1, 0, None, 1, 0, True, False)
    assert own.get_hparam("lr") == 1


def test_a_context_can_be_made_from_a_config():
    """3.1: constants as they are, ranges drawn within their bounds, the same for the same seed; it only loads."""
    config = {
        "hyperparameters": {
            "constant": {"type": "const", "val": 3},
            "plain": "text",
            "global_batch_size": 8,
            "layers": {"type": "int", "minval": 1, "maxval": 4},
            "dropout": {"type": "double", "minval": 0.25, "maxval": 0.5},
            "lr": {"type": "log", "minval": -4, "maxval": -2, "base": 10},
            "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
            "nested": {"inner": {"type": "const", "val": 1}},
        },
        "resources": {"slots_per_trial": 2},
    }
    context = PyTorchTrialContext.from_config(config)
    hparams = context.get_hparams()
    assert (hparams["constant"], hparams["plain"], hparams["nested"]) == (3, "text", {"inner": 1})
    assert hparams["layers"] in range(1, 5)
    assert 0.25 <= hparams["dropout"] <= 0.5
    assert 1e-4 <= hparams["lr"] <= 1e-2
    assert hparams["optimizer"] in ("sgd", "adam")
    assert context.get_per_slot_batch_size() == 4
    assert not context.is_managed
    assert PyTorchTrialContext.from_config(config).get_hparams() == hparams


# Wrapping.


def test_wrapping_keeps_the_order():
    """3.3: lists in wrap order; wrapped objects of one process are the ones given."""
    context = make_context()
    models = [OneWeight(), OneWeight()]
    assert [context.wrap_model(model, find_unused_parameters=True) for model in models] == models
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    assert [context.wrap_optimizer(o, 2, True) for o in optimizers] == optimizers
    assert (context.models, context.optimizers) == (models, optimizers)


def test_what_is_no_model_is_refused():
    """wrap_model says what it got."""
    with pytest.raises(errors.InvalidExperimentException, match="got a list"):
        make_context().wrap_model([])  # type: ignore[type-var]


def test_backward_passes_per_step_is_checked():
    """3.3: backward_passes_per_step below 1 is refused."""
    with pytest.raises(errors.InvalidExperimentException, match="backward_passes_per_step is 0"):
        make_context().wrap_optimizer(torch.optim.SGD(OneWeight().parameters(), lr=1.0), 0)


@pytest.mark.parametrize("wrong", [None, OneWeight(), "SGD", []])
def test_what_is_no_optimizer_is_refused(wrong):
    """3.3: a model, or nothing at all, is told when it is wrapped, not when the first checkpoint is saved."""
    with pytest.raises(errors.InvalidExperimentException, match=f"got a {type(wrong).__name__}, expected an optimizer"):
        make_context().wrap_optimizer(wrong)


def test_a_scheduler_that_comes_while_training_is_told_what_it_misses(caplog):
    """3.13: it is not refused, but nobody has to find out by a curve that its first steps are missing."""
    trial = make_trial()
    trial.context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(trial.optimizer, 1), BATCH)
    assert caplog.messages == []
    trial.context.position.batch_idx = 0
    trial.context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(trial.optimizer, 1), BATCH)
    assert "this StepLR steps from the next report on" in caplog.text


def test_the_aggregation_frequency_is_checked():
    """1 or more, and an int."""
    for wrong, error in ((0, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="aggregation_frequency"):
            make_context(agg=wrong)


def test_a_scheduler_belongs_to_a_wrapped_optimizer():
    """T55: another optimizer's is refused; ReduceLROnPlateau only steps by hand."""
    trial = make_trial()
    stranger = torch.optim.SGD(trial.model.parameters(), lr=1.0)
    with pytest.raises(errors.InvalidExperimentException, match="was not wrapped"):
        trial.context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(stranger, 1), BATCH)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(trial.optimizer)
    with pytest.raises(errors.InvalidExperimentException, match="MANUAL_STEP"):
        trial.context.wrap_lr_scheduler(plateau, BATCH)
    trial.context.wrap_lr_scheduler(plateau, LRScheduler.StepMode.MANUAL_STEP)
    assert trial.context.finish_batch() is None
    with pytest.raises(TypeError, match="step_mode"):
        trial.context.wrap_lr_scheduler(plateau, "batch")  # type: ignore[arg-type]


def test_wrapping_returns_the_scheduler_itself():
    """T56: the object passed in; the list holds wrappers."""
    trial = make_trial()
    decay = torch.optim.lr_scheduler.StepLR(trial.optimizer, 1)
    assert trial.context.wrap_lr_scheduler(decay, BATCH) is decay
    assert [wrapper.scheduler for wrapper in trial.context.lr_schedulers] == [decay]


def test_schedulers_follow_each_batch_in_wrap_order():
    """2.4: finish_batch steps them in order, after update batches only."""

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def step(self) -> None:
            calls.append((self.name, now))

    calls: list[tuple[str, int]] = []
    context = make_context(agg=2)
    context.position.epoch_length = 4
    context.wrap_lr_scheduler(Named("epoch"), LRScheduler.StepMode.STEP_EVERY_EPOCH)
    context.wrap_lr_scheduler(Named("batch"), BATCH, 2)
    finish = context.finish_batch()
    for now in range(4):
        finish(now)
    assert calls == [("batch", 1), ("epoch", 3), ("batch", 3)]


def test_nothing_to_do_after_a_batch_is_none():
    """The loop asks once; without schedulers and scaler there is nothing to call per batch."""
    assert make_trial().context.finish_batch() is None


def test_contexts_that_only_load_leave_models_alone():
    """3.12: the model is neither moved nor wrapped."""
    context = make_context(managed=False)
    context.device = torch.device("meta")
    model = context.wrap_model(OneWeight())
    assert model.weight.device.type == "cpu"


def test_two_models_train_in_any_order():
    """A GAN: each optimizer moves its own weight; leftovers of the other's loss wait, as in a loop by hand."""
    context = make_context()
    one, two = context.wrap_model(OneWeight(1.0)), context.wrap_model(OneWeight(1.0))
    first = context.wrap_optimizer(torch.optim.SGD(one.parameters(), lr=1.0))
    second = context.wrap_optimizer(torch.optim.SGD(two.parameters(), lr=1.0))
    context.position.batch_idx = 0
    context.backward(two(one(torch.tensor([2.0]))).sum())
    context.step_optimizer(second)
    assert (one.weight.item(), two.weight.item(), one.weight.grad.item()) == (1.0, -1.0, 2.0)
    context.step_optimizer(first)
    assert one.weight.item() == -1.0


@pytest.mark.parametrize("when", ["before", "after"])
def test_compiled_models_train(when):
    """A model compiled before or after it is wrapped takes the same steps."""
    context = make_context(agg=2)
    model: Any = OneWeight()
    if when == "before":
        model = context.wrap_model(torch.compile(model, backend="eager"))
    else:
        model = torch.compile(context.wrap_model(model), backend="eager")
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    assert Trial(context, model, optimizer).train([3.0, 7.0]) == [0.0, -5.0]


# Where training is.


def test_position_queries_have_no_answer_before_training():
    """T54: InternalException before the first batch; without an epoch length for questions of epochs."""
    context = make_context()
    queries = (
        context.current_train_batch,
        context.current_train_epoch,
        context.is_epoch_start,
        context.is_epoch_end,
    )
    for query in queries:
        with pytest.raises(errors.InternalException, match=query.__name__):
            query()
    context.position.batch_idx = 0
    assert context.current_train_batch() == 0
    with pytest.raises(errors.InternalException, match="data loader"):
        context.is_epoch_end()


def test_position_queries_read_the_position():
    """3.6: what the loop says, the context answers."""
    context = make_context()
    position = context.position
    position.batch_idx, position.epoch_idx, position.epoch_length = 7, 1, 4
    position.starts_epoch, position.ends_epoch = False, True
    answers = [context.current_train_batch(), context.current_train_epoch()]
    assert answers == [7, 1]
    assert [context.is_epoch_start(), context.is_epoch_end()] == [False, True]


# Device and data.


def test_the_device_is_what_torch_sees(monkeypatch):
    """3.7, W18, W34: no accelerator or none wanted is the CPU; ranks take their own, or the only one they see."""
    assert make_context(gpus=4).device == torch.device("cpu")
    chosen: list[int] = []
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
    assert choose_device(0, 1, 0) == torch.device("cpu")
    assert choose_device(2, 1, 0) == torch.device("cuda:0")
    assert choose_device(2, 2, 1) == torch.device("cuda:1")
    assert chosen == [1]
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    assert choose_device(1, 2, 1) == torch.device("cuda:0")


def test_to_device_warns_once_per_type_and_context(caplog):
    """T101: strings twice, one warning, values unchanged; another context warns anew."""
    context = make_context()
    batch = {"x": np.zeros(2), "name": "a", "other": "b"}
    for _ in range(2):
        moved = context.to_device(batch)
    assert (moved["name"], moved["x"].dtype) == ("a", torch.float64)
    assert len(caplog.records) == 1
    make_context().to_device("c")
    assert len(caplog.records) == 2


def test_to_device_leaves_alone_what_is_in_place():
    """Decision 7: tensors that are on the CPU are not touched; others are moved."""
    context = make_context()
    here = torch.zeros(1)
    for batch in ([here], (here, torch.ones(1)), {"x": here}):
        moved = context.to_device(batch)
        assert (moved["x"] if isinstance(moved, dict) else moved[0]) is here
    for other in ([[torch.zeros(1)]], [np.zeros(1)], {"x": (np.ones(1),)}, torch.zeros(1)):
        assert type(context.to_device(other)) is type(other)
    assert isinstance(context.to_device([torch.zeros(1), np.zeros(1)])[1], torch.Tensor)
    context.device = torch.device("meta")
    assert context.to_device([torch.zeros(1)])[0].device.type == "meta"


def test_experimental_switches():
    """T62, 3.9: moving batches to the device and checking datasets are on, and each can be switched off."""
    context = make_context()
    assert (context.auto_to_device, context.checks_datasets) == (True, True)
    context.experimental.disable_auto_to_device()
    context.experimental.disable_dataset_reproducibility_checks()
    assert (context.auto_to_device, context.checks_datasets) == (False, False)


def test_reducers_are_reached_through_the_context():
    """3.10: wrap_reducer on the context, and where older trials look."""
    context = make_context()
    mean = context.wrap_reducer(lambda values: sum(values) / len(values), name="mean")
    total = context.experimental.wrap_reducer(sum, name="total")
    context.reset_reducers()
    for value in (1.0, 3.0):
        mean.update(value)
        total.update(value)
    assert context.reduce_metrics(for_training=True) == {"mean": 2.0, "total": 4.0}
    ranks = [[[1.0], [2.0]], [[3.0], [4.0]]]
    assert context.run_cross_slot_reduction(True, ranks) == {"mean": 2.0, "total": 6.0}


def test_a_stand_in_has_every_method():
    """3.10: `Mock(spec=PyTorchTrialContext)` in a user's test knows all calls, those about reducers too."""
    stand_in = mock.Mock(spec=PyTorchTrialContext)
    public = {name for name in dir(make_context()) if not name.startswith("_")}
    assert [name for name in public if callable(getattr(make_context(), name)) and not hasattr(stand_in, name)] == []


# Stop flag, events, profiler.


def test_flags_are_true_or_false():
    """T63: a non-bool stop or tensorboard flag is an AssertionError."""
    context = make_context()
    for switch in (context.set_stop_requested, context.set_enable_tensorboard_logging):
        with pytest.raises(AssertionError, match="True or False"):
            switch(1)  # type: ignore[arg-type]


def test_a_stop_can_be_requested_and_taken_back():
    """3.8: set_stop_requested(True) requests a stop, and set_stop_requested(False) takes it back."""
    context = make_context()
    seen = [context.get_stop_requested()]
    for flag in (True, False):
        context.set_stop_requested(flag)
        seen.append(context.get_stop_requested())
    assert seen == [False, True, False]
    assert context.get_enable_tensorboard_logging()
    context.set_enable_tensorboard_logging(False)
    assert not context.get_enable_tensorboard_logging()


def test_events_have_a_place_of_their_own(home):
    """W11: a real directory in the data directory, outside of the code."""
    path = make_context().get_tensorboard_path()
    assert path.is_dir()
    assert path.is_relative_to(home)


def test_a_profiler_schedule_gives_one_trace():
    """T66, W20: wait 1, warm-up 1, active 2, repeat 1 over 6 batches is exactly one trace."""
    context = make_context()
    assert context.profiler is None
    with pytest.raises(TypeError, match="on_trace_ready"):
        context.set_profiler(on_trace_ready=print)
    context.set_profiler(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    )
    with context.profiler:
        for _ in range(6):
            torch.ones(1) + 1
            context.profiler.step()
    assert len(list(context.get_tensorboard_path().glob("*.pt.trace.json"))) == 1


def test_the_names_are_public():
    """1.1: determined.pytorch exports the context classes."""
    for name in ("PyTorchTrialContext", "PyTorchExperimentalContext", "LRScheduler"):
        assert name in pytorch.__all__
    assert isinstance(make_context().experimental, pytorch.PyTorchExperimentalContext)
