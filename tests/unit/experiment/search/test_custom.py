"""A user's own search methods: found in the context directory, native or of before 0.38, and safe against crashes."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from determined import errors, searcher
from determined.experiment.search import base, methods, runner
from determined.experiment.search.base import ExitedReason
from tests.searches import Player, config, reloaded, report, shape, space

NATIVE = """
from neighbour import AT_ONCE
from determined.experiment.search.base import SearchMethod

class Rest:
    class Inner(SearchMethod):
        def __init__(self, trials=1):
            self.trials = trials * AT_ONCE
        def initial_trials(self, ctx):
            return [ctx.create() for _ in range(self.trials)]

class NoMethod:
    pass

not_a_class = 3
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "my_search.py").write_text(NATIVE)
    (directory / "neighbour.py").write_text("AT_ONCE = 2")
    (directory / "broken.py").write_text("import nowhere_to_be_found")
    return directory


class TestLoading:
    @pytest.mark.parametrize("key", ["class", "entrypoint"])
    def test_a_class_of_the_context_directory(self, code: Path, key: str) -> None:
        """3.7: the class is found with its neighbours, is given `args`, and leaves no module behind."""
        section = config("custom", **{key: "my_search:Rest.Inner", "args": {"trials": 3}})
        player = Player(section, custom=methods.load(section, code)).start()
        assert len(player.trials) == 6
        assert "my_search" not in sys.modules
        assert not (code / "__pycache__").exists()

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({}, "expected module:Class"),
            ({"class": "my_search"}, "expected module:Class"),
            ({"class": "elsewhere:X"}, "no module 'elsewhere'"),
            ({"class": "my_search:Missing"}, "no class 'Missing'"),
            ({"class": "my_search:not_a_class"}, "no class 'not_a_class'"),
            ({"class": "my_search:NoMethod"}, "no search method"),
            ({"class": "my_search:Rest.Inner", "args": {"speed": 1}}, "does not take searcher.args"),
        ],
    )
    def test_mistakes_say_what_to_do(self, code: Path, fields: dict[str, Any], words: str) -> None:
        """Each mistake is one sentence with the value."""
        with pytest.raises(errors.SearchError, match=words):
            methods.load(config("custom", **fields), code)

    def test_a_broken_module_says_itself_what_is_wrong(self, code: Path) -> None:
        """What the user's module cannot import is their error, shown as it is."""
        with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
            methods.load(config("custom", **{"class": "broken:X"}), code)


class Halves(searcher.SearchMethod):
    """Two trials; each is closed at its second notification. Remembers how often it was notified."""

    def __init__(self) -> None:
        self.notified: dict[str, int] = {}
        self.calls: list[tuple[Any, ...]] = []

    def initial_operations(self, searcher_state: searcher.SearcherState) -> list[searcher.Operation]:
        ids = [uuid.UUID(int=n) for n in (1, 2)]
        made: list[searcher.Operation] = [searcher.Create(i, {"lr": 0.1, "global_batch_size": 8}, None) for i in ids]
        return [*made, *(searcher.ValidateAfter(i, 10) for i in ids), searcher.Progress(0.25)]

    def on_trial_created(self, searcher_state: searcher.SearcherState, request_id: uuid.UUID) -> Any:
        self.calls.append(("created", request_id.int))
        return []

    def on_validation_completed(
        self, searcher_state: searcher.SearcherState, request_id: uuid.UUID, metric: Any, train_length: int
    ) -> Any:
        self.calls.append(("validated", request_id.int, metric, train_length))
        count = self.notified[str(request_id)] = self.notified.get(str(request_id), 0) + 1
        return [searcher.Close(request_id)] if count == 2 else [searcher.ValidateAfter(request_id, 2 * train_length)]

    def on_trial_closed(self, searcher_state: searcher.SearcherState, request_id: uuid.UUID) -> Any:
        self.calls.append(("closed", request_id.int))
        done = searcher_state.trials_closed == searcher_state.trials_created
        return [searcher.Shutdown()] if done else []

    def on_trial_exited_early(
        self, searcher_state: searcher.SearcherState, request_id: uuid.UUID, exited_reason: ExitedReason
    ) -> Any:
        self.calls.append(("early", request_id.int, exited_reason, set(searcher_state.failures)))
        return []

    def progress(self, searcher_state: searcher.SearcherState) -> float:
        return sum(searcher_state.trial_progress.values()) / 2

    def save_method_state(self, path: Path) -> None:
        (path / "deep").mkdir()
        (path / "deep" / "state.json").write_text(json.dumps(self.notified))

    def load_method_state(self, path: Path) -> None:
        self.notified = json.loads((path / "deep" / "state.json").read_text())


def older(unit: str | None = None) -> tuple[Halves, Player]:
    method = Halves()
    return method, Player(config("custom", unit=unit), custom=methods.adopt(method, unit)).start()


class TestOlderMethods:
    def test_operations_become_actions(self) -> None:
        """3.7: Create, ValidateAfter, Close, Shutdown; the first validation at or after the length is told."""
        method, player = older()
        assert [trial.request_id for trial in player.trials] == [str(uuid.UUID(int=n)) for n in (1, 2)]
        assert player.do(report(player[1], 0.9, 9)) == []
        assert player.do(report(player[1], 0.8, 12)) == []
        assert player.do(report(player[1], 0.7, 15)) == []
        assert player.do(report(player[1], 0.6, 20)) == [base.Stop(player[1])]
        assert method.calls == [("validated", 1, 0.8, 10), ("validated", 1, 0.6, 20)]
        player.exits(player[1])
        assert player.exits(player[2]) == [base.Shutdown()]

    def test_silence_until_it_asks_again(self) -> None:
        """3.7: without another ValidateAfter there is no other notification; the trial trains on."""
        method, player = older()
        for time in (10, 20, 30, 40):
            player.do(report(player[1], 0.5, time))
        assert method.calls == [("validated", 1, 0.5, 10), ("validated", 1, 0.5, 20)]

    def test_trial_seeds_come_from_the_generator(self) -> None:
        """2.3: an older Create has no seed; it is drawn."""
        (_, one), (_, same) = older(), older()
        assert one.trials == same.trials
        assert one.trials[0].seed != one.trials[1].seed

    @pytest.mark.parametrize(
        ("unit", "metrics"),
        [
            ("epochs", {"epochs": 10}),
            ("records", {"records": 10}),
            ("records", {"batches": 2}),
            (None, {"batches": 10}),
        ],
    )
    def test_units(self, unit: str | None, metrics: dict[str, int]) -> None:
        """3.7: the time is by `unit`; records are batches times global_batch_size if not reported."""
        method, player = older(unit)
        player.do(base.ValidationCompleted(player[1], {"loss": 0.5, **metrics}, 1))
        assert method.calls == [("validated", 1, 0.5, 10)]

    def test_a_unit_that_is_not_reported_warns_once(self) -> None:
        """The method cannot be told, and the user is."""
        method, player = older("epochs")
        player.do(report(player[1], 0.5, 100))
        assert "unit: batches" in player.searcher.warnings[0]
        player.do(report(player[1], 0.5, 100))
        assert player.searcher.warnings == []
        assert method.calls == []

    def test_early_exits_are_told(self) -> None:
        """3.7: on_trial_exited_early, then on_trial_closed; a failed trial is in `failures`."""
        method, player = older()
        player.exits(player[1], ExitedReason.ERRORED)
        player.exits(player[2], ExitedReason.USER_CANCELED)
        failed = {uuid.UUID(int=1)}
        assert method.calls == [
            ("early", 1, ExitedReason.ERRORED, failed), ("closed", 1),
            ("early", 2, ExitedReason.USER_CANCELED, failed), ("closed", 2),
        ]  # fmt: skip

    def test_progress(self) -> None:
        """3.7: a Progress operation is shown; without one the method is asked."""
        method, player = older()
        assert player.searcher.progress() == 0.25
        method.initial_operations = lambda state: [searcher.Create(uuid.UUID(int=1), {}, None)]  # type: ignore[method-assign]
        player = Player(config("custom"), custom=methods.adopt(method)).start()
        player.do(base.TrialProgress(player[1], 0.5))
        assert player.searcher.progress() == 0.25

    def test_a_checkpoint_to_start_from(self) -> None:
        """3.7: Create's checkpoint becomes the trial's source."""
        method = Halves()
        method.initial_operations = lambda state: [searcher.Create(uuid.UUID(int=1), {}, "5d0c")]  # type: ignore[method-assign]
        player = Player(config("custom"), custom=methods.adopt(method)).start()
        assert player.trials[0].source_checkpoint_uuid == "5d0c"

    @pytest.mark.parametrize(
        "wrong", ["close", searcher.ValidateAfter(uuid.UUID(int=9), 1), searcher.Close(uuid.UUID(int=9))]
    )
    def test_mistakes_are_refused(self, wrong: Any) -> None:
        """What is no operation, or names a trial that was not created, is one sentence."""
        method = Halves()
        method.initial_operations = lambda state: [wrong]  # type: ignore[method-assign]
        with pytest.raises(errors.SearchError):
            Player(config("custom"), custom=methods.adopt(method)).start()

    def test_a_forgotten_return_is_said(self) -> None:
        """3.7: methods return lists of operations; one that returns nothing is told what to return."""
        method = Halves()
        method.initial_operations = lambda state: None  # type: ignore[method-assign]
        with pytest.raises(errors.SearchError, match=r"Halves returned None .* Return \[\]"):
            Player(config("custom"), custom=methods.adopt(method)).start()

    def test_a_restart_hands_the_files_back(self) -> None:
        """3.7: save_method_state and load_method_state carry the state; cut after every event."""
        _, player = older()
        for time in (10, 15, 20):
            player.searcher = reloaded(player.searcher, player.section, player.space, methods.adopt(Halves()))
            actions = player.do(report(player[1], 0.5, time))
        assert shape(actions) == ["Stop"]


class Crash(Exception):
    pass


class FakeExchange:
    """Events from a list; remembers what was applied; crashes where it is told to."""

    def __init__(self, events: Sequence[Any]) -> None:
        self.events = list(events)
        self.applied: list[tuple[int, Any]] = []
        self.crash_before: int | None = None
        self.crash_after: int | None = None

    def apply(self, answer: base.Answer) -> None:
        if answer.event == self.crash_before:
            raise Crash
        if not self.applied or self.applied[-1][0] < answer.event:
            self.applied.append((answer.event, answer.actions))
        if answer.event == self.crash_after:
            raise Crash

    def next_event(self, after: int) -> Any:
        return self.events[after] if after < len(self.events) else None


IDS = [str(uuid.UUID(int=n)) for n in (1, 2)]
STORY = [
    base.Initial(), *(base.TrialCreated(i) for i in IDS),
    *(report(i, 0.5, time) for time in (10, 15, 20) for i in IDS), *(base.TrialExited(i) for i in IDS),
]  # fmt: skip


class TestRunner:
    @pytest.mark.parametrize("moment", ["crash_before", "crash_after"])
    @pytest.mark.parametrize("number", range(1, len(STORY) + 1))
    def test_a_crash_repeats_nothing_and_loses_nothing(self, tmp_path: Path, moment: str, number: int) -> None:
        """3.7: saved before applying; after a crash it goes on without repeating an applied operation."""
        unbroken = FakeExchange(STORY)
        searcher.LocalSearchRunner(Halves()).run_with(unbroken, config("custom"), space())

        exchange = FakeExchange(STORY)
        setattr(exchange, moment, number)
        with pytest.raises(Crash):
            searcher.LocalSearchRunner(Halves(), tmp_path / "s").run_with(exchange, config("custom"), space())
        setattr(exchange, moment, None)
        over = searcher.LocalSearchRunner(Halves(), tmp_path / "s").run_with(exchange, config("custom"), space())
        assert exchange.applied == unbroken.applied
        assert over.is_over
        assert [path.name for path in (tmp_path / "s").iterdir()] == [runner.FILE]

    def test_a_config_of_another_search_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """3.7: what runs in this process is a custom search; nothing is submitted otherwise."""
        monkeypatch.setenv("DET_HOME", str(tmp_path))
        monkeypatch.setenv("DET_STORE", "")
        config = {"searcher": {"name": "random", "metric": "loss", "max_trials": 3}}
        with pytest.raises(errors.ConfigError, match=r"searcher.name is 'random'.*name: custom"):
            searcher.LocalSearchRunner(Halves()).run(config, ".")

    def test_what_is_no_search_method_is_refused_first(self) -> None:
        """Nothing is opened or created for it."""
        with pytest.raises(errors.SearchError, match="str is no search method"):
            searcher.LocalSearchRunner("mine").run({})  # type: ignore[arg-type]  # a mistake that people make

    def test_one_runner_at_a_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """3.7: two processes on one saved search would each apply operations of their own."""
        monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("DET_STORE", "")
        with runner._alone(tmp_path / "s"), pytest.raises(errors.SearchError, match="Another process runs the search"):
            searcher.LocalSearchRunner(Halves(), tmp_path / "s").run({})
