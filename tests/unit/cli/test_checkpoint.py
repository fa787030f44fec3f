"""det checkpoint: what was saved is listed, verified, fetched, and removed only on purpose."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from tests.history import History
from tests.unit.cli.conftest import Det


def test_checkpoints_are_listed(det: Det, history: History) -> None:
    """Of an experiment, of a trial, or all of them; the newest last, or the best first."""
    one = history.run("one", validation={10: 0.5, 20: 0.9}, checkpoints=[10, 20])
    two = history.run("two", validation={10: 0.1}, checkpoints=[10])

    def listed(*words: object) -> list[str]:
        return [row["UUID"] for row in csv.DictReader(io.StringIO(det("c", "ls", "--csv", *words).stdout))]

    assert listed() == [*one.uuids, *two.uuids]
    assert listed(one.experiment_id) == one.uuids
    assert listed("-t", two.trial_id) == two.uuids
    assert listed(one.experiment_id, "--best", 1) == [one.checkpoints[10]]
    assert "--best needs" in det("c", "ls", "--best", 1, code=2).stderr  # metrics of several runs do not compare


def test_a_checkpoint_is_described_by_a_part_of_its_id(det: Det, history: History) -> None:
    """6.3: where it comes from, how good it is, its files; the beginning of an id is enough."""
    run = history.run("one", validation={10: 0.5}, checkpoints=[10])
    found = json.loads(det("c", "describe", run.uuids[0][:8], "--json").stdout)
    assert (found["uuid"], found["steps_completed"]) == (run.uuids[0], 10)
    assert found["validation_metrics"] == {"loss": 0.5}
    text = det("c", "describe", run.uuids[0]).stdout
    assert "state_dict.pth" in text


def test_a_checkpoint_is_downloaded(det: Det, history: History, tmp_path: Path) -> None:
    """6.3: `c download UUID -o D`; every mode reads the storage."""
    run = history.run("one", checkpoints=[10])
    for mode in ("direct", "master", "auto"):
        target = tmp_path / mode
        assert det("c", "download", run.uuids[0], "-o", target, "--mode", mode, "-q").stdout == f"{target}\n"
        assert (target / "state_dict.pth").read_bytes() == b"weights"


def test_damage_is_found(det: Det, history: History) -> None:
    """`c verify` reads every byte: ok, or what is wrong and exit 1."""
    run = history.run("one", checkpoints=[10, 20])
    assert det("c", "verify", ",".join(run.uuids)).stdout.count("  ok\n") == 2
    [file] = history.root.glob(f"checkpoints/**/{run.uuids[0]}/state_dict.pth")
    file.chmod(0o644)
    file.write_bytes(b"weighty")
    result = det("c", "verify", *run.uuids, code=1)
    assert f"{run.uuids[0]}  damaged: " in result.stdout
    assert f"{run.uuids[1]}  ok" in result.stdout
    assert "1 of 2" in result.stderr


def test_files_are_removed_only_if_asked_for(det: Det, history: History) -> None:
    """6.3: `rm --glob` asks and removes; without a glob it only looks again; `delete` takes everything."""
    run = history.run("one", checkpoints=[10])
    uuid = run.uuids[0]
    assert "COMPLETED, 2 files" in det("c", "rm", uuid).stderr
    det("c", "rm", uuid, "--glob", "*.pth", code=1, typed="n\n")
    assert "PARTIALLY_DELETED, 1 files" in det("c", "rm", uuid, "--glob", "*.pth", "--yes").stderr
    assert "cannot be undone" in det("c", "delete", uuid, typed="y\n").stderr
    assert json.loads(det("c", "describe", uuid, "--json").stdout)["state"] == "DELETED"
    assert not list(history.root.glob(f"checkpoints/**/{uuid}/*.pth"))


def test_a_registered_one_is_not_deleted(det: Det, history: History) -> None:
    """P-64: a checkpoint in the registry: `c delete` and `e delete` are refused."""
    run = history.run("one", checkpoints=[10])
    det("m", "create", "digits")
    det("m", "register-version", "digits", run.uuids[0][:10])
    assert "regist" in det("c", "delete", run.uuids[0], "--yes", code=1).stderr
    assert "regist" in det("e", "delete", run.experiment_id, "--yes", code=1).stderr


def test_models_have_numbered_versions(det: Det, history: History) -> None:
    """6.3: list, create, describe, list-versions, register-version, delete."""
    run = history.run("one", validation={10: 0.5}, checkpoints=[10, 20])
    assert (
        json.loads(det("m", "create", "digits", "--description", "ten of them", "--json").stdout)[0]["name"] == "digits"
    )
    for uuid in run.uuids:
        det("m", "register-version", "digits", uuid)
    versions = json.loads(det("m", "list-versions", "digits", "--json").stdout)
    assert [(row["version"], row["checkpoint_uuid"]) for row in versions] == [(2, run.uuids[1]), (1, run.uuids[0])]
    described = json.loads(det("m", "describe", "digits", "--version", 1, "--json").stdout)
    assert described["versions"][0]["checkpoint_uuid"] == run.uuids[0]
    assert "ten of them" in det("m").stdout
    det("m", "delete", "digits", typed="y\n")
    assert json.loads(det("m", "ls", "--json").stdout) == []


def test_a_bad_name_is_refused(det: Det) -> None:
    """P-90: a model named `123` or `a/b` is refused in one line."""
    for name in ("123", "a/b"):
        assert det("m", "create", name, code=1).stderr.count("\n") == 1
