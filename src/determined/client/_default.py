"""The functions of `determined.client`: those of a `Determined` that is made when the first of them is called."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from determined._home import data_directory
from determined.client._checkpoint import Checkpoint
from determined.client._determined import Determined
from determined.client._enums import ExperimentSortBy, ExperimentState, ModelSortBy, OrderBy
from determined.client._experiment import Experiment
from determined.client._listing import Listing
from determined.client._metrics import TrialMetrics
from determined.client._model import Model
from determined.client._trial import Trial
from determined.client._workspace import Workspace

_lock = threading.Lock()
_logged_in: Determined | None = None
_local: tuple[tuple[str, str], Determined] | None = None  # which place is the default one, and its client


def login(
    master: str | None = None,
    user: str | None = None,
    password: str | None = None,
    cert_path: str | None = None,
    cert_name: str | None = None,
    noverify: bool = False,
    *,
    store: str | os.PathLike[str] | None = None,
) -> None:
    """Choose the store that the functions of this module use. Optional: by default it is the one of this machine.

    Args:
        master: A store, for older scripts.
        user: Who works here, for what is made.
        password: Ignored, like the next three: a store needs no login of ours.
        cert_path: Ignored.
        cert_name: Ignored.
        noverify: Ignored.
        store: The store: a file, or `postgresql://...`.

    Raises:
        ValueError: It was called before. Use a `Determined` of its own for a second store.

    Example::

        client.login(store="postgresql://lab/runs")
        client.list_experiments()
    """
    global _logged_in
    with _lock:
        if _logged_in is not None:
            raise ValueError("login() was called before. For another store use Determined(store=...) and its methods.")
        _logged_in = Determined(master, user, password, cert_path, cert_name, noverify, store=store)


def connect(store: str | os.PathLike[str] | None = None) -> Determined:
    """A client of a store; without one, that of the functions of this module.

    Example::

        connect().list_experiments()
    """
    return _default() if store is None else Determined(store=store)


def _default() -> Determined:
    global _local
    with _lock:
        if _logged_in is not None:
            return _logged_in
        place = (os.environ.get("DET_STORE", ""), str(data_directory()))
        if _local is None or _local[0] != place:  # a notebook may set DET_STORE in between
            if _local is not None:
                _local[1].close()  # what came from it opens it again when it is used
            _local = (place, Determined())
        return _local[1]


def create_experiment(
    config: str | Path | dict[str, Any],
    model_dir: str | os.PathLike[str] | None = None,
    includes: Sequence[str | os.PathLike[str]] | None = None,
    project_id: int | None = None,
    template: str | None = None,
    *,
    paused: bool = False,
) -> Experiment:
    """Submit an experiment; see `Determined.create_experiment`."""
    return _default().create_experiment(config, model_dir, includes, project_id, template, paused=paused)


def get_experiment(experiment_id: int) -> Experiment:
    """One experiment.

    Example::

        get_experiment(7).top_checkpoint().download()
    """
    return _default().get_experiment(experiment_id)


def list_experiments(
    sort_by: ExperimentSortBy | None = None,
    order_by: OrderBy | None = None,
    experiment_ids: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    users: Sequence[str] | None = None,
    states: Sequence[ExperimentState | str] | None = None,
    name: str | None = None,
    project_id: int | None = None,
    *,
    archived: bool | None = None,
    deleted: bool = False,
    limit: int | None = None,
    offset: int = 0,
) -> Listing[Experiment]:
    """Experiments that fit all that is given; see `Determined.list_experiments`.

    Example::

        list_experiments(labels=["cifar"], states=["COMPLETED"]).to_pandas()
    """
    return _default().list_experiments(
        sort_by,
        order_by,
        experiment_ids,
        labels,
        users,
        states,
        name,
        project_id,
        archived=archived,
        deleted=deleted,
        limit=limit,
        offset=offset,
    )


def get_trial(trial_id: int) -> Trial:
    """One trial.

    Example::

        get_trial(12).metrics("validation").to_pandas()
    """
    return _default().get_trial(trial_id)


def get_checkpoint(uuid: str) -> Checkpoint:
    """One checkpoint, by its id or by as much of its beginning as only it has.

    Example::

        get_checkpoint("f57e2b").download()
    """
    return _default().get_checkpoint(uuid)


def iter_trials_metrics(trial_ids: Sequence[int], group: str) -> Iterator[TrialMetrics]:
    """The reports of several trials, by trial and in order of steps.

    Example::

        for report in iter_trials_metrics([1, 2], "validation"):
            print(report.trial_id, report.steps_completed, report.metrics)
    """
    return _default().iter_trials_metrics(trial_ids, group)


def create_model(
    name: str,
    description: str = "",
    metadata: dict[str, Any] | None = None,
    labels: Sequence[str] | None = None,
    workspace_name: str | None = None,
) -> Model:
    """Add a model to the registry; see `Determined.create_model`.

    Example::

        create_model("digits").register_version(checkpoint.uuid)
    """
    return _default().create_model(name, description, metadata, labels, workspace_name)


def get_model(identifier: str | int) -> Model:
    """A model by its name or its id.

    Example::

        get_model("digits").get_version().checkpoint.download()
    """
    return _default().get_model(identifier)


def list_models(
    sort_by: ModelSortBy = ModelSortBy.NAME,
    order_by: OrderBy = OrderBy.ASC,
    name: str | None = None,
    description: str | None = None,
    model_id: int | None = None,
    workspace_names: Sequence[str] | None = None,
    workspace_ids: Sequence[int] | None = None,
) -> Listing[Model]:
    """Models that fit all that is given; see `Determined.list_models`.

    Example::

        list_models(name="digit").to_pandas()
    """
    return _default().list_models(sort_by, order_by, name, description, model_id, workspace_names, workspace_ids)


def get_model_labels() -> list[str]:
    """The labels of all models, the most used first.

    Example::

        get_model_labels()[:3]
    """
    return _default().get_model_labels()


def get_workspace(name: str) -> Workspace:
    """A workspace by its name.

    Example::

        get_workspace("vision").list_projects()
    """
    return _default().get_workspace(name)


def list_workspaces() -> Listing[Workspace]:
    """All workspaces, the oldest first.

    Example::

        [workspace.name for workspace in list_workspaces()]
    """
    return _default().list_workspaces()


def create_workspace(name: str) -> Workspace:
    """Add a workspace.

    Example::

        create_workspace("vision").create_project("cifar")
    """
    return _default().create_workspace(name)


def delete_workspace(name: str) -> None:
    """Remove a workspace and its projects; refused while something is filed in it.

    Example::

        delete_workspace("vision")
    """
    _default().delete_workspace(name)


# What older scripts call these.
get_models = list_models
stream_trials_metrics = iter_trials_metrics


def stream_trials_training_metrics(trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
    """Return the training reports of several trials: `iter_trials_metrics(trial_ids, "training")`."""
    return _default().stream_trials_training_metrics(trial_ids)


def stream_trials_validation_metrics(trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
    """Return the validation reports of several trials: `iter_trials_metrics(trial_ids, "validation")`."""
    return _default().stream_trials_validation_metrics(trial_ids)
