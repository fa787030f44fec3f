"""More of an experiment that is there: a fork, which is a new experiment, or a continuation of the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from determined import errors
from determined._redact import hidden_in
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.experiment_file import ConfigFile
from determined.experiment.config.layers import from_settings, merged
from determined.experiment.config.positions import located
from determined.experiment.config.problems import Problem, refusal
from determined.experiment.submission import secret_values, submit
from determined.experiment.submission.submit import SubmitRequest, Submitted

if TYPE_CHECKING:
    import sqlalchemy as sa

    from determined.store.database.connection import Store
    from determined.store.experiments import ExperimentRow

Config: TypeAlias = "str | Path | Mapping[str, Any] | ConfigFile"
ALL_OVER = ("random", "grid")  # whose unfinished trials run again, with the same values
PLACE = ("project", "workspace")


def fork(
    store: Store,
    experiment_id: int,
    owner: str,
    config: Config | None = None,
    settings: Sequence[str] = (),
    *,
    paused: bool = False,
) -> Submitted:
    """Submit an experiment with the code of another one, and its configuration or an edited one.

    Args:
        store: Where.
        experiment_id: The parent.
        owner: Who submits.
        config: A mapping or a file, instead of the parent's configuration. Secrets that are masked in it as they are
            shown for the parent are the parent's.
        settings: Each `key=value` of `--config`.
        paused: Leave it PAUSED.

    Raises:
        Refused: The parent was not submitted, so there is no copy of its code.

    Example::

        fork(store, 7, "ada", settings=["hyperparameters.lr=0.1"]).experiment_id
    """
    return submit.submit(store, fork_request(store, experiment_id, owner, config, settings, paused=paused))


def fork_request(
    store: Store,
    experiment_id: int,
    owner: str,
    config: Config | None = None,
    settings: Sequence[str] = (),
    *,
    paused: bool = False,
) -> SubmitRequest:
    """Return what a fork submits; the arguments are those of `fork`. `submit.check` checks it without writing."""
    from determined.store import experiments
    from determined.store.control import code

    with store.read() as conn:
        parent = experiments.get(conn, experiment_id)
        check_can_fork(parent)
        content = None if parent.code_snapshot_id is None else code.content(conn, parent.code_snapshot_id)
    file = _as_file(parent) if config is None else _with_secrets(submit.read_config(config), parent)
    request = SubmitRequest(file, owner, settings, paused=paused, parent_id=parent.id, code=content)
    checked = submit.checked_config(request)
    is_moved = any(getattr(checked, key) != ((parent.config or {}).get(key) or "") for key in PLACE)
    return request if is_moved else replace(request, project_id=parent.project_id)


def _with_secrets(file: ConfigFile, row: ExperimentRow) -> ConfigFile:
    """Return a file with the secrets of an experiment where they were left masked.

    Raises:
        ConfigError: Something is masked that is no secret of the experiment, or that is not known here.
    """
    masked = row.config or {}
    values = secret_values.unmasked(file.values, masked, secret_values.restore(masked, row.uuid))
    if missing := hidden_in(values):
        reason = f"is hidden here, and experiment {row.id} has no such secret to take over. Write the value itself."
        raise located(refusal([Problem(path, reason) for path in missing]), file.text, file.name)
    return replace(file, values=values)


def continue_(
    store: Store,
    experiment_id: int,
    config: Config | None = None,
    settings: Sequence[str] = (),
) -> Submitted:
    """Let an experiment that has ended run on: a single trial from its newest checkpoint, unfinished ones of a search.

    Args:
        store: Where.
        experiment_id: Which.
        config: A mapping or a file, with values to change; only of a single trial.
        settings: Each `key=value` of `--config`; only of a single trial.

    Raises:
        Refused: It cannot be continued: it has not ended, its search cannot go on, or nothing is left to train.

    Example::

        continue_(store, 7, settings=["max_restarts=1"])
    """
    from determined.experiment.controller import start
    from determined.store import experiments
    from determined.store.control import pending

    checked, changes = _checked_changes(store, experiment_id, config, settings)
    with store.write() as conn:
        row = experiments.get(conn, experiment_id)
        _check_is_over(conn, row)
        if changes:
            _change(conn, row, checked, changes)
        pending.append(conn, experiment_id, "CONTINUED")
        told = pending.append(conn, experiment_id, "REQUEST", {"action": "activate"})
    start.ensure(store)
    return Submitted(experiment_id, checked.warnings if changes else [], told)


def check_continuation(store: Store, experiment_id: int, config: Config | None = None) -> ExperimentConfig:
    """Return the configuration with which an experiment would be continued; nothing is written.

    Raises:
        Refused: It cannot be continued.
        ConfigError: It cannot be continued with these values.
    """
    from determined.store import experiments

    checked, _ = _checked_changes(store, experiment_id, config)
    with store.read() as conn:
        _check_is_over(conn, experiments.get(conn, experiment_id))
        submit.warm_started(conn, checked.effective()["searcher"])
    return checked


def _checked_changes(
    store: Store, experiment_id: int, config: Config | None, settings: Sequence[str] = ()
) -> tuple[ExperimentConfig, dict[str, Any]]:
    """Return the whole configuration, and what is new in it; nothing if that comes to the same."""
    from determined.store import experiments

    with store.read() as conn:
        row = experiments.get(conn, experiment_id)
    file = None if config is None else _with_secrets(submit.read_config(config), row)
    typed = [] if file is None else [file.values]
    changes = merged([from_settings(settings, row.config), *typed])
    _check_overrides(row, changes)
    kept = _as_file(row)
    request = SubmitRequest(replace(file or kept, values=merged([*typed, kept.values])), row.owner, settings)
    checked = submit.checked_config(request)
    submit.check_slots(store, checked, request)
    return checked, {} if checked.effective() == kept.values else changes


def check_can_fork(row: ExperimentRow) -> None:
    """Refuse if there is nothing of an experiment that could be submitted again."""
    if row.unmanaged:
        raise errors.Refused(
            f"Experiment {row.id} was not submitted, so there is no copy of its code to run again. "
            "Submit it with: det experiment create CONFIG DIRECTORY"
        )


def check_can_continue(conn: sa.Connection, row: ExperimentRow) -> None:
    """Refuse if an experiment cannot go on now, with the configuration that it has."""
    _check_overrides(row, {})
    _check_is_over(conn, row)


def _change(conn: sa.Connection, row: ExperimentRow, config: ExperimentConfig, changes: Mapping[str, Any]) -> None:
    """Write the new effective configuration; the text as it was submitted stays."""
    from determined.experiment.controller import history
    from determined.store import experiments

    effective = config.effective()
    effective["searcher"] = submit.warm_started(conn, effective["searcher"])
    named = {"name": config.name, "description": config.description or ""}
    history.replace_config(conn, row, effective)
    experiments.update(
        conn,
        row.id,
        searcher_metric=getattr(config.searcher, "metric", None),
        smaller_is_better=bool(getattr(config.searcher, "smaller_is_better", True)),
        **{key: value for key, value in named.items() if key in changes},
    )
    if "labels" in changes:
        experiments.set_labels(conn, row.id, config.labels)
    secret_values.keep(effective, row.uuid)


def _config(row: ExperimentRow) -> dict[str, Any]:
    """Return the experiment's configuration with its secrets.

    Raises:
        Refused: Some of them are not known here.
    """
    config = secret_values.restore(row.config or {}, row.uuid)
    if missing := hidden_in(config):
        raise errors.Refused(
            f"The configuration of experiment {row.id} holds secrets not known here: {', '.join(missing[:5])}. "
            "Submit it again with its own file: det experiment create CONFIG DIRECTORY"
        )
    return config


def _as_file(row: ExperimentRow) -> ConfigFile:
    values = _config(row)
    return ConfigFile(f"the configuration of experiment {row.id}", submit.written(values), values)


def _check_is_over(conn: sa.Connection, row: ExperimentRow) -> None:
    from determined.store import experiments
    from determined.store.control import pending

    if row.archived:
        raise errors.Refused(f"Experiment {row.id} is archived. Unarchive it first.")
    waiting = [event for event in pending.read(conn, experiment_id=row.id) if event.kind == "CONTINUED"]
    if row.state not in experiments.TERMINAL or waiting:
        state = "being continued already" if waiting else row.state
        raise errors.Refused(f"Experiment {row.id} is {state}; only one that has ended can be continued.")
    counts = experiments.trial_counts(conn, [row.id])[row.id]
    if _method(row.config) in ALL_OVER and counts and counts.keys() == {"COMPLETED"}:
        raise errors.Refused(f"All trials of experiment {row.id} are COMPLETED, so nothing is left to continue.")


def _check_overrides(row: ExperimentRow, changes: Mapping[str, Any]) -> None:
    if row.unmanaged:
        raise errors.Refused(
            f"Experiment {row.id} was not submitted, so no controller can continue it. Start its script again: with "
            'fit(latest_checkpoint="latest") it goes on from its newest checkpoint.'
        )
    method = _method(row.config)
    if method != "single" and method not in ALL_OVER:
        raise errors.Refused(
            f"Experiment {row.id} is a search by {method}, which cannot be continued: its decisions were made with all "
            f"trials in view. Start it again with: det experiment fork {row.id}"
        )
    if method in ALL_OVER and changes:
        raise errors.Refused(
            f"Experiment {row.id} is a search by {method}, which is continued with the configuration it has. "
            f"Leave out --config and --config-file, or change a copy of it: det experiment fork {row.id} --config ..."
        )
    for key in PLACE:
        if key in changes and changes[key] != (row.config or {}).get(key):
            raise errors.Refused(f"{key} stays as it is when an experiment is continued. Use: det experiment move")
    wanted = _method(changes, default=method)
    if wanted != method:
        raise errors.Refused(
            f"searcher.name is {wanted}, and experiment {row.id} is continued with {method}. "
            f"For another search use: det experiment fork {row.id} --config searcher.name={wanted}"
        )


def _method(config: Mapping[str, Any] | None, default: str = "") -> str:
    searcher = (config or {}).get("searcher")
    return str(searcher.get("name", default)) if isinstance(searcher, Mapping) else default
