from __future__ import annotations

import os
import signal

import pytest

from determined.launch import _agent, _roster

NO_SUCH_PID = 2**22 + 1  # above what Linux hands out


@pytest.fixture
def roster():
    with _roster.Roster() as roster:
        yield roster


class Agent:
    """Stands in for the process of torch's launcher."""

    def __init__(self) -> None:
        self.had: list[str] = []

    def terminate(self) -> None:
        self.had.append("TERM")

    def kill(self) -> None:
        self.had.append("KILL")


@pytest.fixture
def entry():
    """Find the entry of a worker as it does. It closes with the process of a worker; here the test closes it."""
    taken = []

    def find(roster, rank, restart="0", max_restarts="0"):
        variables = {"TORCHELASTIC_RESTART_COUNT": restart, "TORCHELASTIC_MAX_RESTARTS": max_restarts}
        own = set(variables)
        variables.update(roster.variables(for_torch_logs=True))
        taken.append(_roster.Entry.find(rank, variables))
        assert set(variables) == own  # workers do not see ours
        return taken[-1]

    yield find
    for one in taken:
        os.close(one._alive)


def ended(rank, code, at=1.0, was_told=False, blames_another=False, said=()):
    return _roster.WorkerEnd(rank, code, at, was_told, blames_another, list(said))


def test_started_and_ended_workers_are_seen(roster, entry):
    """The launcher learns the process ids when a worker starts, and its code when it ends."""
    one = entry(roster, "1")
    one.write_start(123)
    roster.refresh()
    assert roster.present() == {"1.0": _roster.WorkerStart("1", os.getpid(), 123, last_try=True)}
    one.write_end(ended("1", 0))
    roster.refresh()
    assert roster.present() == {}
    assert roster.first_failure() is None


def test_the_first_failure_is_a_cause_and_not_a_consequence(roster, entry):
    """Ranks that were ended, or lost their connection, because another failed do not count as first."""
    for end in [
        ended("0", -15, at=1.0, was_told=True),
        ended("1", 1, at=4.0),
        ended("2", 1, at=3.0),
        ended("3", 1, at=2.0, blames_another=True),
        ended("4", 0, at=0.0),
    ]:
        entry(roster, end.rank).write_end(end)
    roster.refresh()
    assert roster.first_failure().rank == "2"


def test_who_was_on_its_way_out_when_told_to_stop_is_the_cause(roster, entry):
    """Issue 5: sys.exit(7) leaves no traceback, and the rank that misses it may end before it does."""
    for end in [
        ended("0", 7, at=3.0, was_told=True),
        ended("1", 1, at=1.0, blames_another=True),
        ended("2", 143, at=2.0, was_told=True),
    ]:
        entry(roster, end.rank).write_end(end)
    roster.refresh()
    assert roster.first_failure().code == 7


def test_a_failure_that_torch_will_restart_is_none_yet(roster, entry):
    """With `--max_restarts 1` the first failure does not end the run."""
    entry(roster, "0", restart="0", max_restarts="1").write_end(ended("0", 1))
    roster.refresh()
    assert roster.first_failure() is None
    entry(roster, "0", restart="1", max_restarts="1").write_end(ended("0", 2))
    roster.refresh()
    assert roster.first_failure().code == 2


def test_the_directory_is_private_and_goes_away():
    """Nothing of a run stays in /tmp."""
    with _roster.Roster() as roster:
        assert roster.directory.stat().st_mode & 0o777 == 0o700
        directory = roster.directory
    assert not directory.exists()


def test_without_a_launcher_there_is_no_entry_and_after_its_death_it_is_known(entry):
    """A worker notices that its launcher has died, also when it starts afterwards."""
    assert _roster.Entry.find("0", {}) is None
    with _roster.Roster() as roster:
        early = entry(roster, "0")
        assert not early.launcher_has_died()
    assert early.launcher_has_died()
    assert entry(roster, "1").launcher_has_died()


def test_after_a_failure_the_agent_is_asked_and_then_killed(roster, entry):
    """SIGTERM after 3 s, SIGKILL 10 s later, and neither before anything has failed."""
    watch, agent = _agent.Watch(roster), Agent()
    _agent.escalate(watch, agent, 100.0)
    entry(roster, "0").write_end(ended("0", 1))
    roster.refresh()
    _agent.escalate(watch, agent, 100.0)
    _agent.escalate(watch, agent, 102.9)
    assert agent.had == []
    _agent.escalate(watch, agent, 103.1)
    _agent.escalate(watch, agent, 112.9)
    assert agent.had == ["TERM"]
    _agent.escalate(watch, agent, 113.1)
    assert agent.had == ["TERM", "KILL"]


def test_a_wrapper_that_is_gone_has_failed_if_torch_says_so(roster):
    """It was killed, or the disk was full when it signed out: only torch's launcher, its parent, knows."""
    (roster.directory / "1.0.in").write_text(
        f'{{"rank": "1", "wrapper_pid": {NO_SUCH_PID}, "worker_pid": {NO_SUCH_PID}, "last_try": true}}'
    )
    watch = _agent.Watch(roster)
    _agent.look(watch)
    _agent.look(watch)
    assert roster.present() == {}
    assert roster.first_failure() is None
    assert roster.first_failure(include_lost=True).code == -signal.SIGKILL
    _agent.escalate(watch, agent := Agent(), 1.0)
    _agent.escalate(watch, agent, 100.0)
    assert agent.had == []


def test_a_signal_without_workers_goes_to_the_agent(roster):
    """SIGTERM in a rendezvous that nobody comes to ends it; SIGUSR1 is for workers only."""
    watch, agent = _agent.Watch(roster), Agent()

    def pass_time(now):
        _agent.deliver(watch, now)
        _agent.escalate(watch, agent, now)
        return agent.had

    watch.received.append(signal.SIGUSR1)
    assert pass_time(1.0) == []
    watch.received.append(signal.SIGTERM)
    assert pass_time(2.0) == ["TERM"]
    assert pass_time(11.0) == ["TERM"]
    assert pass_time(12.1) == ["TERM", "KILL"]


def test_a_signal_that_arrives_while_another_is_delivered_is_not_lost(roster, entry, monkeypatch):
    """12.2: a worker that answers at once may bring on the next signal before the last is written down as delivered."""
    watch, sent = _agent.Watch(roster), []
    entry(roster, "0").write_start(NO_SUCH_PID)
    roster.refresh()
    _agent.deliver(watch, 1.0)

    def send(_pid, number):
        sent.append(number)
        if number == signal.SIGHUP:
            watch.received.append(signal.SIGTERM)

    monkeypatch.setattr(_agent._processes, "send", send)
    watch.received.append(signal.SIGHUP)
    _agent.deliver(watch, 2.0)
    _agent.deliver(watch, 3.0)
    assert sent == [signal.SIGHUP, signal.SIGTERM]


def test_a_second_signal_while_the_agent_ends_well_does_not_spoil_it(roster, entry):
    """Workers that had the signal have ended; the agent needs a moment to see that, and gets it."""
    watch, agent = _agent.Watch(roster), Agent()
    one = entry(roster, "0")
    one.write_start(NO_SUCH_PID)
    one.write_end(ended("0", 0, was_told=True))
    roster.refresh()
    watch.received.append(signal.SIGTERM)
    for now in (2.0, 4.9):
        _agent.deliver(watch, now)
        _agent.escalate(watch, agent, now)
    assert agent.had == []
    _agent.escalate(watch, agent, 5.1)
    assert agent.had == ["TERM"]


FAILED = ended("1", 3, said=["ValueError: no"])
KILLED = ended("1", -9)


@pytest.mark.parametrize(
    ("code", "seen", "left_running", "failure", "expected"),
    [
        (0, {}, False, None, 0),
        (1, {}, False, None, 1),
        (-9, {}, True, None, 137),
        (1, {}, False, FAILED, 3),
        (1, {}, False, KILLED, 137),
        (-9, {"was_asked": True, "was_killed": True}, True, FAILED, 3),
        (0, {}, True, None, 77),
        (0, {}, False, FAILED, 77),
        (0, {"was_asked": True}, False, FAILED, 78),
        (0, {"was_asked": True, "was_killed": True}, False, FAILED, 79),
    ],
)
def test_the_exit_code_is_the_first_failures_and_never_a_false_success(
    roster, code, seen, left_running, failure, expected
):
    """12.2: the agent's code, or 77, 78, 79 where that would be 0; a worker's own code passes through."""
    assert _agent.exit_code(code, _agent.Watch(roster, **seen), left_running, failure) == expected


def test_the_report_names_the_rank_and_ends_with_its_words():
    """A clear heading, then the last lines of that rank."""
    assert _agent.report(FAILED) == "\nrank 1 failed first (exit code 3):\nValueError: no\n"
    assert "rank 1 failed first (killed by SIGKILL, which the kernel sends" in _agent.report(KILLED)
