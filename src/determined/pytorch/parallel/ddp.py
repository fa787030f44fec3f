"""One model on several ranks: DDP with the options a trial asks for, and errors that say what to change in it.

`gradients.py` decides when gradients are accumulated and when optimizers step.
"""

from __future__ import annotations

import difflib
import inspect
import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from determined import errors

# How torch's error begins when the last backward pass did not reach every parameter, and where it lists them.
_UNREDUCED = "Expected to have finished reduction in the prior iteration"
_MISSED = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
_HALVES = (torch.float16, torch.bfloat16)
_distributed_models: weakref.WeakSet[DistributedModel] = weakref.WeakSet()


class DistributedModel(DistributedDataParallel):
    """DDP that also has the attributes of the wrapped module, so that a trial can use it like the module."""

    compression: torch.dtype | None = None
    """The type that gradients are exchanged in, if not their own. Set by `compress()`."""
    has_left = False
    """Whether the process group is closed, so that only the wrapped module is called. Set by `leave()`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(super().__getattr__("module"), name)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module through DDP; without gradients no rank waits for another, so ranks may differ in batches."""
        if self.has_left:
            return self.module(*inputs, **kwargs)
        if torch.is_grad_enabled():
            try:
                return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]
            except RuntimeError as failed:
                self._explain(failed)
                raise
        shares, self.require_forward_param_sync = self.require_forward_param_sync, False
        try:
            return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            self.require_forward_param_sync = shares

    def leave(self) -> None:
        """Drop the references to the process group, which cannot end while a model of the script has them."""
        self.has_left = True
        del self.reducer, self.logger, self.process_group

    def share_buffers(self) -> None:
        """Copy the chief's buffers to every rank, as the next forward pass with gradients would. Collective."""
        if self.broadcast_buffers:
            for name, buffer in self.module.named_buffers():
                if name not in self.parameters_to_ignore:
                    dist.broadcast(buffer.detach(), src=0, group=self.process_group)

    def settle_buckets(self) -> None:
        """Use the same gradient buckets from the first batch on. Collective.

        DDP rebuilds them after its first batch, in the order in which gradients came. From three ranks on, the place
        in a bucket decides in which order gloo adds: a resumed run, whose first batch is a later one, would differ in
        the last bit. The price: the exchange of a large model begins when its backward pass ends.
        """
        self.reducer._push_all_rebuilt_params()
        self.reducer._rebuild_buckets()

    def check_exchanged(self) -> None:
        """Raise if the last gradients did not reach every rank. Collective.

        DDP finds out in the next forward pass only; a checkpoint before that would have parameters of one rank.
        """
        try:
            self.reducer._rebuild_buckets()  # what DDP begins a forward pass with
        except RuntimeError as failed:
            self._explain(failed)
            raise

    def _explain(self, failed: RuntimeError) -> None:
        """If torch complains of parameters without a gradient, raise an error that names them and what to change."""
        text = str(failed)
        if _UNREDUCED not in text:
            return
        trained = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        found = _MISSED.search(text)
        missed = [trained[int(index)] for index in found[1].split() if int(index) < len(trained)] if found else []
        listed = ", ".join(missed[:8]) + (f" and {len(missed) - 8} more" if len(missed) > 8 else "")
        raise errors.InvalidExperimentException(
            f"The last loss needed only a part of {type(self.module).__name__}: {listed or 'some parameters'} got no "
            "gradient, so ranks could not exchange all of them. Use context.wrap_model(model, "
            "find_unused_parameters=True), or freeze what is not trained with requires_grad_(False) before."
        ) from failed


def check_process_group(size: int) -> None:
    """Raise if there is no process group to exchange gradients in."""
    if not (dist.is_available() and dist.is_initialized()):
        raise errors.InvalidExperimentException(
            f"There are {size} ranks but no torch process group, so each would train a model of its own. "
            "Open the context with pytorch.init() under torchrun, or call torch.distributed.init_process_group() first."
        )


def distribute(model: nn.Module, device: torch.device, **ddp_options: Any) -> nn.Module:
    """Return the model in DDP or, if it has nothing to train, made equal on all ranks now. Collective."""
    if any(parameter.requires_grad for parameter in model.parameters()):
        if device.type != "cpu":
            ddp_options.setdefault("device_ids", [device])
        distributed = DistributedModel(model, **ddp_options)
        _distributed_models.add(distributed)
        if dist.get_world_size() > 2 and dist.get_backend() == "gloo":
            distributed.settle_buckets()
        return distributed
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    return model


def leave_process_group() -> None:
    """Close the process group and end its threads. Models work on as plain ones.

    A gloo thread frees its last tensors some time later. If the interpreter has ended by then, as after a short script
    on a busy machine, torch aborts the process, and a rank that has finished its work looks killed.
    """
    group = dist.group.WORLD  # so that the last reference is ours, and Python waits for the threads without the GIL
    for model in list(_distributed_models):
        model.leave()
    _distributed_models.clear()
    dist.destroy_process_group()
    del group


def check_called(model: DistributedDataParallel, trained: Iterable[torch.Tensor]) -> None:
    """Raise if gradients were computed without calling the model: DDP does not exchange those. Collective.

    Args:
        model: The model in DDP. Calling a method of the wrapped module exchanges nothing.
        trained: The parameters that are about to be updated.
    """
    known = {id(parameter) for parameter in trained}
    own = [parameter for parameter in model.parameters() if id(parameter) in known]
    if not own or getattr(model, "_lazy_init_ran", True):  # set by DDP's first call
        return
    lowest = torch.stack([_total(parameter.grad, own[0].device) for parameter in own])
    highest = lowest.clone()
    dist.all_reduce(lowest, dist.ReduceOp.MIN, group=model.process_group)
    dist.all_reduce(highest, dist.ReduceOp.MAX, group=model.process_group)
    if torch.allclose(lowest, highest):  # compiled, or exchanged by the trial itself
        return
    name = type(model.module).__name__
    raise errors.InvalidExperimentException(
        f"The gradients of {name} differ between ranks: the loss came from a method or a part of it, and ranks "
        "exchange gradients only when the wrapped model itself is called. Compute the loss in "
        f"{name}.forward(), and call self.model(...)."
    )


def _total(gradient: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    if gradient is None or gradient.layout is not torch.strided:
        return torch.zeros((), dtype=torch.float64, device=device)
    return gradient.sum(dtype=torch.float64).nan_to_num().to(device)


def expect_gradients(model: DistributedDataParallel, loss: torch.Tensor) -> None:
    """Make the next backward pass exchange gradients too; a forward pass does so for the first one after it only.

    Otherwise a second backward pass over the same outputs would add gradients that stay on their rank. Those exchanged
    before are the same on all ranks, so a mean does not change them. A model that the pass does not reach just waits.
    """
    if not model.require_backward_grad_sync or model.static_graph:
        return
    try:
        model.reducer._rebuild_buckets()  # what DDP begins a forward pass with
    except RuntimeError as failed:
        if _UNREDUCED not in str(failed):
            raise
        return  # this pass may reach what the one before did not, and so finish its exchange
    model.reducer.prepare_for_backward([loss] if model.find_unused_parameters else [])


def mean_over_ranks(loss: Any) -> Any:
    """Return the mean of the loss over ranks, which belongs to exchanged gradients. Collective.

    LBFGS decides by it how often to call the closure: with a loss of its own each rank would decide differently, and
    wait for the others in vain.
    """
    if loss is None:
        return None
    mean = torch.as_tensor(loss).detach().clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def check_options(names: Iterable[str]) -> None:
    """Raise for keywords that DDP does not have, also with one process, where DDP is not used."""
    known = set(inspect.signature(DistributedDataParallel).parameters) - {"module"}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"It takes {', '.join(sorted(known))}."
            raise errors.InvalidExperimentException(
                f"wrap_model() got {name!r}, which is no option of DistributedDataParallel. {hint}"
            )


def compression_type(wish: bool | torch.dtype | None) -> torch.dtype | None:
    """Return the type that `fp16_compression` asks for: True is float16; None and False are None."""
    if wish is None or wish is False:
        return None
    if wish is True:
        return torch.float16
    if wish not in _HALVES:
        raise ValueError(f"fp16_compression={wish!r}: use True for float16, or torch.bfloat16.")
    return wish


def compress(model: DistributedDataParallel, dtype: torch.dtype) -> None:
    """Exchange a model's gradients in this type. Collective."""
    known = getattr(model, "compression", None)
    if known is dtype:  # another optimizer of the same model has asked for it
        return
    if known is not None:
        raise errors.InvalidExperimentException(
            f"Two optimizers of one {type(model.module).__name__} ask for gradients in {known} and in {dtype}, and "
            "they travel together. Pass the same fp16_compression to both wrap_optimizer()."
        )
    _check_backend_adds(model, dtype)
    model.register_comm_hook(model.process_group, _exchange_in(dtype))
    if isinstance(model, DistributedModel):
        model.compression = dtype


def _check_backend_adds(model: DistributedDataParallel, dtype: torch.dtype) -> None:
    """Raise if the backend cannot add numbers of this type: better now than in the first batch."""
    device = next(model.module.parameters()).device
    try:
        dist.all_reduce(torch.zeros(1, dtype=dtype, device=device), group=model.process_group)
    except (RuntimeError, TypeError, ValueError) as failed:
        said = str(failed).strip().split("\n")[0]
        if "type" not in said.lower():
            raise
        raise errors.InvalidExperimentException(
            f"fp16_compression: {dist.get_backend(model.process_group)} of torch {torch.__version__} cannot add "
            f"gradients in {dtype} ({said}). Leave fp16_compression out, or ask for the other of {_HALVES}."
        ) from failed


def _exchange_in(dtype: torch.dtype) -> Callable[..., Any]:
    # torch has hooks for this, but they refuse bfloat16 without NCCL, and divide after the conversion, when the sum may
    # have overflowed. DDP checks annotations, and accepts none or its own.
    def exchange(group, bucket):  # type: ignore[no-untyped-def]
        gradients = bucket.buffer()
        half = gradients.div_(group.size()).to(dtype)
        exchanged = dist.all_reduce(half, group=group, async_op=True).get_future()
        return exchanged.then(lambda done: gradients.copy_(done.value()[0]))

    return exchange
