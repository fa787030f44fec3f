"""`det preview-search`: the table of the contract, and what a simulation adds to it."""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from determined.cli.main import main

SPACE = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 3}}
ASHA = {"name": "adaptive_asha", "metric": "loss", "max_trials": 10, "time_metric": "batches", "max_time": 1000}
DIVISOR_5 = {**ASHA, "divisor": 5, "max_concurrent_trials": 5}
COMPLETE = "train to completion"


def run(path: Path, searcher: dict[str, Any] | None, *options: str, **sections: Any) -> Result:
    file = path / "experiment.yaml"
    values = {"hyperparameters": SPACE, **sections} | ({} if searcher is None else {"searcher": searcher})
    file.write_text(yaml.safe_dump(values))
    return CliRunner().invoke(main, ["preview-search", str(file), *options])


def test_the_table_is_that_of_the_contract(tmp_path: Path) -> None:
    """P-44: the divisor-5 row gives the printed table, byte for byte, below the effective search."""
    result = run(tmp_path, DIVISOR_5)
    assert (result.exit_code, result.stderr) == (0, "")
    first, _, rest = result.stdout.partition("\n")
    section, _, table = rest.partition("\n\n")
    assert first == "Using search configuration:"
    assert table == textwrap.dedent(
        """\
           Trials | Training Time
        ----------+------------------------
                7 | train for 200 batches
                3 | train for 1000 batches
        """
    )
    shown = yaml.safe_load(section)
    assert shown.items() >= DIVISOR_5.items()
    assert shown["smaller_is_better"] is True
    assert None not in shown.values()


@pytest.mark.parametrize(
    ("searcher", "rows"),
    [
        ({"name": "single", "metric": "loss"}, [(1, COMPLETE)]),
        ({"name": "random", "metric": "loss", "max_trials": 7}, [(7, COMPLETE)]),
        ({"name": "grid", "metric": "loss"}, [(3, COMPLETE)]),
        ({"name": "optuna", "metric": "loss", "max_trials": 5}, [(5, COMPLETE)]),
        (
            {**ASHA, "name": "asha", "num_rungs": 2},
            [(8, "train for 250 batches"), (2, "train for 1000 batches")],
        ),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_each_search_has_its_rows(tmp_path: Path, searcher: dict[str, Any], rows: list[tuple[int, str]]) -> None:
    """3.10, D7: in JSON and in CSV, without the words around them."""
    records = json.loads(run(tmp_path, searcher, "--json").stdout)
    assert [(row["trials"], row["training_time"]) for row in records] == rows
    lines = list(csv.reader(io.StringIO(run(tmp_path, searcher, "--csv").stdout)))
    assert lines == [["Trials", "Training Time"], *([str(count), text] for count, text in rows)]


def test_a_missing_searcher_is_named(tmp_path: Path) -> None:
    """3.10: exit code 1, and a message that names the section and the file."""
    result = run(tmp_path, None)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "experiment.yaml: " in result.stderr
    assert "<config>.searcher: is missing" in result.stderr


def test_other_sections_do_not_matter(tmp_path: Path) -> None:
    """3.10: only searcher and hyperparameters are used."""
    assert run(tmp_path, ASHA, checkpoint_policy="sometimes", max_restarts=-1).exit_code == 0


def test_a_simulation_says_what_is_stopped_and_saved(tmp_path: Path) -> None:
    """Issue 7: --simulate adds a table of rungs, what was trained of what, and a picture."""
    result = run(tmp_path, {**ASHA, "max_trials": 64, "max_time": 64}, "--simulate")
    assert (result.exit_code, result.stderr) == (0, "")
    preview, table, sentences, picture = result.stdout.split("\n\n")[1:]
    assert " train for 4 batches" in preview
    assert table.splitlines()[1].split(" | ")[0].strip() == "Trained to"
    rungs = ["1 batches", "4 batches", "16 batches", "64 batches"]
    assert [row.split("|")[0].strip() for row in table.splitlines()[3:]] == rungs
    assert " of 4,096 batches trained (" in sentences
    assert "Best value 0." in sentences
    assert "loss of 64 simulated trials" in picture
    assert "stopped at 4 batches" in picture
    assert result.stdout.isascii()


def test_a_simulation_for_programs(tmp_path: Path) -> None:
    """--json has the numbers of the sentences, and each trial; --csv has the table."""
    options = ("--simulate", "--slots", "2", "--failures", "0.9", "--seed", "3", "--curves-seed", "4")
    searcher = {**ASHA, "max_trials": 16, "max_time": 16}
    found = json.loads(run(tmp_path, searcher, *options, "--json").stdout)
    assert sum(trial["units"] for trial in found["trials"]) == found["units"] < found["all_units"] == 256
    assert (found["places"], found["unit"], found["state"]) == (2, "batches", "COMPLETED")
    assert sum(row["trials_simulated"] for row in found["rows"]) == len(found["trials"])
    assert found["best"]["value"] == found["found"][-1][1] >= found["best_possible"]["value"]
    assert [row["training_time"] for row in found["preview"]][-1] == "train for 16 batches"
    rows = list(csv.DictReader(io.StringIO(run(tmp_path, searcher, *options, "--csv").stdout)))
    assert [int(row["Trials simulated"]) for row in rows] == [row["trials_simulated"] for row in found["rows"]]


@pytest.mark.parametrize(
    ("searcher", "told"),
    [
        ({"name": "single", "metric": "loss"}, "100 units trained, in the time of 1 training, 1 at a time."),
        ({"name": "grid", "metric": "loss"}, "300 units trained, in the time of 1 training, 3 at a time."),
        (
            {"name": "random", "metric": "loss", "max_trials": 40, "max_length": {"epochs": 5}},
            "200 epochs trained, in the time of 3 trainings, 16 at a time.",
        ),
        ({**ASHA, "form": "promotion"}, " of 10,000 batches trained ("),
        ({"name": "optuna", "metric": "loss", "max_trials": 3, "sampler": "RandomSampler"}, "300 units trained"),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_every_search_can_be_simulated(tmp_path: Path, searcher: dict[str, Any], told: str) -> None:
    """How long a training is comes from the search, from an older file's max_length, or is 100 units."""
    result = run(tmp_path, searcher, "--simulate")
    assert result.exit_code == 0
    assert told in result.stdout


def test_a_custom_search_is_loaded_from_beside_the_file(tmp_path: Path) -> None:
    """The context directory is the file's own; nothing is counted beforehand, and the simulation shows what it did."""
    (tmp_path / "simulated_search.py").write_text(
        textwrap.dedent(
            """
            from determined.experiment.search.base import SearchMethod, Stop

            class Two(SearchMethod):
                def initial_trials(self, ctx):
                    return [ctx.create(), ctx.create()]

                def validation_completed(self, ctx, request_id, metrics):
                    return [Stop(request_id)] if metrics["batches"] >= 30 else []
            """
        )
    )
    searcher = {"name": "custom", "metric": "loss", "class": "simulated_search:Two"}
    result = run(tmp_path, searcher, "--simulate", "--period", "20")
    assert result.exit_code == 0, result.stderr
    assert "nothing can be counted" in result.stderr
    assert "80 of 200 units trained (60 % saved)" in result.stdout


def test_the_file_says_how_many_slots_a_trial_takes(tmp_path: Path) -> None:
    """resources.slots_per_trial shares the slots out; too few are refused with both numbers."""
    searcher = {"name": "random", "metric": "loss", "max_trials": 8}
    resources = {"slots_per_trial": 2}
    shared = run(tmp_path, searcher, "--simulate", "--slots", "5", "--json", resources=resources)
    assert json.loads(shared.stdout)["places"] == 2
    result = run(tmp_path, searcher, "--simulate", "--slots", "1", resources=resources)
    assert result.exit_code == 1
    assert "slots_per_trial is 2, and there are 1 slots" in result.stderr


def test_the_seed_is_that_of_the_file(tmp_path: Path) -> None:
    """Without a seed there is 0, so that the same file always gives the same picture."""

    def played(*options: str, **sections: Any) -> str:
        return run(tmp_path, ASHA, "--simulate", "--json", *options, **sections).stdout

    assert played() == played("--seed", "0") != played("--seed", "7")
    assert played(reproducibility={"experiment_seed": 7}) == played("--seed", "7")


@pytest.mark.parametrize("kind", ["svg", "html", "png"])
def test_the_picture_can_be_a_file(tmp_path: Path, kind: str) -> None:
    """-o draws both figures: all curves, and what was found for how much training."""
    path = tmp_path / f"search.{kind}"
    result = run(tmp_path, {**ASHA, "max_trials": 64}, "--simulate", "-o", str(path), "--failures", "0.2")
    assert result.exit_code == 0
    assert result.stderr == f"Wrote {path}\n"
    assert "simulated trials" not in result.stdout
    if kind == "png":
        assert path.read_bytes().startswith(b"\x89PNG")
        return
    assert "Best loss against training spent" in path.read_text()
    if kind == "html":  # of hundreds of lines no single value is under the mouse
        data = re.search(r"const panels = (.*);\n", path.read_text())
        assert data is not None
        under_mouse = [curve["label"] for curve in json.loads(data.group(1))[0]["curves"] if curve["px"]]
        assert all(label.startswith(("best found", "missed")) for label in under_mouse)
        assert under_mouse
    if kind == "svg":
        words = [element.text or "" for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
        assert "trained to the end" in words
        assert any(word.startswith("best found: trial ") for word in words)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--slots", "2"], "Only a simulation takes --slots. Add --simulate."),
        (["-o", "a.svg"], "Only a simulation takes -o. Add --simulate."),
        (["--simulate", "-o", "a.pdf"], "a.pdf should end in .svg, .html or .png."),
        (["--simulate", "--max-time", "9"], "--max-time is of no use: the file says that trainings end at 1000"),
        (["--simulate", "--failures", "2"], "2.0 is not in the range"),
    ],
    ids=str,
)
def test_misuse_is_explained(tmp_path: Path, options: list[str], told: str) -> None:
    """Exit code 2, and what to type instead."""
    result = run(tmp_path, ASHA, *options)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_hopeless_search_is_told_as_such(tmp_path: Path) -> None:
    """When every trial crashes for good there is nothing to draw, and the end is ERROR."""
    result = run(tmp_path, ASHA, "--simulate", "--failures", "1", max_restarts=0)
    assert result.exit_code == 0
    assert "The experiment would end as ERROR." in result.stdout
    assert "failed on the way" in result.stdout
