"""`determined.experimental.core_v2`: one context per process, reached through this module's own attributes."""

from __future__ import annotations

import atexit
import sys
from typing import Any

from determined._info import ClusterInfo
from determined.core._checkpoint import CheckpointContext
from determined.core._context import Context
from determined.core._detached import Config, DefaultConfig, UnmanagedConfig, init_context
from determined.core._preempt import PreemptContext, PreemptMode
from determined.core._searcher import SearcherContext, SearcherContextMissing
from determined.core._train import TrainContext
from determined.core.ranks.distributed import DistributedContext
from determined.core.recording.tensorboard import TensorboardMode

__all__ = ["Config", "DefaultConfig", "UnmanagedConfig", "close", "init", "init_context", "url_reverse_webui_exp_view"]

train: TrainContext
checkpoint: CheckpointContext
distributed: DistributedContext
preempt: PreemptContext
searcher: SearcherContext | SearcherContextMissing
info: ClusterInfo | None

_SERVICES = ("train", "checkpoint", "distributed", "preempt", "searcher", "info")
_context: Context | None = None


def __getattr__(name: str) -> Any:
    if name in _SERVICES:
        raise AttributeError(
            f"core_v2.{name} is there after core_v2.init() and until core_v2.close(). "
            "Call core_v2.init(config=core_v2.Config(name=...)) first."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def init(
    *,
    config: Config | None = None,
    defaults: Config | None = None,
    unmanaged: Config | None = None,
    client: Any = None,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | dict[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> None:
    """Open this process's context: afterwards `core_v2.train` and the others work.

    An earlier context is closed first; this one is closed when the process ends, or by `close()`.

    Args:
        config: What the run says about itself.
        defaults: An older name of `config`; what `config` says comes first.
        unmanaged: Another one.
        client: Ignored: there is no master to connect to.
        distributed: How the ranks of a job find each other.
        checkpoint_storage: Where checkpoints go, as in `core.init()`.
        preempt_mode: Which ranks ask whether to stop.
        tensorboard_mode: Whether reported metrics become TensorBoard files by themselves.

    Example::

        from determined.experimental import core_v2

        core_v2.init(config=core_v2.Config(name="my run"))
        core_v2.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})
    """
    global _context
    close()
    _context = init_context(
        config=config,
        defaults=defaults,
        unmanaged=unmanaged,
        client=client,
        distributed=distributed,
        checkpoint_storage=checkpoint_storage,
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
    ).start()
    for name in _SERVICES:
        setattr(sys.modules[__name__], name, getattr(_context, name))
    atexit.register(close)


def close() -> None:
    """Close the context; harmless if there is none."""
    global _context
    atexit.unregister(close)
    context, _context = _context, None
    if context is not None:
        for name in _SERVICES:
            delattr(sys.modules[__name__], name)
        context.close()


def url_reverse_webui_exp_view() -> str:
    """Return an address to look at this run with a browser: the directory of its TensorBoard files."""
    if _context is None or _context._run is None:
        raise RuntimeError("core_v2.init() comes first: there is no run to look at yet.")
    return _context._run.tensorboard.as_uri()
