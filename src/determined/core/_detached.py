"""init_context() for `experimental.core_v2`: runs that describe themselves, not started by an experiment."""

from __future__ import annotations

import dataclasses
import secrets
import warnings
from typing import Any

from determined._home import data_directory
from determined._info import ClusterInfo, TrialInfo, get_cluster_info
from determined.core._context import Context, _build, _describe, _get_storage_manager, _name_run
from determined.core._preempt import PreemptMode
from determined.core.ranks.distributed import DistributedContext
from determined.core.recording.link import Attached
from determined.core.recording.run_description import describe, storage_config
from determined.core.recording.store_link import choose_link
from determined.core.recording.tensorboard import TensorboardMode


@dataclasses.dataclass
class Config:
    """The description of a run; everything is optional.

    Example::

        core_v2.init(config=core_v2.Config(name="my run", hparams={"lr": 0.1}))
    """

    name: str | None = None
    hparams: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    description: str | None = None
    labels: list[str] | None = None
    workspace: str | None = None
    project: str | None = None
    checkpoint_storage: str | dict[str, Any] | None = None
    searcher: dict[str, Any] | None = None
    external_experiment_id: str | None = None
    external_trial_id: str | None = None


class DefaultConfig(Config):
    """The older name of `Config`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(f"{type(self).__name__} is now core_v2.Config.", FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class UnmanagedConfig(DefaultConfig):
    """The older name of `Config`, for its external ids."""


def init_context(
    *,
    config: Config | None = None,
    defaults: Config | None = None,
    unmanaged: Config | None = None,
    client: Any = None,  # noqa: ARG001 - scripts pass the connection to a master; there is none to connect to
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | dict[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> Context:
    """Build a context for a run that describes itself: its output is recorded too, and how it ended.

    On a managed trial `config` is ignored, and this is `core.init()`.
    """
    cluster = get_cluster_info()
    described = _combine(config, defaults, unmanaged)
    if cluster is None and described is None:
        raise ValueError("A run outside an experiment describes itself: pass config=core_v2.Config(name=...).")
    described = described or Config()
    if described.external_trial_id is not None and described.external_experiment_id is None:
        raise NotImplementedError("external_trial_id needs an external_experiment_id beside it.")
    ranks = distributed or DistributedContext()
    chosen = checkpoint_storage or described.checkpoint_storage
    run, link, description = None, None, None
    if cluster is None:
        own_config = _as_config(described)
        run = _name_run(ranks)
        description = describe(
            config=own_config,
            hparams=described.hparams,
            storage=storage_config(chosen, data_directory() / "checkpoints"),
            slots=ranks.size,
            is_detached=True,
        )
        link = choose_link(run, description, ranks.rank)
        attached = ranks.run_on_chief(link.attach) or Attached(0, 0, 0)  # 0 is "this run", if it cannot be recorded
        info = _as_info(own_config, described, attached)
    else:
        info = cluster
        own_config = cluster.trial._config if cluster.task_type == "TRIAL" else {}
        description = _describe(own_config, chosen, ranks, cluster)
    return _build(
        distributed=ranks,
        storage=_get_storage_manager(chosen),
        preempt_mode=PreemptMode(preempt_mode),
        tensorboard_mode=TensorboardMode(tensorboard_mode),
        info=info,
        searcher_config=own_config.get("searcher"),
        description=description,
        run=run,
        link=link,
        watches_exit=True,
    )


def _combine(*given: Config | None) -> Config | None:
    """Merge descriptions; of each field the first value that is set wins."""
    present = [one for one in given if one is not None]
    if not present:
        return None
    names = [field.name for field in dataclasses.fields(Config)]
    return Config(**{n: next((v for one in present if (v := getattr(one, n)) is not None), None) for n in names})


def _as_config(described: Config) -> dict[str, Any]:
    """Return the description as an experiment config."""
    said = {field.name: getattr(described, field.name) for field in dataclasses.fields(Config)}
    return {
        **{key: value for key, value in said.items() if value is not None},
        "name": described.name or f"unmanaged-{secrets.token_hex(4)}",
        "searcher": described.searcher or {"name": "single", "metric": "unmanaged"},
    }


def _as_info(config: dict[str, Any], described: Config, attached: Attached) -> ClusterInfo:
    trial = TrialInfo(
        attached.trial_id,
        attached.experiment_id,
        0,
        dict(described.hparams or {}),
        config,
        _steps_completed=attached.steps_completed,
        _trial_run_id=attached.attempt,
    )
    return ClusterInfo(
        task_type="TRIAL",
        task_id=config["name"],
        slot_ids=[0],
        _trial_info=trial,
        _latest_checkpoint=attached.latest_checkpoint,
    )
