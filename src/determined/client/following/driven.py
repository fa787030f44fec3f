"""What a controller does for an experiment, and what can be asked of it: the part of `Experiment` about running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from determined import store
from determined.client import _actions
from determined.client._enums import ExperimentState
from determined.client._listing import Listing
from determined.client._session import Session
from determined.errors import InvalidValue

if TYPE_CHECKING:
    from determined.client._experiment import Experiment
    from determined.client.following.header import Header
    from determined.client.following.progress import Follower
    from determined.client.following.replay import Climb, Ladder, Verification
    from determined.experiment.search.rung_table import RungRow


class Driven:
    """An experiment as its controller sees it. `Experiment` adds its trials, its checkpoints and its texts."""

    id: int
    _session: Session
    _state: ExperimentState  # as stored: ACTIVE until somebody asks what that means

    def reload(self) -> None:
        """Read the fields again."""
        raise NotImplementedError

    @property
    def state(self) -> ExperimentState:
        """Its state; one that may run is QUEUED, STARTING or RUNNING, by the most advanced of its trials."""
        if self._state is ExperimentState.ACTIVE:
            from determined.experiment.lifecycle import State, shown_state

            with self._session.read() as conn:
                live = store.overview.running.live_states(conn, [self.id]).get(self.id, [])
            self._state = ExperimentState(shown_state(State.ACTIVE, live))
        return self._state

    def follower(self) -> Follower:
        """Return what looks at it again and again with little work, for a live view.

        Example::

            view = experiment.follower().read()
            print(view.state, view.counts())
        """
        from determined.client.following.progress import Follower

        return Follower(self._session, self.id)

    def header(self) -> Header:
        """Return its state, counts and best in one small read, however many trials it has.

        Example::

            print(experiment.header().counts)
        """
        from determined.client.following import header

        with self._session.read() as conn:
            return header.read(conn, self.id)

    def actions(self) -> dict[str, str]:
        """Return every action to an empty text, or to the sentence why it is not possible now.

        Example::

            assert experiment.actions()["pause"] == ""
        """
        from determined.client.following import possible

        with self._session.read() as conn:
            return possible.actions(conn, store.experiments.get(conn, self.id))

    def newest_events(
        self, limit: int = 100, *, before: int | None = None, kinds: Sequence[str] = ("STATE", "TRIAL_STATE")
    ) -> list[store.events.EventRow]:
        """Return its events of some kinds, the newest first.

        Args:
            limit: At most so many.
            before: Only those before the event of this id.
            kinds: Which.

        Example::

            experiment.newest_events(1)[0].body["reason"]
        """
        with self._session.read() as conn:
            return store.events.newest(conn, self.id, before_id=before, kinds=tuple(kinds), limit=limit)

    def rungs(self) -> Listing[RungRow]:
        """Return the rungs of an ASHA search: who arrived, went on and ended there; empty for other searches.

        Example::

            experiment.rungs().to_pandas()
        """
        from determined.client.following import replay

        return Listing(replay.ladder(self._session, self.id).rows)

    def ladder(self, climb: Climb | None = None) -> Ladder:
        """Return the rungs of an ASHA search with the trials that arrived at each, by bracket and rung.

        Example::

            [(trial.request_id, trial.value) for trial in experiment.ladder().trials[1, 1]]
        """
        from determined.client.following import replay

        return replay.ladder(self._session, self.id, climb)

    def trial_ids(self) -> dict[str, int]:
        """Return its trials by the ids that its search gave them.

        Example::

            {trial.request_id: experiment.trial_ids()[trial.request_id] for trial in experiment.ladder().trials[1, 1]}
        """
        with self._session.read() as conn:
            return store.trials.ids_by_request(conn, self.id)

    def verify(self) -> Verification:
        """Replay its events through a fresh search, and compare what comes out with what is stored.

        Example::

            assert experiment.verify().differences == []
        """
        from determined.client.following import replay

        return replay.verify(self._session, self.id)

    def activate(self) -> None:
        """Let it run, or run on. A controller is started if none is alive."""
        self._act("activate")

    def pause(self) -> None:
        """Have its trials checkpoint at their next safe point, and wait until `activate()`."""
        self._act("pause")

    def cancel(self) -> None:
        """Have its trials checkpoint and end. A run of `python train.py` has no controller: use `Trial.stop()`."""
        self._act("cancel")

    def kill(self) -> None:
        """End its trials now, without a last checkpoint."""
        self._act("kill")

    def _act(self, action: str) -> None:
        _actions.act(self._session, action, experiment_id=self.id)
        self.reload()

    def fork(
        self, config: Any = None, settings: Sequence[str] = (), *, text: str | None = None, paused: bool = False
    ) -> Experiment:
        """Submit its code again, with its own configuration or another.

        Args:
            config: A dict or the path of a file instead of its own configuration.
            settings: Values to change, `key=value` each.
            text: YAML instead of `config`. Secrets that are masked in it as `det experiment config` shows them are
                taken over.
            paused: Leave it PAUSED, until it is activated.

        Example::

            experiment.fork(settings=["hyperparameters.lr=0.1"]).wait()
        """
        from determined.client._experiment import Experiment
        from determined.experiment.submission.continuation import fork

        given = _given(config, text)
        made = fork(self._session.store, self.id, self._session.user, given, settings, paused=paused)
        with self._session.read() as conn:
            return Experiment(self._session, store.experiments.get(conn, made.experiment_id))

    def continue_(self, config: Any = None, settings: Sequence[str] = (), *, text: str | None = None) -> None:
        """Let it go on after its end, a single trial with changed values.

        Args:
            config: A dict or the path of a file with values to change.
            settings: Values to change, `key=value` each.
            text: YAML instead of `config`.

        Example::

            experiment.continue_(settings=["max_restarts=1"])
        """
        from determined.experiment.submission.continuation import continue_

        made = continue_(self._session.store, self.id, _given(config, text), settings)
        _actions.wait_handled(self._session, self.id, made.pending_id)
        self.reload()

    def set_resources(self, **changes: float | None) -> None:
        """Change its `priority`, `weight` or `max_slots` (None is no limit) in the queue, as long as it has not ended.

        Example::

            experiment.set_resources(priority=10, max_slots=None)
        """
        from determined.client.following import queue

        queue.set_resources(self._session, self.id, changes)
        self.reload()


def _given(config: Any, text: str | None) -> Any:
    """Return the configuration that is meant: a text is read, one that says nothing is none."""
    if text is None:
        return config
    if config is not None:
        raise InvalidValue("config and text are both given. Pass one of them.")
    from determined.experiment.submission.draft import read_text

    return read_text(text)
