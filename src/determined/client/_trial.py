"""A trial: one training run with its hyperparameters, metrics, checkpoints and log."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from determined import store
from determined._wording import instead
from determined.client import _actions, _enums, _logs
from determined.client._checkpoint import (
    Checkpoint,
    all_checkpoints,
    beginning,
    find_checkpoints,
    none_is_best,
    validated,
)
from determined.client._compare import SYSTEM_GROUPS
from determined.client._enums import CheckpointSortBy, LogLevel, OrderBy, TrialState
from determined.client._listing import Listing
from determined.client._logs import LogEntry
from determined.client._metrics import Curve, Metrics, Points, TrialMetrics
from determined.client._session import Session
from determined.errors import NotFound

if TYPE_CHECKING:
    from determined.client._experiment import Experiment


USUAL_GROUPS = {"training", "validation", *SYSTEM_GROUPS}  # a trial without them is nothing odd


def _dotted(names: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{group}.{name}" for group in names for name in names[group]]


class Trial:
    """One training run. Fields are as they were when it was read; `reload()` reads it again.

    Example::

        trial = client.get_trial(12)
        print(trial.state, trial.hparams, trial.best_metric)
        trial.metrics("validation").to_pandas()
    """

    id: int
    experiment_id: int
    state_reason: str
    exit_reason: str | None
    hparams: dict[str, Any]
    seed: int
    attempt: int
    restarts: int
    start_time: datetime.datetime
    end_time: datetime.datetime | None
    warm_start_checkpoint_uuid: str | None
    total_batches: int
    runner_state: str
    progress: float | None
    searcher_metric_value: float | None
    latest_metric_value: float | None
    summary_metrics: dict[str, Any]
    metadata: dict[str, Any]
    checkpoint_size: int
    checkpoint_count: int
    last_activity: datetime.datetime | None
    log_policy_matched: str | None
    log_retention_days: int | None

    def __init__(self, session: Session, row: store.trials.TrialRow, experiment: Experiment | None = None) -> None:
        self._session = session
        self._experiment = experiment
        self._take(row)

    def _take(self, row: store.trials.TrialRow) -> None:
        self.__dict__.update(vars(row))  # in one go: lists have thousands of these
        self._state = TrialState(row.state)

    def __repr__(self) -> str:
        return f"Trial({self.id}, experiment {self.experiment_id}, {self.state})"

    @property
    def state(self) -> TrialState:
        """Its state; one that may run is QUEUED, STARTING or RUNNING, by its processes."""
        if self._state is TrialState.ACTIVE:
            from determined.experiment.lifecycle import State, shown_state

            with self._session.read() as conn:
                launches = store.overview.running.of_trials(conn, [self.id]).get(self.id, [])
            self._state = TrialState(shown_state(State.ACTIVE, store.overview.running.states(launches)))
        return self._state

    @property
    def best_metric(self) -> float | None:
        """The best value of the metric that its experiment looks at."""
        return self.searcher_metric_value

    @property
    def searcher_metric(self) -> str | None:
        """The name of the metric that its experiment looks at."""
        return self._owner().searcher_metric

    @property
    def smaller_is_better(self) -> bool:
        """Whether its experiment takes smaller values of that metric for better ones."""
        return self._owner().smaller_is_better

    def _owner(self) -> Experiment:
        if self._experiment is None:
            self._experiment = self.get_experiment()
        return self._experiment

    @property
    def environment(self) -> dict[str, Any]:
        """What the newest attempt ran in: arguments, git commit, packages, host.

        Example::

            trial.environment["git"]
        """
        attempts = self.attempts()
        return dict(attempts[-1].environment) if attempts else {}

    def attempts(self) -> list[store.attempts.AttemptRow]:
        """Return every launch of this trial, oldest first: host, process, times and exit code.

        Example::

            [(attempt.node, attempt.pid, attempt.exit_code) for attempt in trial.attempts()]
        """
        with self._session.read() as conn:
            return store.attempts.of_trial(conn, self.id)

    def tensorboard_paths(self) -> list[str]:
        """Return the directories of event files, one per attempt that wrote some.

        Example::

            subprocess.run(["tensorboard", "--logdir", trial.tensorboard_paths()[-1]])
        """
        return [attempt.tensorboard for attempt in self.attempts() if attempt.tensorboard]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data.

        Example::

            json.dumps(trial.to_dict(), default=str)
        """
        names = ("id", "experiment_id", "hparams", "start_time", "end_time", "total_batches", "best_metric", "restarts")
        more = ("checkpoint_count", "checkpoint_size", "summary_metrics")
        found = {name: getattr(self, name) for name in (*names, *more)}
        return {**found, "state": str(self.state), "latest_metric": self.latest_metric_value}

    def reload(self) -> None:
        """Read the fields again."""
        with self._session.read() as conn:
            self._take(store.trials.get(conn, self.id))

    def get_experiment(self) -> Experiment:
        """Return the experiment it belongs to.

        Example::

            trial.get_experiment().name
        """
        from determined.client._experiment import Experiment

        with self._session.read() as conn:
            return Experiment(self._session, store.experiments.get(conn, self.experiment_id))

    # What it reported.

    def metrics(self, group: str | None = None, *, with_batches: bool = False) -> Metrics:
        """Return its reports, of one group or of all; loop over it, or make a table of it.

        Args:
            group: `training`, `validation`, or a group of your own.
            with_batches: Also the metrics of single batches.

        Raises:
            NotFound: The trial has ended without reporting such a group; the message says what it reported.

        Example::

            trial.metrics("training").to_pandas()
        """
        if group is not None and group not in USUAL_GROUPS:
            self._refuse_unknown(group)
        return Metrics(self._session, [self.id], group, with_batches=with_batches)

    def iter_metrics(self, group: str | None = None) -> Iterator[TrialMetrics]:
        """Yield its reports in order of steps; what a resumed run repeated is there once.

        Metrics of single batches are left out: `metrics(group, with_batches=True)` has them.

        Example::

            for report in trial.iter_metrics("validation"):
                print(report.steps_completed, report.metrics)
        """
        return iter(self.metrics(group))

    def metric_names(self) -> dict[str, list[str]]:
        """Return the names of the metrics that it reported, by group.

        Example::

            assert "loss" in trial.metric_names()["training"]
        """
        with self._session.read() as conn:
            return store.metrics.metric_reports.names(conn, trial_ids=[self.id])

    def curve(
        self,
        name: str,
        group: str = "validation",
        *,
        buckets: int = 1000,
        first: int | None = None,
        last: int | None = None,
    ) -> Curve:
        """Return a metric over the steps in about `buckets` pieces with min, mean and max: fast for millions of points.

        Args:
            name: The metric.
            group: Of which group.
            buckets: At most so many pieces.
            first: From this step on.
            last: Up to this step.

        Raises:
            NotFound: It reported no such metric; the message says what it reported. A trial that still runs may report
                a group later: until then its curves are empty.

        Example::

            curve = trial.curve("loss", "training", buckets=200)
            plt.plot(curve.steps, curve.mean)
        """
        self._refuse_unknown(group, name)
        with self._session.read() as conn:
            found = store.metrics.curves.envelope(conn, self.id, group, name, first=first, last=last, buckets=buckets)
        return Curve(self.id, group, name, **vars(found))

    def points(
        self,
        name: str,
        group: str = "validation",
        *,
        first: int | None = None,
        last: int | None = None,
        limit: int | None = None,
    ) -> Points:
        """Return a metric exactly as it was reported.

        Raises:
            NotFound: It reported no such metric, as with `curve`.

        Example::

            trial.points("loss", "training", first=900, last=1000).value
        """
        self._refuse_unknown(group, name)
        with self._session.read() as conn:
            found = store.metrics.curves.points(conn, self.id, group, name, first=first, last=last, limit=limit)
        return Points(self.id, group, name, **vars(found))

    def _refuse_unknown(self, group: str, name: str | None = None) -> None:
        """Raise for what was never reported; a group that a running trial has not reported may still come."""
        known = self.metric_names()
        if group in known and (name is None or name in known[group]):
            return
        if group not in known and not self.state.is_terminal:
            return
        if name is None:
            raise NotFound(f"Trial {self.id} reported no group {group!r}.{instead(group, known)}")
        elsewhere = [f"{name} in {each}" for each in known if each != group and name in known[each]]
        near = f" There is: {', '.join(elsewhere)}." if elsewhere else instead(name, known.get(group) or _dotted(known))
        raise NotFound(f"Trial {self.id} reported no {name!r} in {group!r}.{near}")

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace your own notes on this trial.

        Example::

            trial.set_metadata({**trial.metadata, "verdict": "keep"})
        """
        with self._session.write() as conn:
            store.trials.set_metadata(conn, self.id, metadata)
        self.metadata = metadata

    # What it printed.

    def iter_logs(
        self,
        follow: bool = False,
        *,
        head: int | None = None,
        tail: int | None = None,
        container_ids: Sequence[str] | None = None,
        rank_ids: Sequence[int] | None = None,
        stdtypes: Sequence[str] | None = None,
        min_level: LogLevel | str | None = None,
        timestamp_before: str | float | datetime.datetime | None = None,
        timestamp_after: str | float | datetime.datetime | None = None,
        sources: Sequence[str] | None = None,
        search_text: str | None = None,
        regex: str | None = None,
    ) -> Iterator[str]:
        """Yield the lines it printed, as `[time] process [rank=N] || LEVEL: text`.

        Args:
            follow: Go on as lines are written, until the trial has ended.
            head: Only the first so many.
            tail: Only the last so many.
            container_ids: Only of these attempts (ids of allocations).
            rank_ids: Only of these ranks.
            stdtypes: Only `stdout`, or only `stderr`.
            min_level: Only of this level and above; lines without one count as INFO.
            timestamp_before: Only older ones; RFC 3339 text, or seconds since the epoch.
            timestamp_after: Only newer ones.
            sources: Only what the `trial` printed, or only what the `controller` said.
            search_text: Only lines with this text in them.
            regex: Only lines that this regular expression finds something in.

        Example::

            for line in trial.iter_logs(follow=True, min_level=client.LogLevel.WARNING):
                print(line)
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        return map(str, self.iter_log_rows(**given))

    def iter_log_rows(
        self, follow: bool = False, *, head: int | None = None, tail: int | None = None, **which: Any
    ) -> Iterator[LogEntry]:
        """Yield the same lines as objects with time, level, rank and text; also takes `node_ids`.

        Example::

            [entry.text for entry in trial.iter_log_rows(tail=10)]
        """
        _logs.checked_lines(head, tail, follow)
        chosen = _logs.log_filter(**which)
        if follow:
            return _logs.follow(self._session, self.id, chosen)
        return _logs.read(self._session, self.id, chosen, head=head, tail=tail)

    logs = iter_logs  # an older name

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

            newest = trial.list_checkpoints(client.CheckpointSortBy.BATCH_NUMBER, client.OrderBy.DESC, 1)[0]
        """
        return find_checkpoints(self._session, sort_by, order_by, max_results, trial_id=self.id)

    def all_checkpoints(self) -> Listing[Checkpoint]:
        """Return every checkpoint that it saved, in order of steps, also those whose files are gone.

        Example::

            [(checkpoint.steps_completed, checkpoint.state) for checkpoint in trial.all_checkpoints()]
        """
        return all_checkpoints(self._session, trial_id=self.id)

    get_checkpoints = list_checkpoints  # an older name

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """Return its best checkpoint.

        Example::

            trial.top_checkpoint("accuracy", smaller_is_better=False).download()
        """
        return self.select_checkpoint(best=True, sort_by=sort_by, smaller_is_better=smaller_is_better)

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """Return one of its checkpoints: say which in exactly one way.

        Args:
            latest: The one furthest in training.
            best: The best by the searcher metric, or by `sort_by`.
            uuid: This one, by its id or by as much of its beginning as only it has.
            sort_by: A validation metric, with `best`.
            smaller_is_better: Which values of it are better.

        Raises:
            NotFound: There is none.

        Example::

            trial.select_checkpoint(latest=True).steps_completed
        """
        if sum((latest, best, uuid is not None)) != 1:
            raise AssertionError("Say which checkpoint in exactly one way: latest=True, best=True or uuid=...")
        if sort_by is not None and not best:
            raise AssertionError("sort_by and smaller_is_better go with best=True.")
        if uuid is not None:
            found: Sequence[Checkpoint] = beginning(self.all_checkpoints(), uuid)
        elif latest:
            found = self.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC)
        else:
            found = validated(self.list_checkpoints(*_enums.best_by(sort_by, smaller_is_better)), sort_by)
        if not found:
            listing = f"det checkpoint ls -t {self.id}"
            if best:
                raise none_is_best(f"Trial {self.id}", self.list_checkpoints(), sort_by, listing)
            what = f"checkpoint {uuid}" if uuid else "checkpoint"
            raise NotFound(f"Trial {self.id} has no {what}. See what it has: {listing}")
        return found[0]

    # What can be asked of it.

    def stop(self) -> None:
        """Ask the running process to save a checkpoint at the next safe point, and leave. It works for every run.

        A trial that has ended is left alone. Watch it end with `iter_logs(follow=True)`.

        Example::

            client.get_trial(12).stop()
        """
        _actions.stop(self._session, self.id)

    def kill(self) -> None:
        """Stop a trial now, without a last checkpoint. Only a controller can; a run of `python train.py` has none.

        Raises:
            NoController: Nobody can. The message says what to do instead.

        Example::

            client.get_trial(12).kill()
        """
        _actions.act(self._session, "kill", trial_id=self.id)

    # Older names.

    stream_metrics = iter_metrics

    def stream_training_metrics(self) -> Iterator[TrialMetrics]:
        """Yield training reports: an older name of `iter_metrics("training")`."""
        return self.iter_metrics("training")

    def stream_validation_metrics(self) -> Iterator[TrialMetrics]:
        """Yield validation reports: an older name of `iter_metrics("validation")`."""
        return self.iter_metrics("validation")
