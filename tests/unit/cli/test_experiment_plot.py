"""`det experiment plot`: the pictures of a search show its trials, and say in a sentence what they cannot show."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from determined.cli.main import main
from determined.cli.plot.scale import Categories
from determined.cli.plot.shapes import BEST, DARK, RAMP, SURFACE
from tests import searches
from tests.history import History
from tests.unit.cli.conftest import Det

SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("curves", "parallel", "scatter", "heatmap", "importance")
SPACE = {
    "optimizer": {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "name": {"type": "categorical", "vals": ["sgd", "adam"]},
    },
    "layers": {"type": "int", "minval": 1, "maxval": 4},
    "width": 64,
}


def loss(hparams: dict[str, Any], time: int) -> float:
    return 0.2 + (math.log10(hparams["optimizer"]["lr"]) + 2.5) ** 2 / 4 + math.exp(-time / 200)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with a search of 16 trials that stops some early: experiment 1."""
    with History(tmp_path_factory.mktemp("search")) as history:
        searches.recorded(history, searches.adaptive(16, 800), SPACE, loss, range(100, 801, 100), name="digits")
        yield Path(history.place)


def plot(place: Path, *words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--store", str(place), "experiment", "plot", "1", *map(str, words)])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def svg(place: Path, file: Path, *words: object) -> ElementTree.Element:
    plot(place, *words, "-o", file)
    return ElementTree.fromstring(file.read_text())


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def titled(root: ElementTree.Element, kind: str) -> list[tuple[str, ElementTree.Element]]:
    """Return what says something about itself: its title, and the element."""
    found = ((element.find(f"{SVG}title"), element) for element in root.iter(f"{SVG}{kind}"))
    return [(title.text or "", element) for title, element in found if title is not None]


def points(element: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in (element.get("points") or "").split())]


@pytest.mark.parametrize("ending", ["svg", "html", "png"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_in_every_form(place: Path, kind: str, ending: str, tmp_path: Path) -> None:
    """Each picture is written as SVG, HTML and PNG; its title has the experiment's name and id."""
    file = tmp_path / f"picture.{ending}"
    assert f"Wrote {file}" in plot(place, f"--{kind}", "-o", file).output
    if ending == "png":
        assert file.read_bytes().startswith(b"\x89PNG")
    else:
        assert "digits (experiment 1)" in file.read_text()
    if ending == "svg":
        ElementTree.fromstring(file.read_text())


@pytest.mark.parametrize("words", [(), ("--curves", "--top", 3), ("--scatter",), ("--importance",)])
def test_the_terminal_shows_what_it_can(place: Path, words: tuple[object, ...]) -> None:
    """Curves, scatter plots and importance are drawn as text, in ASCII where there is no terminal."""
    shown = plot(place, *words).output
    assert shown.isascii()
    assert max(map(len, shown.splitlines())) <= 80
    assert "digits (experiment 1)" in shown or "validation loss against optimizer.lr" in shown


@pytest.mark.parametrize("kind", ["parallel", "heatmap"])
def test_what_needs_a_file_says_so(place: Path, kind: str) -> None:
    """Parallel coordinates and heat maps are not for a terminal: the message has the option to add."""
    assert f"--{kind} needs a file: add -o {kind}.svg" in plot(place, f"--{kind}", code=2).output


def test_one_kind_at_a_time(place: Path) -> None:
    """Two kinds in one command exclude each other; so does a file of an unknown kind."""
    assert "--parallel and --heatmap exclude each other" in plot(place, "--parallel", "--heatmap", code=2).output
    assert "should end in .svg, .html or .png" in plot(place, "-o", "curves.pdf", code=2).output


def test_curves_emphasise_the_best_and_fade_what_was_stopped(place: Path, tmp_path: Path) -> None:
    """The best trial is the thickest line and named first; trials that the search stopped are faint."""
    root = svg(place, tmp_path / "c.svg", "--top", 16)
    lines = titled(root, "polyline")
    widths = {title.split("   ")[0]: float(line.get("stroke-width") or 0) for title, line in lines}
    [best] = [name for name in widths if "best" in name]
    assert [name for name, width in widths.items() if width == max(widths.values())] == [best]
    stopped = [line for title, line in lines if "stopped early" in title]
    assert stopped
    assert all(float(line.get("stroke-opacity") or 1) < 0.5 for line in stopped)
    assert all(line.get("stroke-opacity") is None for title, line in lines if "stopped" not in title)
    assert next(text for text in texts(root) if text.startswith("trial ")) == best


def test_of_many_trials_most_are_one_bundle(history: History, det: Det, tmp_path: Path) -> None:
    """Of 60 trials 16 have colours and names; the others are one grey bundle with one line in the legend."""
    experiment = history.experiment("many", unmanaged=False)
    for number in range(60):
        history.trial(experiment, hparams={"lr": number}, validation={100: 1.0 + number, 200: 0.5 + number})
    det("e", "plot", experiment, "--top", 100, "-o", tmp_path / "c.svg")
    root = ElementTree.fromstring((tmp_path / "c.svg").read_text())
    assert sum(text.startswith("trial ") for text in texts(root)) == 16
    assert "44 other trials" in texts(root)


def test_nan_leaves_a_gap_in_a_curve(history: History, det: Det, tmp_path: Path) -> None:
    """A NaN breaks the line and is marked on the axis."""
    experiment = history.experiment("odd", unmanaged=False)
    history.trial(experiment, validation={100: 1.0, 200: 0.9, 300: math.nan, 400: 0.8, 500: 0.7})
    det("e", "plot", experiment, "-o", tmp_path / "c.svg")
    root = ElementTree.fromstring((tmp_path / "c.svg").read_text())
    assert len(titled(root, "polyline")) == 2
    assert len(list(root.iter(f"{SVG}polygon"))) == 1


def test_curves_over_epochs_and_time(place: Path, history: History, det: Det, tmp_path: Path) -> None:
    """`--x epochs` and `--x time` name their unit; epochs that nobody reported are a sentence."""
    assert "epochs" in texts(svg(place, tmp_path / "e.svg", "--x", "epochs"))
    assert "seconds since each trial began" in texts(svg(place, tmp_path / "t.svg", "--x", "time"))
    run = history.run(validation={100: 1.0})
    said = det("e", "plot", run.experiment_id, "--x", "epochs", code=1).output
    assert "No trial of experiment 1 reported `epochs` with this metric. Use --x batches." in said


def test_a_trial_that_reports_epochs_now_and_then_is_drawn(history: History, det: Det, tmp_path: Path) -> None:
    """Points without `epochs` are left out, of the page that shows values under the mouse as well."""
    values = {100: {"loss": 1.0, "epochs": 1.0}, 200: {"loss": 0.9}, 300: {"loss": 0.8, "epochs": 3.0}}
    run = history.run(validation=values)
    det("e", "plot", run.experiment_id, "--x", "epochs", "-o", tmp_path / "c.html")
    assert '"x": [1.0, 3.0]' in (tmp_path / "c.html").read_text()


def test_a_long_name_leaves_room_for_the_id(history: History, det: Det, tmp_path: Path) -> None:
    """However long an experiment's name is, its id is in the title."""
    run = history.run("name " * 100, validation={100: 1.0, 200: 0.5})
    det("e", "plot", run.experiment_id, "-o", tmp_path / "c.svg")
    root = ElementTree.fromstring((tmp_path / "c.svg").read_text())
    assert texts(root)[0].endswith("… (experiment 1)")


def test_of_many_hyperparameters_those_that_matter_are_drawn(history: History, det: Det, tmp_path: Path) -> None:
    """A heat map has six by default: the one that the value follows from is among them, wherever its name is."""
    chance = random.Random(0)
    experiment = history.experiment("many", unmanaged=False)
    for _ in range(40):
        hparams = {name: chance.random() for name in "abcdefgz"}
        history.trial(experiment, hparams=hparams, validation={100: hparams["z"]})
    det("e", "plot", experiment, "--heatmap", "-o", tmp_path / "h.svg")
    root = ElementTree.fromstring((tmp_path / "h.svg").read_text())
    names = [text for text in texts(root) if text in set("abcdefgz")]
    assert "z" in names
    assert len(set(names)) == 6


def test_parallel_has_an_axis_per_hyperparameter_and_a_line_per_trial(place: Path, tmp_path: Path) -> None:
    """8.2: one axis per non-constant hyperparameter, names with dots, and the metric last; the best is on top."""
    root = svg(place, tmp_path / "p.svg", "--parallel")
    lines = titled(root, "polyline")
    assert len(lines) == 16
    assert all(len(points(line)) == 4 for _, line in lines)
    shown = texts(root)
    names = ["layers", "optimizer.lr", "optimizer.name", "validation loss"]
    assert [text for text in shown if text in names] == names
    assert "width" not in shown
    assert {"sgd", "adam", "log"} <= set(shown)
    assert lines[-1][1].get("stroke") == BEST
    assert {line.get("stroke") for _, line in lines[:-1]} <= set(RAMP)


def test_a_log_hyperparameter_has_a_log_axis(history: History, det: Det, tmp_path: Path) -> None:
    """8.2: values of a `type: log` hyperparameter that are ten times each other lie at even distances."""
    declared = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -2}}
    experiment = history.experiment("log", config={"hyperparameters": declared}, unmanaged=False)
    for number, lr in enumerate((1e-4, 1e-3, 1e-2)):
        history.trial(experiment, hparams={"lr": lr}, validation={100: float(number)})
    det("e", "plot", experiment, "--parallel", "-o", tmp_path / "p.svg")
    root = ElementTree.fromstring((tmp_path / "p.svg").read_text())
    low, middle, high = sorted(points(line)[0][1] for _, line in titled(root, "polyline"))
    assert middle - low == pytest.approx(high - middle, abs=0.2)
    det("e", "plot", experiment, "--scatter", "-o", tmp_path / "s.svg")
    root = ElementTree.fromstring((tmp_path / "s.svg").read_text())
    left, middle, right = sorted(float(dot.get("cx") or 0) for _, dot in titled(root, "circle"))
    assert middle - left == pytest.approx(right - middle, abs=0.2)


def test_a_trial_without_a_hyperparameter_leaves_a_gap(history: History, det: Det, tmp_path: Path) -> None:
    """A trial that lacks the middle one of three hyperparameters is drawn left and right of it."""
    experiment = history.experiment("conditional", unmanaged=False)
    history.trial(experiment, hparams={"a": 1, "b": 2, "c": 3}, validation={100: 1.0})
    history.trial(experiment, hparams={"a": 2, "c": 4}, validation={100: 0.5})
    det("e", "plot", experiment, "--parallel", "-o", tmp_path / "p.svg")
    root = ElementTree.fromstring((tmp_path / "p.svg").read_text())
    assert sorted(len(points(line)) for _, line in titled(root, "polyline")) == [2, 4]
    assert len(titled(root, "circle")) == 1


def test_scatter_has_a_dot_per_trial_in_each_panel(place: Path, tmp_path: Path) -> None:
    """8.2: one panel per hyperparameter, a dot per trial in each; `--hparam` picks."""
    assert len(titled(svg(place, tmp_path / "s.svg", "--scatter"), "circle")) == 3 * 16
    root = svg(place, tmp_path / "s.svg", "--scatter", "--hparam", "layers")
    assert len(titled(root, "circle")) == 16
    assert "optimizer.lr (log)" not in texts(root)


def test_a_far_value_does_not_stretch_the_axis(history: History, det: Det, tmp_path: Path) -> None:
    """A diverged trial is drawn at the edge, and the note says so."""
    experiment = history.experiment("diverged", unmanaged=False)
    for number in range(20):
        history.trial(experiment, hparams={"lr": number}, validation={100: 1e6 if number == 19 else 1 + number / 20})
    det("e", "plot", experiment, "--scatter", "-o", tmp_path / "s.svg")
    root = ElementTree.fromstring((tmp_path / "s.svg").read_text())
    assert any("1 far worse, drawn at the edge" in text for text in texts(root))
    heights = sorted(float(dot.get("cy") or 0) for _, dot in titled(root, "circle"))
    assert heights[-1] - heights[1] > 100


def test_heat_maps_are_of_each_pair_coloured_by_the_best(history: History, det: Det, tmp_path: Path) -> None:
    """8.2: three hyperparameters are three pairs; a place has the colour of the best trial there."""
    experiment = history.experiment("pairs", unmanaged=False)
    for a, b, c, value in ((1, "x", True, 0.9), (1, "x", True, 0.1), (2, "y", False, 0.5), (3, "y", True, 0.7)):
        history.trial(experiment, hparams={"a": a, "b": b, "c": c}, validation={100: value})
    det("e", "plot", experiment, "--heatmap", "-o", tmp_path / "h.svg")
    root = ElementTree.fromstring((tmp_path / "h.svg").read_text())
    assert sum(element.get("fill") == SURFACE for element in root.iter(f"{SVG}polygon")) == 3
    places = titled(root, "polygon")
    assert len(places) == 9
    [best] = [(title, cell) for title, cell in places if title.startswith("a 1, b x")]
    assert best[0] == "a 1, b x: best 0.1 (trial 2) of 2 trials"
    assert best[1].get("fill") == RAMP[-1]
    assert {cell.get("fill") for _, cell in places} <= set(RAMP)


def test_importance_has_a_bar_per_hyperparameter(place: Path, tmp_path: Path) -> None:
    """The learning rate, which the loss follows from, is first; what is left has a bar; few trials are uncertain."""
    root = svg(place, tmp_path / "i.svg", "--importance")
    names = [title.split(":")[0] for title, _ in titled(root, "polygon")]
    assert names[0] == "optimizer.lr"
    assert set(names) == {"optimizer.lr", "optimizer.name", "layers", "not explained"}
    assert "Uncertain: 16 trials for 3 hyperparameters are few." in texts(root)
    shown = plot(place, "--importance").output.splitlines()
    assert shown[2].split()[0] == "optimizer.lr"
    assert shown[2].count("#") > shown[3].count("#")


def test_every_colour_has_a_dark_twin(place: Path, tmp_path: Path) -> None:
    """On a dark page an SVG is dark: its style says what each of its colours becomes."""
    for kind in KINDS:
        file = tmp_path / f"{kind}.svg"
        root = svg(place, file, f"--{kind}")
        used = {element.get(name) for element in root.iter() for name in ("fill", "stroke")} - {None, "none"}
        assert used <= DARK.keys()
        style = next(root.iter(f"{SVG}style")).text or ""
        assert all(f'"{colour}"' in style for colour in used)


MARKUP = '</text><script>alert("x")</script>'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["svg", "html"])
def test_names_are_text_not_markup(history: History, det: Det, tmp_path: Path, kind: str, ending: str) -> None:
    """Names of experiments, hyperparameters, categories and metrics that look like markup are shown as written."""
    experiment = history.experiment(f"e{MARKUP}", unmanaged=False, metric=f"m{MARKUP}")
    for number in range(9):
        hparams = {f"h{MARKUP}": f"{number % 3}{MARKUP}", "other<b>": number}
        history.trial(experiment, hparams=hparams, validation={100: {f"m{MARKUP}": float(number)}})
    file = tmp_path / f"p.{ending}"
    det("e", "plot", experiment, f"--{kind}", "-o", file)
    written = file.read_text()
    assert '<script>alert("x")' not in written
    assert "<b>" not in written
    if ending == "svg":
        root = ElementTree.fromstring(written)
        assert [element.tag for element in root.iter() if "script" in element.tag] == []
        assert any("<script>" in text for text in texts(root))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("1", "--parallel"), "Experiment 1 has one trial, and --parallel compares several."),
        (("2", "--scatter"), "All 2 trials of experiment 2 have the same hyperparameters"),
        (("2", "--importance"), "so --importance has nothing to compare. Draw its curves: det experiment plot 2"),
        (("3",), "Experiment 3 has no trials yet."),
        (("3", "--heatmap"), "Experiment 3 has no trials yet."),
        (("4",), "No trial of experiment 4 has a finite value of validation.loss"),
        (("5", "--heatmap"), "A heat map needs two hyperparameters, and lr is only one."),
        (("5", "--importance"), "--importance needs 8 trials or more with a value of validation.loss"),
        (("5", "-m", "accuracy"), "Experiment 5 reported no 'accuracy'. There is: validation.loss."),
        (("5", "--scatter", "--hparam", "lrr"), "'lrr' is no hyperparameter of experiment 5. Did you mean 'lr'?"),
        (("5", "--scatter", "--hparam", "width"), "'width' is the same in all trials of experiment 5."),
        (("9",), "There is no experiment 9"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(
    history: History, det: Det, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """One trial, only constants, no trials, no finite value, one hyperparameter, an unknown name: a sentence each."""
    history.run(hparams={"lr": 0.1}, validation={100: 1.0})
    same = history.experiment("same", unmanaged=False)
    for _ in range(2):
        history.trial(same, hparams={"lr": 0.1}, validation={100: 1.0})
    history.experiment("empty", unmanaged=False)
    odd = history.experiment("odd", unmanaged=False)
    history.trial(odd, hparams={"lr": 0.1}, validation={100: math.nan})
    two = history.experiment("two", unmanaged=False)
    for lr in (0.1, 0.2):
        history.trial(two, hparams={"lr": lr, "width": 3}, validation={100: lr})
    needed = ["-o", tmp_path / "x.svg"] if {"--parallel", "--heatmap"} & set(words) else []
    shown = det("e", "plot", *words, *needed, code=1).output
    assert message in shown.replace("\n", " ")
    assert "Traceback" not in shown
    assert not (tmp_path / "x.svg").exists()


def test_names_lie_in_the_middle_of_their_part() -> None:
    """Categories are at even distances, away from the ends."""
    axis = Categories(("a", "b", "c"))
    assert [axis.place(i) for i in range(3)] == pytest.approx([1 / 6, 3 / 6, 5 / 6])
    assert [text for _, text in axis.ticks(6)] == ["a", "b", "c"]
    assert len(Categories(tuple(map(str, range(100)))).ticks(6)) <= 18
