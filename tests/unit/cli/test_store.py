"""det store: the database itself; and shell completion, which asks it for ids."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
from click.testing import CliRunner

from determined.cli.main import main
from tests.history import History
from tests.unit.cli.conftest import Det


def test_it_says_where_it_is_and_what_is_in_it(det: Det, history: History) -> None:
    """`det store info`, in every form."""
    history.run("one")
    assert str(history.place) in det("store").stdout
    assert json.loads(det("store", "info", "--json").stdout)["counts"]["experiments"] == 1


def test_a_sound_store_is_said_to_be_sound(det: Det, history: History) -> None:
    """`det store check` exits 0 with nothing on stdout."""
    history.run("one", training={1: 0.5}, checkpoints=[1])
    result = det("store", "check")
    assert (result.stdout, result.stderr) == ("", "The store is sound.\n")


def test_damage_is_an_error(det: Det, history: History) -> None:
    """`det store check` says what is wrong and exits 1."""
    place = Path(str(history.place))
    history.run("one", training=dict.fromkeys(range(200), 0.5))
    history.close()
    content = bytearray(place.read_bytes())
    content[8192:12288] = bytes(4096)
    place.write_bytes(bytes(content))
    for beside in place.parent.glob(f"{place.name}-*"):
        beside.unlink()
    assert det("store", "check", code=1).stderr


def test_runs_travel_to_another_store(det: Det, history: History, tmp_path: Path) -> None:
    """`det store export` and `import`: the runs are there again under new ids."""
    run = history.run("one", validation={10: 0.5}, hparams={"lr": 0.1})
    history.run("two")
    file = tmp_path / "runs.det"
    assert "Wrote 2 experiments" in det("store", "export", file).stderr
    assert "Replace it?" in det("store", "export", file, "-e", run.experiment_id, typed="y\n").stderr
    (tmp_path / "elsewhere").mkdir()
    with History(tmp_path / "elsewhere") as other:
        result = CliRunner().invoke(main, ["--store", str(other.place), "store", "import", str(file)])
        assert "Imported 1 experiments" in result.stderr
        listed = CliRunner().invoke(main, ["--store", str(other.place), "e", "ls", "-a", "--json"])
        assert [(row["name"], row["best_metric"]) for row in json.loads(listed.stdout)] == [("one", 0.5)]


def test_vacuum_says_what_it_gave_back(det: Det) -> None:
    """`det store vacuum` ends well and says sizes."""
    assert "The store takes" in det("store", "vacuum").stderr


def test_a_shell_completes_ids(history: History) -> None:
    """`det e describe <TAB>` offers the newest experiments, `det t logs <TAB>` the newest trials."""
    for _ in range(3):
        history.run("one")
    environment = {"_DET_COMPLETE": "bash_complete", "DET_STORE": str(history.place)}
    for words in ("det e describe ", "det t logs "):
        typed = {**environment, "COMP_WORDS": words, "COMP_CWORD": "3"}
        offered = CliRunner().invoke(main, [], env=typed, prog_name="det").stdout
        assert offered.splitlines() == ["plain,3", "plain,2", "plain,1"]


def test_completion_on_a_broken_store_offers_nothing(tmp_path: Path) -> None:
    """A shell is not the place for error messages."""
    environment = {"_DET_COMPLETE": "bash_complete", "COMP_WORDS": "det e describe ", "COMP_CWORD": "3"}
    environment["DET_STORE"] = str(tmp_path / "nothing.db")
    result = CliRunner().invoke(main, [], env=environment, prog_name="det")
    assert (result.stdout.strip(), result.stderr) == ("", "")


def test_a_command_closes_what_it_opened(history: History, det: Det) -> None:
    """Nothing is left open when a command has ended, well or not: Python 3.13 warns of a database that is."""
    run = history.run()
    history.close()
    for words, code in ((("e", "ls"), 0), (("t", "describe", run.trial_id), 0), (("e", "describe", 99), 1)):
        det(*words, code=code)
        assert [file.path for file in psutil.Process().open_files() if file.path.startswith(str(history.place))] == []
