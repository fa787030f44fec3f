"""A store with a past, made quickly: experiments, trials, metrics, logs, and checkpoints that are really on disk.

history = History(tmp_path)
trial = history.run("cifar", hparams={"lr": 0.1}, validation={100: 0.9, 200: 0.7}, checkpoints=[100, 200])
client.Determined(store=history.place).get_trial(trial.trial_id)
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from determined import _process
from determined.artifacts import open_storage
from determined.store import attempts, checkpoints, experiments, logs, trials
from determined.store.attempts import Attempt
from determined.store.database.connection import Store, open_store
from determined.store.messages import CheckpointReport, LogLine, MetricReport
from determined.store.metrics import metric_reports

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
METRIC = "loss"


@dataclasses.dataclass
class Run:
    """One trial that was recorded: its ids, and the checkpoint at each step."""

    experiment_id: int
    trial_id: int
    attempt: Attempt
    checkpoints: dict[int, str] = dataclasses.field(default_factory=dict)

    @property
    def uuids(self) -> list[str]:
        return list(self.checkpoints.values())


class History:
    """Fills a store. Times are made up and rise with every row, so that nothing depends on the clock.

    Args:
        root: Where `runs.db` and `checkpoints/` are made.
        place: Another store, for example a PostgreSQL one.
    """

    def __init__(self, root: Path, place: str | Path | None = None) -> None:
        self.root = root
        self.place = place or _empty(root / "runs.db")
        self.store: Store = open_store(self.place)
        self.storage = {"type": "directory", "container_path": str(root / "checkpoints")}
        self._now = START

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    def tick(self, seconds: float = 1.0) -> datetime.datetime:
        """The next moment."""
        self._now += datetime.timedelta(seconds=seconds)
        return self._now

    def catch_up(self) -> None:
        """From here on, made-up times are those of the clock: a run elsewhere that just reported is not gone."""
        self._now = datetime.datetime.now(datetime.timezone.utc)

    def run(self, name: str = "train.py", *, state: str = "COMPLETED", **what: Any) -> Run:
        """An experiment of one trial: what `python train.py` leaves. See `experiment` and `trial` for the rest."""
        of_trial = {key: what.pop(key) for key in list(what) if key in TRIAL_ARGUMENTS}
        return self.trial(self.experiment(name, **what), state=state, **of_trial)

    def experiment(
        self,
        name: str = "train.py",
        *,
        config: dict[str, Any] | None = None,
        owner: str = "ada",
        labels: Iterable[str] = (),
        smaller_is_better: bool = True,
        metric: str | None = METRIC,
        unmanaged: bool = True,
        script: str | None = "/home/ada/train.py",
        state: str = "RUNNING",
        **more: Any,
    ) -> int:
        """An experiment without trials; returns its id."""
        with self.store.write() as conn:
            return experiments.create(
                conn,
                name=name,
                config=config or {},
                owner=owner,
                labels=labels,
                smaller_is_better=smaller_is_better,
                searcher_metric=metric,
                unmanaged=unmanaged,
                script=script if unmanaged else None,
                state=state,
                start_time=self.tick(),
                **more,
            )

    def trial(
        self,
        experiment_id: int,
        *,
        hparams: dict[str, Any] | None = None,
        state: str = "COMPLETED",
        training: Mapping[int, float | dict[str, Any]] | None = None,
        validation: Mapping[int, float | dict[str, Any]] | None = None,
        checkpoints: Sequence[int] = (),
        lines: Sequence[str] = (),
        environment: dict[str, Any] | None = None,
        seed: int = 0,
        node: str | None = None,
        pid: int | None = None,
        process_started: float | None = None,
        tensorboard: str | None = None,
        warm_start: str | None = None,
        slots: int = 1,
    ) -> Run:
        """A trial with one attempt.

        Args:
            experiment_id: Whose.
            hparams: Its hyperparameters.
            state: How it ended; `RUNNING` leaves it running, as this very process unless `pid` says otherwise.
            training: Steps to loss, or to a dict of metrics.
            validation: The same, of validations.
            checkpoints: Steps at which to save one.
            lines: What it printed.
            environment: What it ran in.
            seed: Its seed.
            node: The machine; this one by default.
            pid: The process; this one by default.
            process_started: When the process began.
            tensorboard: Where its event files are.
            warm_start: The checkpoint it started from.
            slots: How many ranks it had.
        """
        with self.store.write() as conn:
            trial_id = trials.create(
                conn,
                experiment_id,
                hparams=hparams or {},
                seed=seed,
                warm_start_checkpoint_uuid=warm_start,
                start_time=self.tick(),
            )
        mine = pid is None
        run = self.attempt(
            Run(experiment_id, trial_id, None),  # type: ignore[arg-type]  # the attempt is what is made
            environment=environment,
            node=_process.this_node() if node is None else node,
            pid=os.getpid() if mine else pid,
            process_started=_process.started() if mine else process_started,
            tensorboard=tensorboard,
            slots=slots,
        )
        self.report(run, "training", training or {})
        self.report(run, "validation", validation or {})
        for steps in checkpoints:
            self.save(run, steps)
        self.log(run, lines)
        if state != "RUNNING":
            self.end(run, state)
        return run

    def attempt(self, run: Run, **what: Any) -> Run:
        """The next attempt of a trial."""
        with self.store.write() as conn:
            run.attempt = attempts.begin(conn, run.trial_id, run_name=uuid.uuid4().hex, time=self.tick(), **what)
        return run

    def report(self, run: Run, group: str, values: Mapping[int, float | dict[str, Any]]) -> None:
        """Steps to loss, or to a dict of metrics."""
        reports = [
            MetricReport(group, value if isinstance(value, dict) else {METRIC: value}, steps, time=self.tick())
            for steps, value in values.items()
        ]
        with self.store.write() as conn:
            metric_reports.append(conn, run.attempt, reports)

    def save(self, run: Run, steps: int, content: bytes = b"weights", storage_id: str | None = None) -> str:
        """A checkpoint, on disk and recorded."""
        storage_id = storage_id or str(uuid.uuid4())
        draft = open_storage(self.storage).draft(storage_id)
        metadata = {"steps_completed": steps}
        entries = {
            **draft.put_bytes("state_dict.pth", content),
            **draft.put_bytes("metadata.json", b'{"steps_completed": %d}' % steps),
        }
        resources = draft.publish(entries).resources
        draft.discard()
        with self.store.write() as conn:
            report = CheckpointReport(storage_id, metadata, resources, time=self.tick())
            checkpoints.record(conn, run.attempt, report, self.storage)
        run.checkpoints[steps] = storage_id
        return storage_id

    def log(self, run: Run, lines: Sequence[str], *, stream: str = "stdout", rank: int = 0) -> None:
        """Lines that were printed."""
        with self.store.write() as conn:
            logs.append(conn, run.attempt, [LogLine(line, stream, rank, time=self.tick()) for line in lines])

    def end(self, run: Run, state: str = "COMPLETED", reason: str = "") -> None:
        """The attempt is over."""
        with self.store.write() as conn:
            moment = self.tick()
            code = 0 if state == "COMPLETED" else 1
            attempts.end(conn, run.attempt.allocation_id, exit_code=code, time=moment)
            trials.set_state(conn, run.trial_id, state, reason, time=moment)


_made: list[bytes] = []


def _empty(path: Path) -> Path:
    """An empty store, made once per process and copied: making tables takes longer than most tests."""
    if not _made:
        open_store(path).close()
        _made.append(path.read_bytes())
    else:
        path.write_bytes(_made[0])
    return path


TRIAL_ARGUMENTS = {
    "hparams",
    "training",
    "validation",
    "checkpoints",
    "lines",
    "environment",
    "seed",
    "node",
    "pid",
    "process_started",
    "tensorboard",
    "warm_start",
    "slots",
}
