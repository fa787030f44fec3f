"""PyTorchCallback, `ShouldExit`, which ends training from a hook, and `Callbacks`, which calls one hook of many."""

from __future__ import annotations

import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec

from determined.pytorch import _rng

logger = logging.getLogger("determined.pytorch")


class ShouldExit(Exception):
    """Raise it in user code to end `fit()` cleanly, with a checkpoint unless told otherwise.

    Of several ranks, all have to raise it, in the same batch. `context.set_stop_requested(True)` on one stops them all.

    Args:
        skip_exit_checkpoint: Leave without saving.

    Example::

        if batch_idx == 100:
            raise pytorch.ShouldExit(skip_exit_checkpoint=True)
    """

    def __init__(self, skip_exit_checkpoint: bool = False) -> None:
        super().__init__("fit() was asked to end" + (" without a checkpoint" if skip_exit_checkpoint else ""))
        self.skip_exit_checkpoint = skip_exit_checkpoint


_ShouldExit = ShouldExit  # what 0.38 calls it


class PyTorchCallback:
    """Override the hooks you need; return the callback from `PyTorchTrial.build_callbacks()`.

    Hooks run on every rank, except that `state_dict`, `on_checkpoint_save_start` and `on_checkpoint_write_end` run on
    the chief only.

    Example::

        class Patience(pytorch.PyTorchCallback):
            def __init__(self, context):
                self.context, self.best = context, float("inf")

            def on_validation_end(self, metrics):
                if metrics["loss"] > self.best:
                    self.context.set_stop_requested(True)
                self.best = min(self.best, metrics["loss"])

            def state_dict(self):
                return {"best": self.best}

            def load_state_dict(self, state_dict):
                self.best = state_dict["best"]
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Called first, before loaders are built and before a checkpoint is loaded."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint was read and nothing is restored yet; changes to it are restored."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict()` returned."""

    def on_training_start(self) -> None:
        """Once per `fit()`, after a checkpoint was loaded, even if nothing will be trained."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Before the first batch of an epoch; not for an epoch that is resumed in the middle."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """After the last batch of an epoch."""

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """After every window of training, once its metrics are reported."""

    def on_validation_start(self) -> None:
        """A validation begins."""

    def on_validation_epoch_start(self) -> None:
        """Before the first batch of a validation, with `evaluate_batch`."""

    def on_validation_epoch_end(self, outputs: list[dict[str, Any]]) -> None:
        """After the last batch of a validation, with `evaluate_batch`: what this rank's batches returned."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """The metrics of a validation, before they are reported; what the chief's callback changes is reported."""

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive a restart: tensors and plain values."""
        return {}

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """The state is gathered and not written yet; changes are saved."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """The older form of `on_checkpoint_write_end`."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """All files are written and not stored yet; files added to the directory become part of the checkpoint."""

    def on_checkpoint_write_shard(self, checkpoint_dir: str) -> None:
        """On every rank, with an empty directory: files written there join those of other ranks in the checkpoint.

        Two ranks may give the same file, but not two different ones under one name: that is an error on every rank.
        """

    def on_checkpoint_read_shard(self, checkpoint_dir: str) -> None:
        """On every rank, once a checkpoint is restored: its directory, with the files of all ranks that saved it."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """The checkpoint is stored under this id."""

    def on_trial_shutdown(self) -> None:
        """The end of `fit()`, after an error too."""


# Until 0.20 two hooks had other names.
_OLDER_NAMES = {"on_validation_start": "on_validation_step_start", "on_validation_end": "on_validation_step_end"}

P = ParamSpec("P")


class Hook(Generic[P]):
    """One hook of all callbacks. Calling it calls those that override it, in order; it is false if none does."""

    def __init__(self, named: Mapping[str, PyTorchCallback], declared: Callable[Concatenate[Any, P], None]) -> None:
        self._named = named
        self._name = declared.__name__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for call in self._calls:
            call(*args, **kwargs)

    def preserving(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call it, and restore all random streams afterwards, whatever the callbacks draw."""
        if self._calls:
            with _rng.preserved():
                self(*args, **kwargs)

    def __bool__(self) -> bool:
        return bool(self._calls)

    @functools.cached_property
    def _calls(self) -> list[Callable[..., None]]:
        calls = []
        for callback in self._named.values():
            for name in (self._name, _OLDER_NAMES.get(self._name, self._name)):
                if overrides(callback, name):
                    calls.append(_call(callback, name))
                    break
        return calls


class Callbacks:
    """All callbacks of one `fit()`, in order, with one `Hook` for each hook that runs for all of them at once."""

    def __init__(self, named: Mapping[str, PyTorchCallback]) -> None:
        if not isinstance(named, Mapping):
            raise TypeError(
                f"build_callbacks() returned {'None' if named is None else f'a {type(named).__name__}'}; "
                "expected a dict from name to callback."
            )
        for name, callback in named.items():
            if not isinstance(callback, PyTorchCallback):
                raise TypeError(
                    f"build_callbacks() returned a {type(callback).__name__} under {name!r}; "
                    "expected a subclass of pytorch.PyTorchCallback."
                )
        self.named = dict(named)
        self.on_checkpoint_load_start = Hook(self.named, PyTorchCallback.on_checkpoint_load_start)
        self.on_checkpoint_read_shard = Hook(self.named, PyTorchCallback.on_checkpoint_read_shard)
        self.on_training_start = Hook(self.named, PyTorchCallback.on_training_start)
        self.on_training_epoch_start = Hook(self.named, PyTorchCallback.on_training_epoch_start)
        self.on_training_epoch_end = Hook(self.named, PyTorchCallback.on_training_epoch_end)
        self.on_training_workload_end = Hook(self.named, PyTorchCallback.on_training_workload_end)
        self.on_validation_start = Hook(self.named, PyTorchCallback.on_validation_start)
        self.on_validation_epoch_start = Hook(self.named, PyTorchCallback.on_validation_epoch_start)
        self.on_validation_epoch_end = Hook(self.named, PyTorchCallback.on_validation_epoch_end)
        self.on_validation_end = Hook(self.named, PyTorchCallback.on_validation_end)
        self.on_checkpoint_save_start = Hook(self.named, PyTorchCallback.on_checkpoint_save_start)
        self.on_checkpoint_write_shard = Hook(self.named, PyTorchCallback.on_checkpoint_write_shard)
        self.on_checkpoint_upload_end = Hook(self.named, PyTorchCallback.on_checkpoint_upload_end)
        self._started: list[PyTorchCallback] = []
        if any(overrides(callback, "on_checkpoint_end") for callback in self.named.values()):
            warnings.warn(
                "on_checkpoint_end() is deprecated: override on_checkpoint_write_end() instead.",
                FutureWarning,
                stacklevel=3,
            )

    def start(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Run the startup hooks; callbacks whose startup succeeds get a shutdown later."""
        for callback in self.named.values():
            callback.on_trial_startup(first_batch_idx, checkpoint_uuid)
            self._started.append(callback)

    def shut_down(self) -> None:
        """Run the shutdown hooks of all that were started, last first; raise the first error after all ran."""
        first: BaseException | None = None
        while self._started:
            callback = self._started.pop()
            try:
                callback.on_trial_shutdown()
            except BaseException as failed:  # Ctrl-C ends one hook; the others still get theirs
                if first is not None:
                    logger.warning("%s.on_trial_shutdown() failed too.", type(callback).__name__, exc_info=True)
                first = first or failed
        if first is not None:
            raise first


def overrides(callback: PyTorchCallback, hook: str) -> bool:
    """Return whether this callback has its own version of a hook."""
    if hook in vars(callback):
        return True
    return getattr(type(callback), hook, None) is not getattr(PyTorchCallback, hook, None)


def _call(callback: PyTorchCallback, hook: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(callback, hook)
    if hook == "on_training_epoch_start" and not inspect.signature(method).parameters:

        def without_index(epoch_idx: int) -> None:  # noqa: ARG001 - what older callbacks do not take
            logger.warning(
                "%s.on_training_epoch_start() takes no epoch_idx; add the parameter.", type(callback).__name__
            )
            method()

        return without_index
    return method
