"""`Determined`: one client of one store, with everything that can be looked up or made in it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client import _actions, _enums
from determined.client._checkpoint import Checkpoint
from determined.client._enums import ExperimentSortBy, ExperimentState, ModelSortBy, OrderBy
from determined.client._experiment import Experiment
from determined.client._listing import Listing
from determined.client._metrics import Metrics, TrialMetrics
from determined.client._model import Model
from determined.client._session import Session, place_of
from determined.client._store import StoreCommands
from determined.client._trial import Trial
from determined.client._workspace import Project, Workspace
from determined.client.following.controller import ControllerCommands

if TYPE_CHECKING:
    from determined.client.following.occupancy import Occupancy, Slot
    from determined.client.following.queue import Job
    from determined.errors import DeterminedError
    from determined.experiment.submission.submit import SubmitRequest

logger = logging.getLogger("determined.client")

AT_ONCE = 500  # ids in one question


class Determined:
    """A client of one store. Nothing is opened before it is needed.

    Args:
        master: A store, for older scripts; leave it out for the one of this machine.
        user: Who works here, for what is made; the user of this machine if None.
        password: Accepted for older scripts, and ignored, like the next three: a store needs no login of ours.
        cert_path: Ignored.
        cert_name: Ignored.
        noverify: Ignored.
        store: The store: a file, `sqlite:///...`, `postgresql://...`, or a directory with a `determined.db` in it.
            None is `$DET_STORE`, else the data directory's own.

    Example::

        with Determined(store="runs.db") as runs:
            for experiment in runs.list_experiments():
                print(experiment.id, experiment.name, experiment.best_metric)
    """

    def __init__(
        self,
        master: str | None = None,
        user: str | None = None,
        password: str | None = None,
        cert_path: str | None = None,
        cert_name: str | None = None,
        noverify: bool = False,
        *,
        store: str | os.PathLike[str] | None = None,
    ) -> None:
        del password, cert_path, cert_name, noverify
        self._session = Session(place_of(master, store), user=user)

    @classmethod
    def _over(cls, session: Session) -> Determined:
        """Return a client of a session that is there."""
        client = cls()
        client._session = session
        return client

    def __repr__(self) -> str:
        return f"Determined({self._session.place})"

    def __enter__(self) -> Determined:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what is open; using the client again opens it again."""
        self._session.close()

    @property
    def user(self) -> str:
        """Who works here."""
        return self._session.user

    @property
    def store(self) -> StoreCommands:
        """The store itself: its size, whether it is intact, export and import.

        Example::

            client.connect().store.check()
        """
        return StoreCommands(self._session)

    @property
    def controller(self) -> ControllerCommands:
        """The process that drives experiments: whether it is alive, start and stop.

        Example::

            client.connect().controller.status().is_alive
        """
        return ControllerCommands(self._session)

    def list_jobs(self) -> Listing[Job]:
        """Return the experiments that run or wait, in the order in which they get slots.

        Example::

            [(job.id, job.ahead, job.slots_used) for job in client.connect().list_jobs()]
        """
        from determined.client.following import queue

        return Listing(queue.jobs(self._session))

    def list_slots(self) -> Listing[Slot]:
        """Return the slots of this machine or of the cluster, and the trial that holds each.

        Example::

            [slot.id for slot in client.connect().list_slots() if slot.trial_id is None]
        """
        return Listing(self.occupancy().slots)

    def occupancy(self) -> Occupancy:
        """Return the slots and, on a cluster, its nodes, with what of them is in use.

        Example::

            {node.name: node.slots - node.slots_used for node in client.connect().occupancy().nodes}
        """
        from determined.client.following.occupancy import occupancy

        return occupancy(self._session)

    # Experiments, trials, checkpoints.

    def create_experiment(
        self,
        config: str | Path | dict[str, Any],
        model_dir: str | os.PathLike[str] | None = None,
        includes: Sequence[str | os.PathLike[str]] | None = None,
        project_id: int | None = None,
        template: str | None = None,
        *,
        paused: bool = False,
    ) -> Experiment:
        """Submit an experiment, and return it; it runs in the background, whatever this process does.

        Args:
            config: The path of an experiment file, or its content as a dict.
            model_dir: The directory of the code, which is copied.
            includes: More files and directories, each under its own base name.
            project_id: Where to list it; by default the place that the configuration names.
            template: The name of a template (`det template list`), or the path of one, below the configuration.
            paused: Leave it PAUSED, until it is activated.

        Raises:
            ConfigError: It could not work; all reasons are listed, and nothing was created.

        Example::

            client.create_experiment("experiment.yaml", "model").wait()
        """
        from determined.experiment.submission.submit import SubmitRequest, read_config

        experiment_id, warnings = self.submit(
            SubmitRequest(
                read_config(config),
                self.user,
                directory=model_dir,
                includes=tuple(includes or ()),
                template=template,
                project_id=project_id,
                paused=paused,
            )
        )
        for sentence in warnings:
            logger.warning("Experiment %d: %s", experiment_id, sentence)
        return self.get_experiment(experiment_id)

    def submit(self, request: SubmitRequest) -> tuple[int, list[str]]:
        """Submit an experiment; return its id, and what its user should know. `create_experiment()` is simpler.

        Example::

            client.connect().submit(SubmitRequest(read_config("experiment.yaml"), "ada", settings=["name=x"]))
        """
        from determined.experiment.submission.submit import checked_config, submit

        checked_config(request)  # a mistake in it is told before a store is made
        made = submit(self._session.store, request)
        return made.experiment_id, made.warnings

    def get_experiment(self, experiment_id: int) -> Experiment:
        """Return one experiment.

        Raises:
            NotFound: There is none of that id.

        Example::

            client.get_experiment(7).top_checkpoint().download()
        """
        with self._session.read() as conn:
            return Experiment(self._session, store.experiments.get(conn, experiment_id))

    def list_experiments(
        self,
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
        """Experiments that fit all that is given, by default all of them by id.

        Args:
            sort_by: Ordered by this.
            order_by: Which end first.
            experiment_ids: Only of these ids.
            labels: Only with all of these labels.
            users: Only of these owners.
            states: Only in one of these states.
            name: Only those with this text in their name, whatever its case.
            project_id: Only of this project.
            archived: Only archived ones, or only others.
            deleted: Only those that were deleted and can be brought back.
            limit: At most so many.
            offset: Leave out the first so many.

        Example::

            client.list_experiments(client.ExperimentSortBy.START_TIME, client.OrderBy.DESC, limit=10).to_pandas()
        """
        which = _filter(
            states=states,
            name=name,
            labels=labels,
            users=users,
            project_id=project_id,
            archived=archived,
            experiment_ids=experiment_ids,
            deleted=deleted,
        )
        with self._session.read() as conn:
            rows = store.experiments.find(
                conn,
                which,
                sort_by=_enums.column(ExperimentSortBy(sort_by or ExperimentSortBy.ID)),
                descending=order_by is not None and OrderBy(order_by) is OrderBy.DESC,
                limit=limit,
                offset=offset,
            )
        return Listing(Experiment(self._session, row) for row in rows)

    def experiment_hparams(self, experiment_ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Experiment to the hyperparameters of its best trial, or of its first where none is best.

        Example::

            client.connect().experiment_hparams([7])[7]["lr"]
        """
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(experiment_ids), AT_ONCE):
            with self._session.read() as conn:
                found |= store.trials.hparams_by_experiment(conn, experiment_ids[start : start + AT_ONCE])
        return found

    def count_experiments(self, **which: Any) -> int:
        """Count experiments; takes `states`, `name`, `labels`, `users`, `project_id`, `archived` and `deleted`.

        Example::

            client.connect().count_experiments(states=["ERROR"])
        """
        with self._session.read() as conn:
            return store.experiments.count(conn, _filter(**which))

    def act_on(self, action: str, experiment_ids: Sequence[int]) -> dict[int, DeterminedError | None]:
        """Let several experiments `activate`, `pause`, `cancel` or `kill`; return None for each, or why it was refused.

        Example::

            client.connect().act_on("pause", [7, 8])
        """
        return _actions.act_on_all(self._session, action, experiment_ids)

    def undelete_experiment(self, experiment_id: int) -> Experiment:
        """Bring back an experiment that was deleted a short while ago.

        Example::

            client.connect().undelete_experiment(7)
        """
        return Experiment(self._session, _actions.undelete(self._session, experiment_id))

    def get_trial(self, trial_id: int) -> Trial:
        """Return one trial.

        Example::

            client.get_trial(12).metrics("validation").to_pandas()
        """
        with self._session.read() as conn:
            return Trial(self._session, store.trials.get(conn, trial_id))

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """Return one checkpoint, by its id or by as much of its beginning as only it has.

        Example::

            client.get_checkpoint("f57e2b").training.hparams
        """
        with self._session.read() as conn:
            return Checkpoint(self._session, store.checkpoints.get(conn, store.checkpoints.complete_uuid(conn, uuid)))

    def list_trials(self, *, limit: int | None = None) -> Listing[Trial]:
        """Return the newest trials of all experiments, the newest last.

        Example::

            client.connect().list_trials(limit=10).to_pandas()
        """
        with self._session.read() as conn:
            rows = store.trials.of_experiment(conn, None, descending=True, limit=limit)
        owners = self._by_id(sorted({row.experiment_id for row in rows}))
        return Listing(Trial(self._session, row, owners.get(row.experiment_id)) for row in reversed(rows))

    def _by_id(self, ids: Sequence[int]) -> dict[int, Experiment]:
        pages = (ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE))
        return {found.id: found for page in pages for found in self.list_experiments(experiment_ids=page)}

    def list_checkpoints(self) -> Listing[Checkpoint]:
        """Return all checkpoints whose files are there, the newest last.

        Example::

            sum(checkpoint.size for checkpoint in client.connect().list_checkpoints())
        """
        with self._session.read() as conn:
            rows = store.checkpoints.find(conn, sort_by="time", states=("COMPLETED", "PARTIALLY_DELETED"))
        return Listing(Checkpoint(self._session, row) for row in rows)

    def iter_trials_metrics(self, trial_ids: Sequence[int], group: str) -> Iterator[TrialMetrics]:
        """Return the reports of several trials, by trial and in order of steps.

        Example::

            best = min(client.iter_trials_metrics([1, 2], "validation"), key=lambda report: report.metrics["loss"])
        """
        return iter(self.metrics(trial_ids, group))

    def metrics(self, trial_ids: Sequence[int], group: str | None = None) -> Metrics:
        """Return the reports of several trials, to loop over more than once or to make a table of.

        Example::

            client.connect().metrics([1, 2], "validation").to_pandas().pivot(
                index="steps_completed", columns="trial_id", values="loss")
        """
        return Metrics(self._session, trial_ids, group)

    def metric_names(self, trial_ids: Sequence[int]) -> dict[str, list[str]]:
        """Return the names of the metrics that these trials reported, by group.

        Example::

            client.connect().metric_names([1, 2])["validation"]
        """
        with self._session.read() as conn:
            return store.metrics.metric_reports.names(conn, trial_ids=trial_ids)

    # The model registry.

    def create_model(
        self,
        name: str,
        description: str = "",
        metadata: dict[str, Any] | None = None,
        labels: Sequence[str] | None = None,
        workspace_name: str | None = None,
    ) -> Model:
        """Add a model to the registry.

        Raises:
            InvalidValue: The name is blank, only digits, or has two spaces in a row, a `/` or a `\\`.
            Refused: There is a model of that name.

        Example::

            client.create_model("digits", labels=["vision"])
        """
        with self._session.write() as conn:
            workspace = store.workspaces.find_workspace(conn, workspace_name) if workspace_name is not None else None
            row = store.models.create(
                conn,
                name,
                owner=self.user,
                description=description,
                metadata=metadata,
                labels=labels or (),
                workspace_id=workspace.id if workspace else 1,
            )
        return Model(self._session, row)

    def get_model(self, identifier: str | int) -> Model:
        """Return a model by its name or its id.

        Example::

            client.get_model("digits").get_version()
        """
        if isinstance(identifier, str) and identifier.isdigit():  # no name is only digits
            identifier = int(identifier)
        with self._session.read() as conn:
            return Model(self._session, store.models.get(conn, identifier))

    def list_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: OrderBy = OrderBy.ASC,
        name: str | None = None,
        description: str | None = None,
        model_id: int | None = None,
        workspace_names: Sequence[str] | None = None,
        workspace_ids: Sequence[int] | None = None,
    ) -> Listing[Model]:
        """Models that fit all that is given; `name` and `description` are parts of them, whatever their case.

        Example::

            [model.name for model in client.list_models(name="digit")]
        """
        with self._session.read() as conn:
            ids = list(workspace_ids) if workspace_ids is not None else None
            if workspace_names is not None:
                ids = [*(ids or []), *(store.workspaces.find_workspace(conn, given).id for given in workspace_names)]
            rows = store.models.find(
                conn,
                name=name,
                description=description,
                model_id=model_id,
                workspace_ids=ids,
                sort_by=_enums.column(ModelSortBy(sort_by)),
                descending=OrderBy(order_by) is OrderBy.DESC,
            )
        return Listing(Model(self._session, row) for row in rows)

    def get_model_labels(self) -> list[str]:
        """Return the labels of all models, the most used first.

        Example::

            client.get_model_labels()[:3]
        """
        with self._session.read() as conn:
            return store.models.labels_in_use(conn)

    # Workspaces.

    def get_project(self, project_id: int) -> Project:
        """Return a project by its id.

        Example::

            client.connect().get_project(1).list_experiments()
        """
        with self._session.read() as conn:
            return Project(self._session, store.workspaces.get_project(conn, project_id))

    def get_workspace(self, name: str | int) -> Workspace:
        """Return a workspace by its name or its id.

        Example::

            client.get_workspace("vision").list_projects()
        """
        with self._session.read() as conn:
            return Workspace(self._session, store.workspaces.find_workspace(conn, name))

    def list_workspaces(self) -> Listing[Workspace]:
        """Return all workspaces, the oldest first.

        Example::

            [workspace.name for workspace in client.list_workspaces()]
        """
        with self._session.read() as conn:
            return Listing(Workspace(self._session, row) for row in store.workspaces.list_workspaces(conn))

    def create_workspace(self, name: str) -> Workspace:
        """Add a workspace.

        Example::

            client.create_workspace("vision")
        """
        with self._session.write() as conn:
            row = store.workspaces.find_workspace(conn, store.workspaces.create_workspace(conn, name))
        return Workspace(self._session, row)

    def delete_workspace(self, name: str) -> None:
        """Remove a workspace and its projects; refused while it holds experiments or models.

        Example::

            client.delete_workspace("vision")
        """
        with self._session.write() as conn:
            store.workspaces.delete_workspace(conn, name)

    # What older scripts call these.
    get_models = list_models
    stream_trials_metrics = iter_trials_metrics

    def stream_trials_training_metrics(self, trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
        """Return the training reports of several trials: `iter_trials_metrics(trial_ids, "training")`."""
        return self.iter_trials_metrics(trial_ids, "training")

    def stream_trials_validation_metrics(self, trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
        """Return the validation reports of several trials: `iter_trials_metrics(trial_ids, "validation")`."""
        return self.iter_trials_metrics(trial_ids, "validation")


def _filter(
    *,
    states: Sequence[ExperimentState | str] | None = None,
    users: Sequence[str] | None = None,
    experiment_ids: Sequence[int] | None = None,
    **same: Any,
) -> store.experiments.ExperimentFilter:
    """Return the store's filter; `same` are the arguments that have the same names there."""
    words = None if states is None else [str(ExperimentState(state)) for state in states]
    return store.experiments.ExperimentFilter(states=words, owners=users, ids=experiment_ids, **same)
