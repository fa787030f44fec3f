"""`det experiment validate` and `det experiment schema`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from determined.cli.config_file import schema, validate

GOOD = "entrypoint: x\nsearcher: {name: single, metric: m}\n"


def test_a_good_file_is_ok(tmp_path: Path) -> None:
    """Valid: `FILE: ok` on stdout, warnings on stderr, exit code 0."""
    path = tmp_path / "experiment.yaml"
    path.write_text(GOOD + "scheduling_unit: 5\ndata: {a: off}\n")
    result = CliRunner().invoke(validate, [str(path)])
    assert result.exit_code == 0
    assert result.stdout == f"{path}: ok\n"
    assert "scheduling_unit" in result.stderr
    assert "line 4: off is text" in result.stderr


def test_all_problems_of_all_files_are_said(tmp_path: Path) -> None:
    """P-02, P-03: exit code 1, every problem with its path, every file looked at."""
    good, bad, broken = (tmp_path / name for name in ("good.yaml", "bad.yaml", "broken.yaml"))
    good.write_text(GOOD)
    bad.write_text(GOOD + "searchr: 1\nmax_restarts: -1\n")
    broken.write_text("a: 1\na: 2\n")
    result = CliRunner().invoke(validate, [str(bad), str(broken), str(tmp_path / "absent"), str(good)])
    assert result.exit_code == 1
    assert result.stdout == f"{good}: ok\n"
    assert f"{bad}: invalid experiment configuration\n" in result.stderr
    assert "<config>.searchr: " in result.stderr
    assert "<config>.max_restarts: " in result.stderr
    assert f"{broken}, line 2, column 1: " in result.stderr
    assert "absent cannot be read" in result.stderr


def test_overrides_are_checked_too(tmp_path: Path) -> None:
    """platform 6.1: --config changes what is checked."""
    path = tmp_path / "experiment.yaml"
    path.write_text(GOOD)
    result = CliRunner().invoke(validate, [str(path), "--config", "max_restarts=-1"])
    assert result.exit_code == 1
    assert "max_restarts" in result.stderr


def test_no_file_is_misuse() -> None:
    """Exit code 2 without a file."""
    assert CliRunner().invoke(validate, []).exit_code == 2


def test_schema_is_json() -> None:
    """`det experiment schema` prints a schema of draft 2020-12."""
    result = CliRunner().invoke(schema, [])
    assert json.loads(result.stdout)["$schema"].endswith("2020-12/schema")
