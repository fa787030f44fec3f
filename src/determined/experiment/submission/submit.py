"""Submit an experiment: check everything that can be checked, then write its rows in one transaction.

`det e create`, `client.create_experiment()` and forks come through here. Nothing is created unless all checks passed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined import errors
from determined._home import data_directory
from determined.experiment import slots
from determined.experiment.config import experiment_file
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.experiment_file import ConfigFile
from determined.experiment.config.layers import from_settings, merged
from determined.experiment.config.positions import located
from determined.experiment.config.searcher import Custom
from determined.experiment.search.outside import is_outside
from determined.experiment.submission import code_archive, entry_point, secret_values, templates
from determined.experiment.submission.code_archive import CodeArchive

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.database.connection import Store

SUBMITTED = "SUBMITTED"
"""The event that says which versions an experiment was submitted with."""
DEFAULTS = "defaults.yaml"  # in the data directory: the user's own, below templates and above ours


@dataclass(frozen=True)
class SubmitRequest:
    """What a person asks for.

    Attributes:
        file: The experiment file, as it was read.
        owner: Who submits.
        settings: Each `key=value` of `--config`.
        directory: The context directory; None if there is none.
        includes: More files and directories.
        template: The name of a template, or the path of a file.
        project_id: Where to list it; the configuration's own place by default.
        paused: Leave it PAUSED.
        is_test: Archive it at once, as a test.
        parent_id: The experiment that it is a fork of.
        code: The code, if it is not taken from `directory`: a snapshot that is in the store already.
    """

    file: ConfigFile
    owner: str
    settings: Sequence[str] = ()
    directory: str | os.PathLike[str] | None = None
    includes: Sequence[str | os.PathLike[str]] = ()
    template: str | None = None
    project_id: int | None = None
    paused: bool = False
    is_test: bool = False
    parent_id: int | None = None
    code: bytes | None = None


@dataclass(frozen=True)
class Submitted:
    """What came of it: the experiment's id, what its user should know, and the event that waits for the controller."""

    experiment_id: int
    warnings: list[str] = field(default_factory=list)
    pending_id: int = 0


@dataclass(frozen=True)
class Ready:
    """A request that passed all checks: its configuration, that as text, its code, what its user should know."""

    config: ExperimentConfig
    text: str
    archive: CodeArchive | None
    warnings: list[str]


def submit(store: Store, request: SubmitRequest) -> Submitted:
    """Create an experiment, and see to it that a controller runs.

    Raises:
        ConfigError: The configuration, the code or what it runs cannot work. Nothing was created.
        NotFound: The template, the project, or what it starts from is not there. Nothing was created.

    Example::

        submit(store, SubmitRequest(experiment_file.read("e.yaml"), "ada", directory="model")).experiment_id
    """
    from determined.experiment.controller import start

    checked = check(store, request)
    made = _write(store, request, checked)
    start.ensure(store)
    return made


def read_config(config: str | Path | Mapping[str, Any] | ConfigFile) -> ConfigFile:
    """Return a configuration as a file: one that is read, or a mapping that is written out.

    Example::

        read_config({"name": "mnist"}).text  # "name: mnist\\n"
    """
    if isinstance(config, ConfigFile):
        return config
    if isinstance(config, (str, Path)):
        return experiment_file.read(config)
    if isinstance(config, Mapping):
        return ConfigFile("config", written(config), dict(config))
    raise ValueError(f"config is a {type(config).__name__}. Pass the path of a YAML file, or a dict.")


def written(values: Mapping[str, Any]) -> str:
    """Return a configuration as YAML text."""
    import yaml

    try:
        return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:  # values of other types, which the check of the configuration names
        return ""


def checked_config(request: SubmitRequest, below: Sequence[Mapping[str, Any]] = ()) -> ExperimentConfig:
    """Return the configuration of a request: its layers merged and checked.

    Args:
        request: What was asked for.
        below: Layers below the template, such as defaults of a workspace.
    """
    values = request.file.values
    layers = [values] if request.template is None else [values, templates.find(request.template).values]
    typed = from_settings(request.settings, merged(layers))
    try:
        return ExperimentConfig.parse(typed, *layers, *below, *_user_defaults())
    except errors.ConfigError as error:
        raise located(error, request.file.text, request.file.name, typed) from None


def check(store: Store, request: SubmitRequest) -> Ready:
    """Return what would be submitted; nothing is written.

    Raises:
        ConfigError: The configuration, the code or what it runs cannot work.
        NotFound: The template, the project, or what it starts from is not there.

    Example::

        check(store, SubmitRequest(experiment_file.read("e.yaml"), "ada", directory="model")).warnings
    """
    config = checked_config(request)
    with store.read() as conn:
        if defaults := _workspace_defaults(conn, config, request.project_id):
            config = checked_config(request, [defaults])
        warm_started(conn, config.effective()["searcher"])
    advice = check_slots(store, config, request)
    archive = _packed(request, config, store)
    _check_entry_point(config, archive, request)
    warnings = [*request.file.notes, *config.warnings, *advice, *(archive.warnings if archive else ())]
    text = request.file.text
    if request.settings:
        text = written(merged([from_settings(request.settings, request.file.values), request.file.values]))
    return Ready(config, text, archive, warnings)


def _user_defaults() -> list[dict[str, Any]]:
    path = data_directory() / DEFAULTS
    return [experiment_file.read(path).values] if path.is_file() else []


def _workspace_defaults(conn: sa.Connection, config: ExperimentConfig, project_id: int | None) -> dict[str, Any]:
    """Return the layer that the workspace adds: where its checkpoints go."""
    from determined.store import workspaces

    project = workspaces.get_project(conn, _project(conn, config, project_id))
    storage = workspaces.find_workspace(conn, project.workspace_id).checkpoint_storage
    return {"checkpoint_storage": storage} if storage else {}


def _project(conn: sa.Connection, config: ExperimentConfig, project_id: int | None) -> int:
    """Return the id of the project that the experiment is listed in."""
    from determined.store import workspaces

    if project_id is not None:
        project = workspaces.get_project(conn, project_id)
    elif config.workspace:
        try:
            project = workspaces.find_project(conn, config.workspace, config.project)
        except errors.NotFound:
            raise errors.NotFound(_missing_project(conn, config)) from None
    else:
        return 1
    if project.archived or workspaces.find_workspace(conn, project.workspace_id).archived:
        raise errors.Refused(f"The project {project.name} is archived, so nothing is added to it. Unarchive it first.")
    return project.id


def _missing_project(conn: sa.Connection, config: ExperimentConfig) -> str:
    from determined.store import workspaces

    place = f"{config.workspace}/{config.project}"
    make = f"det project create {config.workspace!r} {config.project!r}"
    if config.workspace not in [workspace.name for workspace in workspaces.list_workspaces(conn)]:
        return (
            f"There is no workspace {config.workspace}, so no project {place}. "
            f"Make them with: det workspace create {config.workspace!r} && {make}"
        )
    return f"There is no project {place}. Make it with: {make}"


def check_slots(store: Store, config: ExperimentConfig, request: SubmitRequest) -> list[str]:
    """Refuse what no slot could ever run; return what the user should know about those that there are."""
    from determined.experiment.launchers import choice

    # One slot is on every machine, unless it was set otherwise; looking for GPUs takes a process.
    resources, is_set = config.resources, os.environ.get("DET_SLOTS") or os.environ.get("DET_LAUNCHER")
    if resources.slots_per_trial > 1 or resources.resource_pool or is_set:
        try:
            return slots.check(config, choice.find_slots(store))
        except errors.ConfigError as error:
            if not error.problems:
                raise
            raise located(error, request.file.text, request.file.name) from None
    return []


def _packed(request: SubmitRequest, config: ExperimentConfig, store: Store) -> CodeArchive | None:
    if request.code is not None:
        return CodeArchive(request.code, code_archive.paths_in(request.code))
    if request.directory is None and not request.includes:
        return None
    ours = [Path(place) for place in (getattr(config.checkpoint_storage, "container_path", None),) if place]
    if store.path is not None:
        ours += [store.path.with_name(store.path.name + end) for end in ("", "-wal", "-shm")]
    return code_archive.pack(request.directory, request.includes, without=ours)


def _check_entry_point(config: ExperimentConfig, archive: CodeArchive | None, request: SubmitRequest) -> None:
    paths, withheld = (archive.paths, archive.withheld) if archive else ((), ())
    where = "no directory was given" if archive is None else str(request.directory or "the included files")
    where = "the code of the parent" if request.code is not None else where
    mounted = [mount.container_path for mount in config.bind_mounts if mount.container_path]
    if config.entrypoint is not None:
        entry_point.check(config.entrypoint, paths, where=where, withheld=withheld, mounted=mounted)
    method = getattr(config.searcher, "method", None)
    if isinstance(method, str):
        entry_point.check_class("searcher.method", method, paths, where=where, withheld=withheld)
    elif isinstance(config.searcher, Custom) and not is_outside(config.searcher.model_dump()):
        raise errors.ConfigError(
            "searcher.name is custom, and nothing says which method decides. Name a class in the code, as in method: "
            '"my_search:MySearch", or run a method of this process: determined.searcher.LocalSearchRunner.'
        )


def _write(store: Store, request: SubmitRequest, checked: Ready) -> Submitted:
    """Write all rows, or none; the file of secrets is there before the transaction ends."""
    from determined.experiment.attempt import probe
    from determined.store import events, experiments
    from determined.store.control import code, pending

    config = checked.config
    effective = config.effective()
    uuid = None
    try:
        with store.write() as conn:
            effective["searcher"] = warm_started(conn, effective["searcher"])
            ident = experiments.create(
                conn,
                name=config.name,
                config=effective,
                owner=request.owner,
                original_config=checked.text,
                labels=config.labels,
                parent_id=request.parent_id,
                project_id=_project(conn, config, request.project_id),
                searcher_metric=getattr(config.searcher, "metric", None),
                smaller_is_better=bool(getattr(config.searcher, "smaller_is_better", True)),
                description=config.description or "",
                code_snapshot_id=code.add(conn, checked.archive.content).id if checked.archive else None,
                warnings=checked.warnings,
            )
            if request.is_test:
                experiments.update(conn, ident, archived=True)
            events.append(conn, ident, SUBMITTED, {"versions": probe.versions()})
            pending.append(conn, ident, "STARTED")
            if not request.paused:
                pending.append(conn, ident, "REQUEST", {"action": "activate"})
            uuid = experiments.get(conn, ident).uuid
            secret_values.keep(effective, uuid)
    except BaseException:
        if uuid is not None:
            secret_values.forget(uuid)
        raise
    return Submitted(ident, checked.warnings)


def warm_started(conn: sa.Connection, searcher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section with the checkpoint that trials start from; a source trial becomes its newest checkpoint."""
    from determined.store import checkpoints, trials

    trial_id, uuid = searcher.get("source_trial_id"), searcher.get("source_checkpoint_uuid")
    if trial_id is not None:
        trials.get(conn, trial_id)
        newest = checkpoints.newest(conn, trial_id)
        if newest is None:
            raise errors.NotFound(
                f"searcher.source_trial_id is {trial_id}, and that trial has no complete checkpoint to start from. "
                f"See: det trial describe {trial_id}"
            )
        return {**searcher, "source_trial_id": None, "source_checkpoint_uuid": newest.uuid}
    if uuid is not None:
        found = checkpoints.get(conn, uuid)
        if found.state != "COMPLETED":
            raise errors.NotFound(
                f"searcher.source_checkpoint_uuid is {uuid}, which is {found.state}, so its files are not all there. "
                "List those that are with: det checkpoint list"
            )
    return dict(searcher)
