"""The model registry: named models, and checkpoints that are their versions and therefore stay."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from determined import errors
from determined.store import checkpoints, rows
from determined.store.messages import now
from determined.store.schema import model_versions, models, workspaces

_LISTING = "det model ls"


@dataclasses.dataclass(frozen=True)
class ModelRow:
    """A model."""

    id: int
    name: str
    description: str
    notes: str
    metadata: dict[str, Any]
    labels: list[str]
    workspace_id: int
    owner: str
    archived: bool
    creation_time: datetime.datetime
    last_updated_time: datetime.datetime
    num_versions: int


@dataclasses.dataclass(frozen=True)
class ModelVersionRow:
    """A version of a model: a checkpoint with a number."""

    id: int
    model_id: int
    version: int
    checkpoint_uuid: str
    name: str
    comment: str
    notes: str
    metadata: dict[str, Any]
    labels: list[str]
    owner: str
    creation_time: datetime.datetime
    last_updated_time: datetime.datetime


def create(
    conn: sa.Connection,
    name: str,
    *,
    owner: str,
    description: str = "",
    metadata: dict[str, Any] | None = None,
    labels: Sequence[str] = (),
    workspace_id: int = 1,
) -> ModelRow:
    """Add a model without versions.

    Raises:
        InvalidValue: The name is blank, only digits, or has two spaces in a row, a `/` or a `\\`.
        Refused: There is a model of that name.
    """
    check_name(name)
    if conn.scalar(sa.select(models.c.id).where(models.c.name == name)):
        raise errors.Refused(f"There is a model {name!r} already. Add a version to it, or choose another name.")
    moment = now()
    row = {
        "name": name,
        "description": description,
        "metadata": metadata or {},
        "labels": list(labels),
        "workspace_id": workspace_id,
        "owner": owner,
        "creation_time": moment,
        "last_updated_time": moment,
    }
    return get(conn, rows.insert(conn, models, row))


def check_name(name: str) -> None:
    """Refuse names that a command line or an address could not tell from something else."""
    if not name.strip() or "  " in name or "/" in name or "\\" in name or name.isdigit():
        rule = "not blank, no two spaces in a row, no / or \\, and not only digits"
        raise errors.InvalidValue(f"{name!r} cannot name a model: {rule}.")


def get(conn: sa.Connection, identifier: str | int) -> ModelRow:
    """Return one model, by its name or its id."""
    column = models.c.id if isinstance(identifier, int) else models.c.name
    row = conn.execute(_query().where(column == identifier)).mappings().one_or_none()
    return rows.build(ModelRow, rows.required(row, "model", identifier, _LISTING))


def find(
    conn: sa.Connection,
    *,
    name: str | None = None,
    description: str | None = None,
    model_id: int | None = None,
    workspace_ids: Sequence[int] | None = None,
    archived: bool | None = None,
    sort_by: str = "name",
    descending: bool = False,
) -> list[ModelRow]:
    """Return the models that fit; `name` and `description` are parts of them, whatever their case."""
    query = _query()
    if name is not None:
        query = query.where(models.c.name.icontains(name, autoescape=True))
    if description is not None:
        query = query.where(models.c.description.icontains(description, autoescape=True))
    if model_id is not None:
        query = query.where(models.c.id == model_id)
    if workspace_ids is not None:
        query = query.where(models.c.workspace_id.in_(workspace_ids))
    if archived is not None:
        query = query.where(models.c.archived.is_(archived))
    query = query.order_by(*rows.ordering(_SORTABLE, sort_by, descending, models.c.id))
    return [rows.build(ModelRow, row) for row in conn.execute(query).mappings()]


def labels_in_use(conn: sa.Connection) -> list[str]:
    """Return the labels of all models, the most used first."""
    counted = Counter(label for labels in conn.scalars(sa.select(models.c.labels)) for label in labels)
    return [label for label, _ in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))]


def update(conn: sa.Connection, model_id: int, **fields: Any) -> None:
    """Set `name`, `description`, `notes`, `metadata`, `labels`, `workspace_id` or `archived`."""
    known = frozenset({"name", "description", "notes", "metadata", "labels", "workspace_id", "archived"})
    rows.check_fields("a model", fields, known)
    found = get(conn, model_id)
    if found.archived and "archived" not in fields:
        raise errors.Refused(f"Model {found.name!r} is archived. Unarchive it first.")
    if "name" in fields and fields["name"] != found.name:
        check_name(fields["name"])
        if conn.scalar(sa.select(models.c.id).where(models.c.name == fields["name"])):
            raise errors.Refused(f"There is a model {fields['name']!r} already.")
    conn.execute(models.update().where(models.c.id == model_id).values(fields | {"last_updated_time": now()}))


def delete(conn: sa.Connection, model_id: int) -> None:
    """Remove a model and its versions; the checkpoints stay, and may be removed from now on."""
    get(conn, model_id)
    conn.execute(models.delete().where(models.c.id == model_id))


def register(
    conn: sa.Connection,
    model_id: int,
    checkpoint_uuid: str,
    *,
    owner: str,
    name: str = "",
    comment: str = "",
    notes: str = "",
    metadata: dict[str, Any] | None = None,
    labels: Sequence[str] = (),
) -> ModelVersionRow:
    """Make a complete checkpoint the next version of a model. Numbers of removed versions do not come back."""
    taken = sa.select(models.c.next_version).where(models.c.id == model_id).with_for_update()
    number = rows.required(conn.scalar(taken), "model", model_id, _LISTING)
    found = get(conn, model_id)
    if found.archived:
        raise errors.Refused(f"Model {found.name!r} is archived. Unarchive it first.")
    checkpoint = checkpoints.get(conn, checkpoint_uuid)
    if checkpoint.state != "COMPLETED":
        raise errors.Refused(
            f"Checkpoint {checkpoint_uuid} is {checkpoint.state}; only COMPLETED ones can be registered."
        )
    moment = now()
    row = {
        "model_id": model_id,
        "version": number,
        "checkpoint_uuid": checkpoint_uuid,
        "owner": owner,
        "name": name,
        "comment": comment,
        "notes": notes,
        "metadata": metadata or {},
        "labels": list(labels),
        "creation_time": moment,
        "last_updated_time": moment,
    }
    conn.execute(model_versions.insert().values(row))
    fields = {"next_version": number + 1, "last_updated_time": moment}
    conn.execute(models.update().where(models.c.id == model_id).values(fields))
    return get_version(conn, model_id, number)


def get_version(conn: sa.Connection, model_id: int, version: int) -> ModelVersionRow:
    """Return one version by its number."""
    one = (model_versions.c.model_id == model_id, model_versions.c.version == version)
    row = conn.execute(sa.select(model_versions).where(*one)).mappings().one_or_none()
    if row is None:
        name = get(conn, model_id).name
        raise errors.NotFound(f"Model {name!r} has no version {version}. See which: det model list-versions {name!r}")
    return ModelVersionRow(**row)


def versions(conn: sa.Connection, model_id: int, *, descending: bool = True) -> list[ModelVersionRow]:
    """Return the versions of a model, the newest first."""
    column = model_versions.c.version
    query = sa.select(model_versions).where(model_versions.c.model_id == model_id)
    found = conn.execute(query.order_by(column.desc() if descending else column.asc())).mappings()
    return [ModelVersionRow(**row) for row in found]


def versions_of_checkpoint(conn: sa.Connection, checkpoint_uuid: str) -> list[ModelVersionRow]:
    """Return what a checkpoint is registered as."""
    query = sa.select(model_versions).where(model_versions.c.checkpoint_uuid == checkpoint_uuid)
    return [ModelVersionRow(**row) for row in conn.execute(query.order_by(model_versions.c.id)).mappings()]


def registered(conn: sa.Connection, checkpoint_uuids: Sequence[str]) -> dict[str, list[tuple[str, int]]]:
    """Return what each of these checkpoints is registered as, by model and version; those that are not are left out."""
    found: dict[str, list[tuple[str, int]]] = {}
    column = model_versions.c
    for some in rows.chunks(checkpoint_uuids):
        query = sa.select(column.checkpoint_uuid, models.c.name, column.version).join(models)
        for uuid, name, version in conn.execute(query.where(column.checkpoint_uuid.in_(some)).order_by(column.id)):
            found.setdefault(uuid, []).append((name, version))
    return found


def update_version(conn: sa.Connection, model_id: int, version: int, **fields: Any) -> None:
    """Set `name`, `comment`, `notes`, `metadata` or `labels`."""
    rows.check_fields("a version", fields, frozenset({"name", "comment", "notes", "metadata", "labels"}))
    found = get_version(conn, model_id, version)
    changed = model_versions.update().where(model_versions.c.id == found.id)
    conn.execute(changed.values(fields | {"last_updated_time": now()}))


def delete_version(conn: sa.Connection, model_id: int, version: int) -> None:
    """Remove a version; its checkpoint stays, and its number is not used again."""
    found = get_version(conn, model_id, version)
    conn.execute(model_versions.delete().where(model_versions.c.id == found.id))


_num_versions = sa.select(sa.func.count()).where(model_versions.c.model_id == models.c.id).scalar_subquery()
_workspace = sa.select(workspaces.c.name).where(workspaces.c.id == models.c.workspace_id).scalar_subquery()
_SORTABLE: dict[str, sa.ColumnElement[Any]] = {
    **{name: models.c[name] for name in ("id", "name", "description", "creation_time", "last_updated_time")},
    "num_versions": _num_versions,
    "workspace": _workspace,
}


def _query() -> sa.Select[Any]:
    return sa.select(models, _num_versions.label("num_versions"))
