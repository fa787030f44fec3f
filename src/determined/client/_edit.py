"""Changing what is said of an experiment: its name, notes and labels, its place, and whether it is shown at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from determined.client import _store
from determined.client._session import Session
from determined.errors import InvalidValue, Refused

if TYPE_CHECKING:
    from determined.store.experiments import ExperimentRow


def checked_name(name: object) -> str:
    """The name, if it is one."""
    text = checked_text("name", name)
    if not text.strip():
        raise InvalidValue(f"An experiment is called something; {name!r} is no name. Give at least one character.")
    return text


def checked_text(what: str, given: object) -> str:
    """The text, if it is one."""
    if not isinstance(given, str):
        raise InvalidValue(f"An experiment's {what} is a text, not {given!r}.")
    return given


def project_id(session: Session, workspace_name: str, project_name: str) -> int:
    """The number of a project of a workspace."""
    from determined.store import workspaces

    with session.read() as conn:
        return workspaces.find_project(conn, workspace_name, project_name).id


def change(session: Session, experiment_id: int, *, labels: Any = None, **fields: Any) -> None:
    """Set fields of an experiment that is not archived.

    Args:
        session: Where.
        experiment_id: Which.
        labels: The new labels, or a function that makes them of the old ones.
        fields: Columns and their values.
    """
    from determined.store import experiments

    with session.write() as conn:
        row = experiments.get(conn, experiment_id)
        if row.archived:
            raise Refused(f"Experiment {experiment_id} is archived, so it is not edited. Unarchive it first.")
        if fields:
            experiments.update(conn, experiment_id, **fields)
        if labels is not None:
            experiments.set_labels(conn, experiment_id, labels(set(row.labels)) if callable(labels) else labels)


def set_archived(session: Session, experiment_id: int, archived: bool) -> None:
    """Hide an experiment that has ended from lists, or show it again."""
    from determined.store import experiments

    with session.write() as conn:
        row = experiments.get(conn, experiment_id)
        if row.state not in experiments.TERMINAL:
            raise Refused(f"Experiment {experiment_id} is {row.state}; only one that has ended can be archived.")
        experiments.update(conn, experiment_id, archived=archived)


def delete(session: Session, experiment_id: int) -> ExperimentRow:
    """Hide an experiment from everything, and return what is left of it; what was deleted long ago goes for good."""
    from determined.store import experiments

    with session.write() as conn:
        experiments.delete(conn, experiment_id)
        row = experiments.get(conn, experiment_id, deleted=True)
    _store.purge_quietly(session)
    return row


def undelete(session: Session, experiment_id: int) -> ExperimentRow:
    """Bring a deleted experiment back."""
    from determined.store import experiments

    with session.write() as conn:
        experiments.undelete(conn, experiment_id)
        return experiments.get(conn, experiment_id)
