"""The life of an experiment with a real controller, real agents and real scripts: 4.1 to 4.7 of the contract."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined import errors
from determined.store import attempts
from determined.store.messages import MetricReport
from determined.store.metrics import metric_reports
from tests.lifecycles import Lab

RANDOM: dict[str, Any] = {
    "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
    "searcher": {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2},
}

# Trains until it is asked to stop, and leaves with a checkpoint. `go` lets it finish by itself.
PATIENT = """
with core.init() as context:
    step = restored(context)
    note(start=step)
    while not is_told("go"):
        step += 1
        context.train.report_training_metrics(step, {"loss": 1 / step})
        time.sleep(0.02)
        if context.preempt.should_preempt():
            save(context, step)
            note(left=step)
            break
    else:
        context.train.report_validation_metrics(step + 1, {"loss": 1 / (step + 1)})
        note(finished=step)
"""


def test_a_script_that_always_fails(lab: Lab) -> None:
    """P-47: with max_restarts 2 there are three launches, two restarts are shown, trial and experiment are ERROR.
    P-48: with a matching `cancel_retries` policy there is one launch, the trial has the label, and the log names
    pattern and line. An entry point that is not there fails as often, and the log says what was not found.
    """
    failing = lab.code("note(began=True)\nprint('disk quota exceeded on /x')\nsys.exit(1)")
    often = lab.submit(failing, max_restarts=2)
    policy = {"name": "quota", "pattern": "quota.*exceeded", "action": "cancel_retries"}
    once = lab.submit(failing, max_restarts=2, log_policies=[policy])
    missing = lab.submit(failing, entrypoint=["no-such-program", "train.py"])
    assert [lab.end(each) for each in (often, once, missing)] == ["ERROR"] * 3
    assert len(lab.notes(often)) == 3
    trial = lab.only_trial(often)
    assert (trial.restarts, str(trial.state.value)) == (2, "ERROR")
    assert [row.exit_code for row in lab.attempts(often)] == [1, 1, 1]
    assert len(lab.notes(once)) == 1
    trial = lab.only_trial(once)
    assert (trial.restarts, trial.log_policy_matched) == (0, "quota")
    said = "".join(trial.iter_logs(sources=["controller"]))
    assert "quota.*exceeded" in said
    assert "disk quota exceeded on /x" in said
    assert "no-such-program" in lab.log(missing)
    assert [row.exit_code for row in lab.attempts(missing)] == [127]


def test_secrets_reach_the_trial_alone(lab: Lab, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-09: the trial has `abc`; config, log and the files of the store have not. Purged, no file of it is left."""
    script = """
    note(secret=info.user_data["secrets"]["t"], password=os.environ["DB_PASSWORD"])
    print("config:", info.trial._config["data"], os.environ["DB_PASSWORD"])
    """
    notes = {"environment_variables": [f"NOTES={lab.directory / 'notes'}", "DB_PASSWORD=hunter2hunter2"]}
    experiment = lab.submit(script, data={"secrets": {"t": "abcSECRETabc"}}, environment=notes)
    assert lab.end(experiment) == "COMPLETED"
    (found,) = lab.notes(experiment)
    assert (found["secret"], found["password"]) == ("abcSECRETabc", "hunter2hunter2")
    assert experiment.config["data"] == {"secrets": {"t": "********"}}
    assert "abcSECRETabc" not in str(experiment.config)
    assert len(list((home / "secrets").iterdir())) == len(list((home / "code").iterdir())) == 1
    said = "".join(lab.only_trial(experiment).iter_logs(sources=["controller"]))
    assert "abcSECRETabc" not in said
    assert "hunter2hunter2" not in said
    experiment.delete()
    monkeypatch.setenv("DET_UNDELETE_DAYS", "0")
    assert lab.client.store.purge().experiments == [experiment.id]
    assert list((home / "secrets").iterdir()) == list((home / "code").iterdir()) == []


def test_invalid_hyperparameters_are_replaced(lab: Lab) -> None:
    """P-37: where the first trial raises InvalidHP, random max_trials 3 has 4 trials; all are COMPLETED, 3 trained."""
    script = """
    with core.init() as context:
        if not is_told("first"):
            (notes / "first").touch()
            raise determined.InvalidHP("too large")
        context.train.report_validation_metrics(1, {"loss": 1.0})
        note(trained=True)
    """
    searcher = {**RANDOM["searcher"], "max_trials": 3, "max_concurrent_trials": 1}
    experiment = lab.submit(script, hyperparameters=RANDOM["hyperparameters"], searcher=searcher)
    assert lab.end(experiment) == "COMPLETED"
    assert [str(trial.state.value) for trial in experiment.list_trials()] == ["COMPLETED"] * 4
    assert len(lab.notes(experiment)) == 3


def test_pause_and_resume(lab: Lab) -> None:
    """P-49: paused, the trial saves and leaves; resumed, attempt 2 goes on from there, with no restart charged.
    P-52: activated before the process is gone, exactly one new attempt runs.
    """
    experiment = lab.submit(PATIENT)
    lab.started(experiment)
    experiment.pause()
    (left,) = lab.noted(experiment, "left")
    lab.until(lambda: lab.no_attempt_runs(experiment))
    assert lab.only_trial(experiment).state.value == "PAUSED"
    experiment.activate()
    second = lab.started(experiment, 2)[1]
    assert (second["start"], second["attempt"]) == (left["left"], 2)
    experiment.pause()
    experiment.activate()
    third = lab.started(experiment, 3)[2]
    assert third["attempt"] == 3
    lab.tell("go")
    assert lab.end(experiment) == "COMPLETED"
    trial = lab.only_trial(experiment)
    assert (trial.restarts, len(trial.attempts())) == (0, 3)


def test_pause_of_scripts_that_do_not_listen(lab: Lab) -> None:
    """P-50: one that ignores the signal is killed after `preemption_timeout`, and goes on when activated.
    P-51: one that finishes with exit 0 meanwhile, without having acknowledged, is COMPLETED.
    """
    deaf = """
    with core.init() as context:
        note(start=True)
        wait_for("deaf may end")
    """
    deaf_one = lab.submit(deaf, preemption_timeout=2)
    finishing = lab.submit(deaf.replace("deaf may end", "other may end"), preemption_timeout=600)
    lab.started(deaf_one)
    lab.started(finishing)
    deaf_one.pause()
    finishing.pause()
    lab.tell("other may end")
    lab.until(lambda: lab.only_trial(finishing).state.value == "COMPLETED")
    finishing.reload()
    assert finishing.state.value == "COMPLETED"
    lab.until(lambda: lab.no_attempt_runs(deaf_one), seconds=30)
    (first,) = lab.attempts(deaf_one)
    assert first.killed
    assert lab.only_trial(deaf_one).state.value == "PAUSED"
    lab.tell("deaf may end")
    deaf_one.activate()
    assert lab.end(deaf_one) == "COMPLETED"
    assert (lab.only_trial(deaf_one).restarts, len(lab.attempts(deaf_one))) == (0, 2)


def test_cancel_and_kill(lab: Lab) -> None:
    """P-54: canceled, a trial takes a checkpoint and is CANCELED. Killed, it is gone with all its children, daemons
    in sessions of their own included, however deaf they are.
    """
    canceled = lab.submit(PATIENT)
    daemons = """
    import signal, subprocess
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", deaf])
    daemon = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, env={"PATH": ""})
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note(daemon=os.getpid())
            time.sleep(600)
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(pids=[os.getpid(), child.pid, daemon.pid])
    time.sleep(600)
    """
    killed = lab.submit(daemons)
    lab.started(canceled)
    (noted,) = lab.noted(killed, "pids")
    pids = [*noted["pids"], lab.noted(killed, "daemon")[0]["daemon"]]
    with pytest.raises(errors.Refused):
        killed.delete()
    began = time.monotonic()
    killed.kill()
    lab.until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert time.monotonic() - began < 10
    canceled.cancel()
    assert [lab.end(killed), lab.end(canceled)] == ["CANCELED", "CANCELED"]
    assert lab.only_trial(killed).state.value == "CANCELED"
    (left,) = lab.noted(canceled, "left")
    (saved,) = canceled.list_checkpoints()
    assert saved.metadata["steps_completed"] == left["left"]
    killed.kill()  # once more does nothing
    canceled.cancel()


def test_kill_one_trial(lab: Lab) -> None:
    """P-55: one of two random trials killed, the other completes and the experiment is COMPLETED."""
    experiment = lab.submit(PATIENT, **RANDOM)
    lab.started(experiment, 2)
    first, second = experiment.list_trials()
    first.kill()
    lab.tell("go")
    assert lab.end(experiment) == "COMPLETED"
    first.reload()
    second.reload()
    assert (first.state.value, second.state.value) == ("CANCELED", "COMPLETED")


def test_a_crash_after_the_checkpoint(lab: Lab) -> None:
    """P-56: what attempt 1 reported after its checkpoint is replaced by what attempt 2 reports, and is seen once.
    P-69: attempt 2 runs the code as it was submitted, though the directory was changed meanwhile.
    P-58: a late report of attempt 1 is refused, and changes nothing.
    """
    code = lab.code(
        """
    with core.init() as context:
        begin = restored(context)
        note(start=begin, code="submitted")
        for step in range(begin + 10, 40, 10):
            context.train.report_training_metrics(step, {"loss": step + attempt / 10})
            if step == 20:
                save(context, step)
        if attempt == 1:
            context.train.report_validation_metrics(30, {"loss": 0.0})
            wait_for("crash")
            os.kill(os.getpid(), 9)
        wait_for("go")
    """
    )
    experiment = lab.submit(code, max_restarts=1)
    lab.started(experiment)
    (code / "train.py").write_text("from acting import *\nnote(code='edited')")
    trial = lab.only_trial(experiment)
    lab.until(lambda: len(list(trial.iter_metrics("training"))) == 3)
    lab.tell("crash")
    lab.started(experiment, 2)
    assert [note["code"] for note in lab.notes(experiment)] == ["submitted"] * 2
    lab.until(lambda: [row.metrics["loss"] for row in trial.iter_metrics("training")][-1:] == [30.2])
    old = lab.attempts(experiment)[0]
    late = attempts.Attempt(old.allocation_id, old.task_id, trial.id, experiment.id, 1, None)
    with pytest.raises(errors.StaleAttempt), lab.store.write() as conn:
        metric_reports.append(conn, late, [MetricReport("training", 40, {"loss": 0.0})])
    lab.tell("go")
    assert lab.end(experiment) == "COMPLETED"
    seen = [(row.steps_completed, row.metrics["loss"]) for row in trial.iter_metrics("training")]
    assert seen == [(10, 10.1), (20, 20.1), (30, 30.2)]
    trial.reload()
    assert trial.restarts == 1


def test_warm_start(lab: Lab) -> None:
    """P-62: started from a trial with two checkpoints, a trial has the newer one as its latest, and 0 steps."""
    source = lab.submit("with core.init() as context:\n    save(context, 1)\n    save(context, 2)")
    assert lab.end(source) == "COMPLETED"
    newest = max(
        lab.only_trial(source).list_checkpoints(), key=lambda checkpoint: checkpoint.metadata["steps_completed"]
    )
    script = """
    with core.init() as context:
        note(latest=info.latest_checkpoint, held=restored(context), steps=int(os.environ["DET_STEPS_COMPLETED"]))
    """
    searcher = {"name": "single", "metric": "loss", "source_trial_id": lab.only_trial(source).id}
    experiment = lab.submit(script, searcher=searcher)
    assert lab.end(experiment) == "COMPLETED"
    (found,) = lab.notes(experiment)
    assert (found["latest"], found["held"], found["steps"]) == (newest.uuid, 2, 0)


def test_storage_and_hook(lab: Lab, tmp_path: Path) -> None:
    """P-67: where checkpoints cannot be stored, the trial fails before user code, with the storage in its log.
    P-68: the entry point sees what `startup-hook.sh` exports; one that returns non-zero fails the attempt.
    """
    file = tmp_path / "file"
    file.touch()
    nowhere = lab.submit("note(ran=True)", checkpoint_storage={"type": "directory", "container_path": f"{file}/x"})
    hooked = lab.submit(lab.code("note(a=os.environ['A'])", startup__hook_sh="export A=1"))
    refused = lab.submit(lab.code("note(ran=True)", startup__hook_sh="return 3"))
    assert [lab.end(each) for each in (nowhere, hooked, refused)] == ["ERROR", "COMPLETED", "ERROR"]
    assert str(file) in lab.log(nowhere)
    assert "storage" in lab.log(nowhere)
    assert [note["a"] for note in lab.notes(hooked)] == ["1"]
    assert lab.notes(nowhere) == lab.notes(refused) == []
    assert [row.exit_code for row in lab.attempts(refused)] == [3]
