"""The context of a trial: it wraps models and optimizers, computes gradients and steps, and holds hyperparameters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import nn

from determined import core, errors
from determined.core._context import _dummy_init
from determined.pytorch._facts import TrialFacts, check_flag, find_trial_info, sample_hparams
from determined.pytorch._lr_scheduler import LRScheduler, check_scheduler, finishing
from determined.pytorch.data.to_device import choose_device, mover
from determined.pytorch.display.console import function_of
from determined.pytorch.display.tensorboard import EventWriter
from determined.pytorch.metrics.reducer import Function, MetricReducer, Names, _PyTorchReducerContext, _SimpleReducer
from determined.pytorch.parallel import ddp
from determined.pytorch.parallel.gradients import Gradients
from determined.pytorch.parallel.precision import Precision

logger = logging.getLogger("determined.pytorch")

Model = TypeVar("Model", bound=nn.Module)
AnyOptimizer = TypeVar("AnyOptimizer")
AnyScheduler = TypeVar("AnyScheduler")
AnyScaler = TypeVar("AnyScaler")
AnyReducer = TypeVar("AnyReducer", bound=MetricReducer)


class PyTorchTrialContext(TrialFacts):
    """What a `PyTorchTrial` gets in its constructor. `pytorch.init()` makes it.

    Args:
        core_context: The services of this process.
        trial_seed: What the random streams of this trial start from.
        hparams: Hyperparameters; None takes those that the process was started with, if any.
        slots_per_trial: How many processes train this trial.
        num_gpus: How many accelerators torch sees here; 0 keeps everything on the CPU.
        exp_conf: The experiment config.
        aggregation_frequency: Batches per update of the parameters.
        steps_completed: Batches that were trained before this process started.
        managed_training: False for a context that only loads a checkpoint: models are left where and as they are.
        debug_enabled: Accepted from older code; it changes nothing.
        enable_tensorboard_logging: Whether metrics become TensorBoard files.

    Example::

        class MyTrial(PyTorchTrial):
            def __init__(self, context: PyTorchTrialContext) -> None:
                self.context = context
                self.model = context.wrap_model(nn.Linear(1, 1))
                self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
    """

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: int | None,
        hparams: dict[str, Any] | None,
        slots_per_trial: int,
        num_gpus: int,
        exp_conf: dict[str, Any] | None,
        aggregation_frequency: int,
        steps_completed: int,
        managed_training: bool,
        debug_enabled: bool,  # noqa: ARG002 - see above
        enable_tensorboard_logging: bool = True,
    ) -> None:
        if isinstance(aggregation_frequency, bool) or not isinstance(aggregation_frequency, int):
            raise TypeError(f"aggregation_frequency is {aggregation_frequency!r}; expected an int of 1 or more.")
        if aggregation_frequency < 1:
            raise ValueError(
                f"aggregation_frequency is {aggregation_frequency}; expected 1 or more batches per update."
            )
        self.core_context = core_context  # the services of this process, for `determined.pytorch`
        self.distributed = core_context.distributed
        trial_info = find_trial_info(core_context.info)
        if hparams is None and managed_training and trial_info is not None:
            hparams = trial_info.hparams
        super().__init__(trial_info, trial_seed, hparams, slots_per_trial, exp_conf, steps_completed)
        self.is_managed = managed_training
        self.device = choose_device(num_gpus, self.distributed.size, self.distributed.local_rank)

        self.models: list[nn.Module] = []
        self.optimizers: list[Any] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.profiler: torch.profiler.profile | None = None
        self.gradients = Gradients(self.position, aggregation_frequency, always_updates=not managed_training)
        self.precision = Precision(self.gradients)
        self.reducers = _PyTorchReducerContext(
            self.distributed.allgather, rank=self.distributed.rank, size=self.distributed.size, device=self.device
        )
        self.default_fp16_compression = False
        self.default_average_aggregated_gradients = True
        self.auto_to_device = True
        self.checks_datasets = True
        self.experimental = PyTorchExperimentalContext(self)

        self._stop_requested = False
        self.stop_requested_by = ""
        self._logs_to_tensorboard = enable_tensorboard_logging
        self._writer = EventWriter(core_context.train.get_tensorboard_path)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> PyTorchTrialContext:
        """Return a context outside of training, to try a trial's methods, with hyperparameters drawn from this config.

        Args:
            config: An experiment config; `hyperparameters`, `reproducibility.experiment_seed` and
                `resources.slots_per_trial` are looked at.

        Example::

            context = PyTorchTrialContext.from_config({"hyperparameters": {"lr": 0.1}})
            context.get_hparam("lr")   # 0.1
        """
        seed = int((config.get("reproducibility") or {}).get("experiment_seed", 0))
        return cls(
            core_context=_dummy_init(),
            trial_seed=seed,
            hparams=sample_hparams(config.get("hyperparameters") or {}, seed),
            slots_per_trial=int((config.get("resources") or {}).get("slots_per_trial", 1)),
            num_gpus=0,
            exp_conf=dict(config),
            aggregation_frequency=1,
            steps_completed=0,
            managed_training=False,
            debug_enabled=False,
        )

    # Wrapping.

    def wrap_model(self, model: Model, **ddp_kwargs: Any) -> Model:
        """Have this model trained, saved and restored: the returned one is the model to use.

        It is moved to the device; with several ranks it becomes a `DistributedDataParallel`, which answers for the
        attributes of the model inside. Checkpoints keep the names of the model as it was given.

        Args:
            model: The model, compiled or not.
            ddp_kwargs: More arguments for DDP, for example `find_unused_parameters=True`; unused by one process.
        """
        self.precision.check_before_apex("wrap_model")
        if not isinstance(model, nn.Module):
            raise errors.InvalidModelException(
                f"wrap_model() got a {type(model).__name__}, expected a torch.nn.Module."
            )
        ddp.check_options(ddp_kwargs)
        wrapped: Any = model
        if self.is_managed:
            wrapped = model.to(self.device)
        if self.precision.is_automatic:
            wrapped = self.autocast_forward_pass(wrapped)
        if self.is_managed and self.distributed.size > 1:
            ddp.check_process_group(self.distributed.size)
            wrapped = ddp.distribute(wrapped, self.device, **ddp_kwargs)
        self.models.append(wrapped)
        self.gradients.add_model(wrapped)
        result: Model = wrapped
        return result

    def wrap_optimizer(
        self,
        optimizer: AnyOptimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | torch.dtype | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> AnyOptimizer:
        """Have this optimizer stepped, saved and restored.

        Args:
            optimizer: Built from the parameters of wrapped models.
            backward_passes_per_step: For older code; any number of backward passes adds up by itself.
            fp16_compression: Halve what ranks exchange: True for float16, or `torch.bfloat16`.
            average_aggregated_gradients: Divide by the aggregation frequency (the default), or sum.
        """
        self.precision.check_before_apex("wrap_optimizer")
        if not callable(getattr(optimizer, "step", None)):
            raise errors.InvalidExperimentException(
                f"wrap_optimizer() got a {type(optimizer).__name__}, expected an optimizer, for example "
                "torch.optim.SGD(model.parameters(), lr=0.1)."
            )
        if backward_passes_per_step < 1:
            raise errors.InvalidExperimentException(
                f"backward_passes_per_step is {backward_passes_per_step}; expected 1 or more."
            )
        if fp16_compression is None:
            fp16_compression = self.default_fp16_compression
        if average_aggregated_gradients is None:
            average_aggregated_gradients = self.default_average_aggregated_gradients
        compression = ddp.compression_type(fp16_compression)
        alone = not self.is_managed or self.distributed.size == 1
        if not any(optimizer is known for known in self.optimizers):
            self.optimizers.append(optimizer)
        self.gradients.add_optimizer(optimizer, average_aggregated_gradients, None if alone else compression)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: AnyScheduler, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> AnyScheduler:
        """Have this scheduler stepped by the loop (see `LRScheduler`), saved and restored. Returns the same object.

        Args:
            lr_scheduler: Built on a wrapped optimizer.
            step_mode: What it counts.
            frequency: Every how many of these it steps.
        """
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        check_scheduler(wrapped, self.optimizers)
        if self.position.batch_idx is not None and self.distributed.rank == 0:
            logger.warning(
                "wrap_lr_scheduler() was called after training began: this %s steps from the next report on, and a "
                "restored checkpoint does not reach it. Call it in the trial's __init__.",
                type(lr_scheduler).__name__,
            )
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    def wrap_scaler(self, scaler: AnyScaler) -> AnyScaler:
        """Have your own gradient scaler saved and restored; scaling, unscaling and `update()` stay yours.

        Pass it to `step_optimizer(..., scaler=scaler)`. Call it before the first `wrap_model`.
        """
        self.precision.keep_scaler(scaler, is_late=bool(self.models))
        return scaler

    @property
    def scaler(self) -> Any:
        """The gradient scaler, from `wrap_scaler()`, `experimental.use_amp()` or `configure_apex_amp()`; or None."""
        return self.precision.scaler

    @scaler.setter
    def scaler(self, scaler: Any) -> None:
        self.precision.scaler = scaler

    def configure_apex_amp(
        self,
        models: Any,
        optimizers: Any,
        enabled: bool | None = True,
        opt_level: str | None = "O1",
        cast_model_type: torch.dtype | None = None,
        patch_torch_functions: bool | None = None,  # noqa: ARG002 - this and the next are apex's, and have no meaning here
        keep_batchnorm_fp32: bool | str | None = None,  # noqa: ARG002
        master_weights: bool | None = None,  # noqa: ARG002
        loss_scale: float | str | None = None,
        cast_model_outputs: torch.dtype | None = None,  # noqa: ARG002
        num_losses: int | None = 1,  # noqa: ARG002
        verbosity: int | None = 1,  # noqa: ARG002
        min_loss_scale: float | None = None,  # noqa: ARG002
        max_loss_scale: float | None = 2.0**24,  # noqa: ARG002
    ) -> tuple[Any, Any]:
        """Train in mixed precision, as older trials ask for it. It is done with `torch.amp`; apex is not needed.

        Args:
            models: One wrapped model, or a list of them.
            optimizers: One wrapped optimizer, or a list of them.
            enabled: False returns everything as it was.
            opt_level: "O0" is full precision; all others run the models under autocast.
            cast_model_type: What to compute in; float16 by default.
            loss_scale: "dynamic", or the first scale.

        Returns:
            The models and optimizers.
        """
        if not enabled or not self.is_managed:
            return models, optimizers
        first_scale = float(loss_scale) if isinstance(loss_scale, (int, float)) else None
        given = models if isinstance(models, (list, tuple)) else [models]
        self.precision.use_apex(self.device, given, opt_level, cast_model_type, first_scale)
        return models, optimizers

    def autocast_forward_pass(self, to_wrap: Model) -> Model:
        """The same model; its forward pass now runs in reduced precision, and returns float32.

        For models whose wrapping you do yourself; `experimental.use_amp()` does it for all that are wrapped later.
        """
        return self.precision.autocast(to_wrap, self.device)

    # Gradients.

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Compute the gradients of a loss and add them to those there are. Instead of `loss.backward()`.

        Args:
            loss: What to differentiate.
            gradient: As in `Tensor.backward`; needed unless the loss is a single number.
            retain_graph: Keep the graph for another pass.
            create_graph: Make the gradients differentiable; keeps the graph.
        """
        self.gradients.backward(loss, gradient, retain_graph, create_graph)

    def step_optimizer(
        self,
        optimizer: Any,
        clip_grads: Callable[[Iterator[Any]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any | None = None,
        *,
        closure: Callable[[], Any] | None = None,
    ) -> None:
        """Update the parameters of one optimizer, once per batch. Instead of `optimizer.step()` and `zero_grad()`.

        With `aggregation_frequency=n` it does nothing but on every n-th batch.

        Args:
            optimizer: A wrapped one.
            clip_grads: Gets the list of parameters before the step, for example to clip their gradients.
            auto_zero_grads: Drop the gradients after the step; with False that is up to you.
            scaler: Your own scaler, if one was wrapped.
            closure: Computes the loss and its gradients anew, for optimizers such as LBFGS that need it.

        Example::

            context.step_optimizer(optimizer, lambda parameters: nn.utils.clip_grad_norm_(parameters, 1.0))
        """
        self.gradients.step(optimizer, clip_grads, auto_zero_grads, scaler, closure)

    def finish_batch(self) -> Callable[[int], None] | None:
        """Return what has to be called after each `train_batch` with its index; None if nothing. For the loop."""
        update_scaler = None if self.gradients.scaler is None else self.gradients.update_scaler
        if update_scaler is None and not self.lr_schedulers:
            return None
        frequency, position = self.gradients.aggregation_frequency, self.position
        return finishing(self.lr_schedulers, frequency, position.epoch_length, position.epoch_shift, update_scaler)

    # Where batches go.

    @property
    def device(self) -> torch.device:
        """Where models and batches go."""
        return self._device

    @device.setter
    def device(self, device: torch.device) -> None:
        self._device = device
        self._place = mover(device)

    def to_device(self, data: Any) -> Any:
        """A batch with its tensors on this context's device. The loop does this to every batch by itself."""
        return self._place(data)

    # Reducers.

    @overload
    def wrap_reducer(
        self, reducer: type[AnyReducer], name: Names = ..., for_training: bool = ..., for_validation: bool = ...
    ) -> AnyReducer: ...
    @overload
    def wrap_reducer(
        self, reducer: AnyReducer, name: Names = ..., for_training: bool = ..., for_validation: bool = ...
    ) -> AnyReducer: ...
    @overload  # torchmetrics
    def wrap_reducer(
        self, reducer: Model, name: Names = ..., for_training: bool = ..., for_validation: bool = ...
    ) -> Model: ...
    @overload
    def wrap_reducer(
        self, reducer: Function, name: Names = ..., for_training: bool = ..., for_validation: bool = ...
    ) -> _SimpleReducer: ...
    def wrap_reducer(
        self, reducer: Any, name: Names = None, for_training: bool = True, for_validation: bool = True
    ) -> Any:
        """Have a reducer evaluated at the end of every training window and validation.

        Args:
            reducer: A `MetricReducer`, its class, a `torchmetrics` metric or collection, or a function of all values.
            name: What to call the result; None if the result is a dict of metrics; a dict to rename some of those.
            for_training: Evaluate it for training windows.
            for_validation: Evaluate it for validations.

        Returns:
            The reducer itself; for a class, a new instance; for a function, an object with `update(value)`.

        Example::

            self.scores = context.wrap_reducer(lambda values: sum(values) / len(values), name="score")
            self.scores.update(0.5)
        """
        return self.reducers.wrap_reducer(reducer, name, for_training, for_validation)

    def reset_reducers(self) -> None:
        """Forget what reducers have collected, as at the start of a window or a validation."""
        self.reducers.reset_reducers()

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Return the reducers' metrics, the same on every rank. Collective."""
        return self.reducers.reduce_metrics(for_training)

    def run_cross_slot_reduction(self, for_training: bool, per_rank: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the reducers' metrics, from what `per_slot_reduce` returned for each of them on each rank."""
        return self.reducers.run_cross_slot_reduction(for_training, per_rank)

    # Stopping, events, profiling.

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask for training to end, with a checkpoint, at the next boundary; False takes it back. Any rank may ask."""
        check_flag("set_stop_requested", stop_requested)
        logger.info("A stop of this trial was %s.", "requested" if stop_requested else "taken back")
        self._stop_requested = stop_requested
        self.stop_requested_by = function_of(sys._getframe(1)) if stop_requested else ""

    def get_stop_requested(self) -> bool:
        """Whether `set_stop_requested` asked for training to end."""
        return self._stop_requested

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Whether metrics become TensorBoard files. Your own `get_tensorboard_writer()` works either way."""
        check_flag("set_enable_tensorboard_logging", enable_tensorboard_logging)
        self._logs_to_tensorboard = enable_tensorboard_logging

    def get_enable_tensorboard_logging(self) -> bool:
        """Whether metrics become TensorBoard files."""
        return self._logs_to_tensorboard

    def get_tensorboard_path(self) -> Path:
        """The directory of this run's event files; it exists, and lies outside of your code."""
        return self.core_context.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> Any:
        """A `SummaryWriter` for events of your own, beside those of the metrics; the same object each time."""
        return self._writer.get()

    def write_events(
        self,
        metric_type: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Write metrics as TensorBoard scalars: on the chief, unless switched off. For the loop."""
        if self._logs_to_tensorboard and self.distributed.rank == 0:
            self._writer.write(metric_type, steps_completed, metrics, batch_metrics)

    def upload_events(self) -> None:
        """Copy event files to where they are kept, unless switched off; other ranks copy profiles. For the loop."""
        if self._logs_to_tensorboard:
            self._writer.upload(self.core_context.train, is_chief=self.distributed.rank == 0)

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile training with torch's profiler; its traces go to the TensorBoard directory.

        Args:
            args: As of `torch.profiler.profile`.
            kwargs: As of `torch.profiler.profile`, but for `on_trace_ready`.
        """
        if "on_trace_ready" in kwargs:
            raise TypeError(
                "set_profiler() got on_trace_ready, but traces always go to the TensorBoard directory. Leave it out."
            )
        self.profiler = torch.profiler.profile(*args, on_trace_ready=self._keep_trace, **kwargs)

    def _keep_trace(self, profiler: Any) -> None:
        torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path()))(profiler)

    def close(self) -> None:
        """Finish the event files. For `init()`."""
        self._writer.close()


class PyTorchExperimentalContext:
    """Switches reached as `context.experimental`."""

    def __init__(self, parent: PyTorchTrialContext) -> None:
        self._parent = parent
        self.wrap_reducer = parent.wrap_reducer  # its first place, which older trials use

    def use_amp(self, dtype: torch.dtype | None = None) -> None:
        """Train in mixed precision: scaling, unscaling, autocast and `update()` all happen by themselves.

        Call it before the first `wrap_model`.

        Args:
            dtype: `torch.bfloat16` works on any device, this CPU included. By default float16 on a GPU, and full
                precision on a CPU.
        """
        self._parent.precision.use_amp(self._parent.device, dtype, is_late=bool(self._parent.models))

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow torch's own data loaders; shuffling, sharding, repeating and skipping are then up to you."""
        self._parent.checks_datasets = False

    def disable_auto_to_device(self) -> None:
        """Get batches as the loader made them; `context.to_device(batch)` moves one."""
        self._parent.auto_to_device = False
