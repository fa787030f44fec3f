"""An experiment: a search with its trials, or one run of a script, which is an experiment of one trial."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client import _actions, _compare, _enums, _files
from determined.client._checkpoint import Checkpoint, all_checkpoints, find_checkpoints, none_is_best, validated
from determined.client._enums import CheckpointSortBy, ExperimentState, OrderBy, TrialSortBy
from determined.client._listing import Listing, frame
from determined.client._search.searched import Searched
from determined.client._session import Session
from determined.client._trial import Trial
from determined.client.following import waiting

if TYPE_CHECKING:
    import pandas


PAGE = 500
BULKY = frozenset({"config", "original_config", "searcher_snapshot", "warnings"})


class Experiment(Searched):
    """A search with its trials, or a run of `python train.py`. Fields are as read; `reload()` reads them again.

    Example::

        experiment = client.get_experiment(7)
        print(experiment.name, experiment.state, experiment.best_metric)
        experiment.top_checkpoint().download()
    """

    id: int
    name: str
    state_reason: str
    owner: str
    project_id: int
    workspace_id: int
    parent_id: int | None
    description: str
    notes: str
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    progress: float | None
    archived: bool
    unmanaged: bool
    external_experiment_id: str | None
    script: str | None
    searcher_metric: str | None
    smaller_is_better: bool
    best_trial_id: int | None
    best_metric: float | None
    trial_count: int
    checkpoint_size: int
    checkpoint_count: int
    deleted_at: datetime.datetime | None
    labels: set[str] | None

    def __init__(self, session: Session, row: store.experiments.ExperimentRow) -> None:
        self._session = session
        self._take(row)

    def _take(self, row: store.experiments.ExperimentRow) -> None:
        self.__dict__.update(vars(row))  # in one go: lists have thousands of these
        for name in BULKY:
            del self.__dict__[name]
        self._state = ExperimentState(row.state)
        self.labels = set(row.labels) or None
        self._config = row.config

    def __repr__(self) -> str:
        return f"Experiment({self.id}, {self.name!r}, {self.state})"

    @property
    def config(self) -> dict[str, Any]:
        """The configuration it runs with.

        Example::

            experiment.config["searcher"]["metric"]
        """
        if self._config is None:
            self._config = self._read().config or {}
        return self._config

    @property
    def submitted_config(self) -> str:
        """Its configuration as it was written, comments included; empty where that would show a secret."""
        return self._read().original_config or ""

    @property
    def warnings(self) -> list[str]:
        """What was said about its configuration and code when it was submitted, one sentence each."""
        return [str(sentence) for sentence in self._read().warnings or ()]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the config.

        Example::

            json.dumps(experiment.to_dict(), default=str)
        """
        names = ("id", "name", "owner", "parent_id", "description", "notes", "start_time", "end_time", "progress")
        more = ("archived", "unmanaged", "script", "searcher_metric", "best_metric", "best_trial_id", "trial_count")
        last = ("checkpoint_count", "checkpoint_size", "project_id", "workspace_id")
        found = {name: getattr(self, name) for name in (*names, *more, *last)}
        return {**found, "state": str(self.state), "labels": sorted(self.labels or ())}

    def reload(self) -> None:
        """Read the fields again."""
        self._take(self._read())

    def _read(self) -> store.experiments.ExperimentRow:
        with self._session.read() as conn:
            return store.experiments.get(conn, self.id, deleted=self.deleted_at is not None)

    # What it consists of.

    def list_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC, *, limit: int | None = None
    ) -> Listing[Trial]:
        """Return its trials.

        Example::

            experiment.list_trials(client.TrialSortBy.BEST_VALIDATION_METRIC)[0].hparams
        """
        return Listing(self.iter_trials(sort_by, order_by, limit))

    def iter_trials(
        self,
        sort_by: TrialSortBy = TrialSortBy.ID,
        order_by: OrderBy = OrderBy.ASC,
        limit: int | None = None,
    ) -> Iterator[Trial]:
        """Yield its trials, read in pages.

        Example::

            next(experiment.iter_trials(client.TrialSortBy.START_TIME, client.OrderBy.DESC))
        """
        done = 0
        while limit is None or done < limit:
            size = PAGE if limit is None else min(PAGE, limit - done)
            with self._session.read() as conn:
                rows = store.trials.of_experiment(
                    conn,
                    self.id,
                    sort_by=_enums.column(TrialSortBy(sort_by)),
                    descending=OrderBy(order_by) is OrderBy.DESC,
                    limit=size,
                    offset=done,
                )
            yield from (Trial(self._session, row, self) for row in rows)
            done += len(rows)
            if len(rows) < size:
                return

    get_trials = list_trials  # an older name

    def best_trials(self, limit: int | None = None) -> Listing[Trial]:
        """Return its trials, the best by the searcher metric first; those without a value last.

        Example::

            experiment.best_trials(3).to_pandas()
        """
        order = OrderBy.ASC if self.smaller_is_better else OrderBy.DESC
        return Listing(self.iter_trials(TrialSortBy.BEST_VALIDATION_METRIC, order, limit))

    def best_trial(
        self, metric: str | None = None, smaller_is_better: bool | None = None
    ) -> tuple[Trial, float] | None:
        """Return its best trial and the best value of that; None if no trial has one.

        Args:
            metric: Another metric than it searches by: `loss` of validation, or `training.loss`.
            smaller_is_better: Whether smaller values of `metric` are better; True by default.

        Example::

            trial, loss = experiment.best_trial()
        """
        return _compare.best_of(self, metric, smaller_is_better)

    def trial_counts(self) -> dict[str, int]:
        """Return how many of its trials are in each state.

        Example::

            experiment.trial_counts().get("RUNNING", 0)
        """
        with self._session.read() as conn:
            return store.experiments.trial_counts(conn, [self.id])[self.id]

    def metric_names(self) -> dict[str, list[str]]:
        """Return the names of the metrics that its trials reported, by group.

        Example::

            experiment.metric_names()["validation"]
        """
        with self._session.read() as conn:
            return store.metrics.metric_reports.names(conn, experiment_id=self.id)

    def events(self) -> list[store.events.EventRow]:
        """Return its events, oldest first: changes of state with their reasons.

        Example::

            [(event.time, event.kind, event.body) for event in experiment.events()]
        """
        with self._session.read() as conn:
            return store.events.of_experiment(conn, self.id)

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per trial: its hyperparameters (`hparams.lr`), its state and its best and latest metric.

        Example::

            experiment.to_pandas().sort_values("best_metric").head()
        """
        rows = (trial.to_dict() for trial in self.iter_trials())
        return frame({name: value for name, value in row.items() if name != "summary_metrics"} for row in rows)

    # What it saved.

    def list_checkpoints(
        self,
        sort_by: str | CheckpointSortBy | None = None,
        order_by: OrderBy | None = None,
        max_results: int | None = None,
    ) -> Listing[Checkpoint]:
        """Return its complete checkpoints, the best first, those without a validation last.

        Args:
            sort_by: Something else: a `CheckpointSortBy`, or the name of a validation metric.
            order_by: Which end first; goes together with `sort_by`.
            max_results: At most so many.

        Example::

            experiment.list_checkpoints("accuracy", client.OrderBy.DESC, max_results=3)
        """
        return find_checkpoints(self._session, sort_by, order_by, max_results, experiment_id=self.id)

    def all_checkpoints(self) -> Listing[Checkpoint]:
        """Return every checkpoint that its trials saved, in order of steps, also those whose files are gone.

        Example::

            sum(checkpoint.size for checkpoint in experiment.all_checkpoints())
        """
        return all_checkpoints(self._session, experiment_id=self.id)

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """Return its best checkpoint, by the searcher metric or by the one given.

        Raises:
            NotFound: None was validated by that metric.

        Example::

            experiment.top_checkpoint().download()
        """
        found = self.top_n_checkpoints(1, sort_by, smaller_is_better)
        if not found:
            listing = f"det checkpoint ls {self.id}"
            raise none_is_best(f"Experiment {self.id}", self.list_checkpoints(), sort_by, listing)
        return found[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> Listing[Checkpoint]:
        """Return the best checkpoint of each of the `limit` best trials.

        Args:
            limit: At most so many.
            sort_by: A validation metric instead of the searcher metric.
            smaller_is_better: Which values of it are better; goes together with `sort_by`.

        Example::

            [checkpoint.trial_id for checkpoint in experiment.top_n_checkpoints(3, "accuracy", False)]
        """
        ranked = validated(self.list_checkpoints(*_enums.best_by(sort_by, smaller_is_better)), sort_by)
        best: dict[int, Checkpoint] = {}
        for checkpoint in ranked:
            best.setdefault(checkpoint.trial_id, checkpoint)
        return Listing(list(best.values())[:limit])

    def apply_retention(
        self,
        save_experiment_best: int | None = None,
        save_trial_best: int | None = None,
        save_trial_latest: int | None = None,
        *,
        dry_run: bool = False,
    ) -> _files.Retention:
        """Remove the checkpoints that a policy does not keep.

        Registered ones, what a trial started from, what an unfinished run would be resumed from, and what is being
        read stay in any case.

        Args:
            save_experiment_best: Keep the best so many of all trials together.
            save_trial_best: Keep the best so many of each trial.
            save_trial_latest: Keep the newest so many of each trial.
            dry_run: Only say what would go.

        Without any number the policy is that of the experiment's config; with one, the others are 0, 1 and 1.

        Example::

            experiment.apply_retention(save_trial_best=1, save_trial_latest=1, dry_run=True).removed
        """
        retention = store.upkeep.retention
        numbers = (save_experiment_best, save_trial_best, save_trial_latest)
        policy = retention.Policy.asked_for(dict(zip(retention.KEYS, numbers, strict=True)))
        found = _files.apply(self._session, self.id, policy, dry_run=dry_run)
        if not dry_run:
            self.reload()
        return found

    def download_code(self, output_dir: str | None = None) -> str:
        """Write the code it was submitted with to a file, and return the path. Only submitted experiments have a copy.

        Raises:
            Refused: There is none. The message says which script and commit it ran.

        Example::

            experiment.download_code("code")
        """
        return _files.download_code(self._session, self.id, output_dir)

    def packed_code(self) -> bytes:
        """Return the code it was submitted with, as the bytes of a .tar.gz. Only submitted experiments have a copy.

        Raises:
            Refused: There is none. The message says which script and commit it ran.

        Example::

            tarfile.open(fileobj=io.BytesIO(experiment.packed_code())).getnames()
        """
        return _files.packed_code(self._session, self.id)

    def delete_tensorboard_files(self) -> None:
        """Remove the event files of all its trials.

        Example::

            experiment.delete_tensorboard_files()
        """
        for trial in self.iter_trials():
            for path in trial.tensorboard_paths():
                _files.remove_event_files(path)

    # Waiting.

    def wait(self, interval: float = 5.0) -> ExperimentState:
        """Wait until it has ended, and return how.

        Args:
            interval: Look so often, in seconds.

        Raises:
            ValueError: It is paused, so it may never end.

        Example::

            assert experiment.wait() == client.ExperimentState.COMPLETED
        """
        return waiting.wait(self._session, self, interval)

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """Wait until it has a trial, and return that.

        Raises:
            RuntimeError: It has ended without one.

        Example::

            for line in experiment.await_first_trial().iter_logs(follow=True):
                print(line)
        """
        return waiting.await_first_trial(self, interval)

    # Changing its texts and its place.

    def set_name(self, name: str) -> None:
        """Give it another name.

        Example::

            experiment.set_name("baseline")
        """
        self._change(name=_actions.checked_text("name", name))

    def set_description(self, description: str) -> None:
        """Describe it in a line."""
        self._change(description=_actions.checked_text("description", description))

    def set_notes(self, notes: str) -> None:
        """Keep notes with it, as long as you like."""
        self._change(notes=_actions.checked_text("notes", notes))

    def set_labels(self, labels: Iterable[str]) -> None:
        """Replace its labels.

        Example::

            experiment.set_labels({"cifar", "baseline"})
        """
        wanted = {labels} if isinstance(labels, str) else set(labels)
        self._change(labels=wanted)

    def add_label(self, label: str) -> None:
        """Add a label; one that is there stays."""
        self._change(labels=lambda known: known | {label})

    def remove_label(self, label: str) -> None:
        """Take a label away, if it is there."""
        self._change(labels=lambda known: known - {label})

    def move_to_project(self, workspace_name: str, project_name: str) -> None:
        """Move it to a project of a workspace.

        Example::

            experiment.move_to_project("vision", "cifar")
        """
        with self._session.read() as conn:
            project = store.workspaces.find_project(conn, workspace_name, project_name)
        self.move_to(project.id)

    def move_to(self, project_id: int) -> None:
        """Move it to the project of this id."""
        with self._session.read() as conn:
            store.workspaces.get_project(conn, project_id)  # says that there is none
        self._change(project_id=project_id)

    def edit(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        labels: Iterable[str] | None = None,
    ) -> None:
        """Change several of its texts at once; what is left out stays.

        Example::

            experiment.edit(name="baseline", labels={"cifar"})
        """
        texts = {"name": name, "description": description, "notes": notes}
        given = {what: _actions.checked_text(what, text) for what, text in texts.items() if text is not None}
        self._change(labels=None if labels is None else set(labels), **given)

    def _change(self, *, labels: Any = None, **fields: Any) -> None:
        _actions.change(self._session, self.id, labels=labels, **fields)
        self.reload()

    def archive(self) -> None:
        """Hide it from lists. Only what has ended can be archived.

        Example::

            experiment.archive()
        """
        self._set_archived(True)

    def unarchive(self) -> None:
        """Show it in lists again."""
        self._set_archived(False)

    def _set_archived(self, archived: bool) -> None:
        _actions.set_archived(self._session, self.id, archived)
        self.reload()

    def delete(self) -> None:
        """Remove it from everything. It can be brought back with `undelete()` for a while; then its files go, too.

        Raises:
            Refused: It has not ended, or one of its checkpoints is in the model registry.

        Example::

            experiment.delete()
            client.connect().undelete_experiment(experiment.id)
        """
        self._take(_actions.delete(self._session, self.id))

    def undelete(self) -> None:
        """Bring it back after `delete()`.

        Example::

            experiment.undelete()
        """
        self._take(_actions.undelete(self._session, self.id))
