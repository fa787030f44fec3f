"""The model registry: models by name, and checkpoints that are their versions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from determined import store
from determined.client._checkpoint import Checkpoint
from determined.client._enums import OrderBy
from determined.client._listing import Listing
from determined.client._metrics import Metrics, TrialMetrics
from determined.client._session import Session, Stored

if TYPE_CHECKING:
    import sqlalchemy as sa


class Model(Stored):
    """A model of the registry. Fields are as they were when it was read; `reload()` reads it again.

    Example::

        model = client.create_model("digits", description="handwriting")
        model.register_version(experiment.top_checkpoint().uuid)
    """

    model_id: int
    name: str
    description: str
    notes: str
    metadata: dict[str, Any]
    labels: list[str]
    workspace_id: int
    username: str
    archived: bool
    creation_time: datetime.datetime
    last_updated_time: datetime.datetime
    num_versions: int

    _RENAMED: ClassVar = {"id": "model_id", "owner": "username"}

    def __repr__(self) -> str:
        return f"Model({self.model_id}, {self.name!r}, {self.num_versions} versions)"

    def _row(self, conn: sa.Connection) -> store.models.ModelRow:
        return store.models.get(conn, self.model_id)

    def _update(self, conn: sa.Connection, fields: dict[str, Any]) -> None:
        store.models.update(conn, self.model_id, **fields)

    def get_version(self, version: int = -1) -> ModelVersion | None:
        """Return a version by its number; -1 is the newest, or None if there is none.

        Raises:
            NotFound: There is no version of that number.

        Example::

            model.get_version().checkpoint.download()
        """
        with self._session.read() as conn:
            if version == -1:
                found = store.models.versions(conn, self.model_id)
                row = found[0] if found else None
            else:
                row = store.models.get_version(conn, self.model_id, version)
        return None if row is None else ModelVersion(self._session, row, self.name)

    def list_versions(self, order_by: OrderBy = OrderBy.DESC) -> Listing[ModelVersion]:
        """Return its versions, the newest first.

        Example::

            [version.model_version for version in model.list_versions()]
        """
        with self._session.read() as conn:
            rows = store.models.versions(conn, self.model_id, descending=OrderBy(order_by) is OrderBy.DESC)
        return Listing(ModelVersion(self._session, row, self.name) for row in rows)

    get_versions = list_versions  # an older name

    def register_version(
        self,
        checkpoint_uuid: str,
        *,
        name: str = "",
        comment: str = "",
        notes: str = "",
        metadata: dict[str, Any] | None = None,
        labels: Sequence[str] = (),
    ) -> ModelVersion:
        """Make a complete checkpoint the next version. Its files stay from now on.

        Example::

            model.register_version(checkpoint.uuid, name="first", comment="good on small digits").model_version
        """
        with self._session.write() as conn:
            row = store.models.register(
                conn,
                self.model_id,
                checkpoint_uuid,
                owner=self._session.user,
                name=name,
                comment=comment,
                notes=notes,
                metadata=metadata,
                labels=labels,
            )
        self.reload()
        return ModelVersion(self._session, row, self.name)

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set top-level keys of its metadata.

        Example::

            model.add_metadata({"licence": "MIT"})
        """
        self._change(metadata=lambda known: {**known, **metadata})

    def remove_metadata(self, keys: Sequence[str]) -> None:
        """Take top-level keys of its metadata away."""
        self._change(metadata=lambda known: {key: value for key, value in known.items() if key not in keys})

    def set_labels(self, labels: Sequence[str]) -> None:
        """Replace its labels."""
        self._change(labels=list(labels))

    def set_description(self, description: str) -> None:
        """Describe it in a line."""
        self._change(description=description)

    def set_notes(self, notes: str) -> None:
        """Keep notes with it."""
        self._change(notes=notes)

    def move_to_workspace(self, workspace_name: str) -> None:
        """Move it to another workspace.

        Example::

            model.move_to_workspace("vision")
        """
        with self._session.read() as conn:
            workspace_id = store.workspaces.find_workspace(conn, workspace_name).id
        self._change(workspace_id=workspace_id)

    def archive(self) -> None:
        """Take it out of use: it cannot be edited, nor get versions."""
        self._change(archived=True)

    def unarchive(self) -> None:
        """Take it back into use."""
        self._change(archived=False)

    def delete(self) -> None:
        """Remove it and its versions. The checkpoints stay, and may be removed from now on."""
        with self._session.write() as conn:
            store.models.delete(conn, self.model_id)


class ModelVersion(Stored):
    """A version of a model: a checkpoint with a number.

    Example::

        version = client.get_model("digits").get_version(2)
        version.checkpoint.download()
    """

    model_id: int
    model_name: str
    model_version: int
    checkpoint_uuid: str
    name: str
    comment: str
    notes: str
    metadata: dict[str, Any]
    labels: list[str]
    username: str
    creation_time: datetime.datetime
    last_updated_time: datetime.datetime

    _RENAMED: ClassVar = {"version": "model_version", "owner": "username"}

    def __init__(self, session: Session, row: store.models.ModelVersionRow, model_name: str) -> None:
        self.model_name = model_name
        super().__init__(session, row)

    def _take(self, row: store.models.ModelVersionRow) -> None:
        super()._take(row)
        self._checkpoint: Checkpoint | None = None

    def __repr__(self) -> str:
        return f"ModelVersion({self.model_name!r}, {self.model_version}, {self.checkpoint_uuid!r})"

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint it is."""
        if self._checkpoint is None:
            with self._session.read() as conn:
                self._checkpoint = Checkpoint(self._session, store.checkpoints.get(conn, self.checkpoint_uuid))
        return self._checkpoint

    def _row(self, conn: sa.Connection) -> store.models.ModelVersionRow:
        return store.models.get_version(conn, self.model_id, self.model_version)

    def _update(self, conn: sa.Connection, fields: dict[str, Any]) -> None:
        store.models.update_version(conn, self.model_id, self.model_version, **fields)

    def set_name(self, name: str) -> None:
        """Give it a name beside its number.

        Example::

            version.set_name("shipped in May")
        """
        self._change(name=name)

    def set_notes(self, notes: str) -> None:
        """Keep notes with it."""
        self._change(notes=notes)

    def iter_metrics(self, group: str | None = None) -> Iterator[TrialMetrics]:
        """Return the metrics that were reported at the steps of its checkpoint.

        Example::

            [report.metrics for report in version.iter_metrics("validation")]
        """
        checkpoint = self.checkpoint
        here = checkpoint.steps_completed
        return iter(Metrics(self._session, [checkpoint.trial_id], group, first=here, last=here))

    def delete(self) -> None:
        """Remove it. Its number is not used again, and its checkpoint may be removed from now on."""
        with self._session.write() as conn:
            store.models.delete_version(conn, self.model_id, self.model_version)
