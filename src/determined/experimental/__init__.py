"""Old import paths that still work; nothing new is written here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.client import *  # noqa: F403 - what `__getattr__` finds
    from determined.pytorch import PyTorchTrial


def test_one_batch(
    trial_class: type[PyTorchTrial],
    config: dict[str, Any] | None = None,  # noqa: PT028 - no test, for all its name
) -> None:
    """Train one batch, validate one and save, to see whether a trial works.

    Args:
        trial_class: The trial's class.
        config: An experiment config; its `hyperparameters` are the trial's.

    Example::

        determined.experimental.test_one_batch(MyTrial, {"hyperparameters": {"lr": 0.1}})
    """
    from determined import pytorch

    hparams = (config or {}).get("hyperparameters")
    with pytorch.init(hparams=hparams, exp_conf=config, enable_tensorboard_logging=False) as context:
        trainer = pytorch.Trainer(trial_class(context), context)
        trainer.fit(max_length=pytorch.Batch(1), test_mode=True)


test_one_batch.__test__ = False  # type: ignore[attr-defined]  # its name is older than pytest's habits


def __getattr__(name: str) -> Any:
    """Return what `determined.client` calls `name`, so that `from determined.experimental import Determined` works."""
    from determined import client

    if name in client.__all__:
        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
