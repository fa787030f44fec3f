"""core_v2: a run that describes itself, with its output and its end on record."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.core import _detached
from determined.experimental import core_v2
from determined.store.messages import LogLine, RunStateReport
from tests.fakes import MemoryLink


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> MemoryLink:
    link = MemoryLink()
    monkeypatch.setattr(_detached, "choose_link", lambda *_: link)
    return link


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    core_v2.close()


CONFIG = core_v2.Config(name="mine", hparams={"lr": 0.1}, data={"path": "x"})


def test_the_module_is_the_context(link: MemoryLink) -> None:
    """Contract 10: init() sets the module's attributes; close() takes them away again."""
    core_v2.init(config=CONFIG)
    core_v2.train.report_training_metrics(1, {"loss": 1.0})
    assert core_v2.info is not None
    assert core_v2.info.trial.hparams == {"lr": 0.1}
    assert core_v2.info.user_data == {"path": "x"}
    assert core_v2.distributed.rank == 0
    core_v2.close()
    with pytest.raises(AttributeError, match=r"core_v2.train is there after core_v2.init\(\)"):
        _ = core_v2.train


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_is_on_record(link: MemoryLink, fails: bool) -> None:
    """C-70: COMPLETED after a normal end, ERROR after an exception."""

    def run() -> None:
        with core_v2.init_context(config=CONFIG):
            if fails:
                raise KeyError

    if fails:
        with pytest.raises(KeyError):
            run()
    else:
        run()
    assert [r.state for r in link.of(RunStateReport)] == ["RUNNING", "ERROR" if fails else "COMPLETED"]


def test_output_is_shown_and_sent(link: MemoryLink, capsys: pytest.CaptureFixture[str]) -> None:
    """C-71, P-77, 10 Better: prints appear and are sent line by line with their time; streams come back afterwards."""
    before = (sys.stdout, sys.stderr, sys.excepthook, sys.exit)
    with core_v2.init_context(config=CONFIG):
        print("one")
        print("two", file=sys.stderr)
        print("10%\r50%\r100%")
        print("no newline", end="")
    assert (sys.stdout, sys.stderr, sys.excepthook, sys.exit) == before
    shown = capsys.readouterr()
    assert shown.out == "one\n10%\r50%\r100%\nno newline"
    assert shown.err == "two\n"
    lines = link.of(LogLine)
    assert [(line.text, line.stream) for line in lines] == [
        ("one", "stdout"),
        ("two", "stderr"),
        ("10%", "stdout"),
        ("50%", "stdout"),
        ("100%", "stdout"),
        ("no newline", "stdout"),
    ]
    assert [line.time for line in lines] == sorted(line.time for line in lines)


def test_printing_works_when_sending_does_not(link: MemoryLink, capsys: pytest.CaptureFixture[str]) -> None:
    """10 Better: a link that refuses lines never blocks or breaks print."""
    context = core_v2.init_context(config=CONFIG).start()
    context._shipper.flush()
    link.trouble = ValueError("no")
    for i in range(5000):
        print(i)
    with pytest.raises(ValueError, match="no"):
        context.close()
    assert capsys.readouterr().out.count("\n") == 5000


def test_it_needs_a_description() -> None:
    """Contract 10: neither config nor defaults outside a cluster is a ValueError."""
    with pytest.raises(ValueError, match="config="):
        core_v2.init_context()


def test_an_external_trial_needs_an_external_experiment() -> None:
    """Contract 10: external trial id without external experiment id is a NotImplementedError."""
    with pytest.raises(NotImplementedError, match="external_experiment_id"):
        core_v2.init_context(config=core_v2.Config(external_trial_id="t"))


def test_older_config_names_warn() -> None:
    """Contract 10: DefaultConfig and UnmanagedConfig are aliases with a FutureWarning."""
    with pytest.warns(FutureWarning, match=r"core_v2\.Config"):
        core_v2.DefaultConfig(name="x")
    with pytest.warns(FutureWarning, match=r"core_v2\.Config"):
        core_v2.UnmanagedConfig(external_experiment_id="x")


def test_a_run_has_an_address() -> None:
    """url_reverse_webui_exp_view() points at the run's event files."""
    core_v2.init(config=CONFIG)
    core_v2.train.report_training_metrics(1, {"loss": 1.0})
    address = core_v2.url_reverse_webui_exp_view()
    core_v2.close()
    assert address.startswith("file://")
    assert list(Path(address.removeprefix("file://")).glob("events*"))
