"""What a newcomer copies works: every example with its shortest settings, and the demo from end to end."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import records
from tests.forks import Nursery

Fork = Callable[..., str]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data directory of the test's own; the scripts run beside it, so their checkpoints copy no code but ours."""
    (tmp_path / "work").mkdir()
    return tmp_path / "home"


def run(home: Path, *arguments: str) -> str:
    """What an example prints. It says nothing else, and nothing goes wrong."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=home.parent / "work",
        env={**os.environ, "DET_HOME": str(home), "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture
def fork(home: Path, nursery: Nursery) -> Fork:
    """As `run` does it for a script, but forked: a fresh Python spends four seconds importing torch."""

    def done(path: str, *arguments: str) -> str:
        ended = nursery.run_script(Path(path), *arguments, cwd=home.parent / "work", DET_HOME=str(home), COLUMNS="100")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "WARNING" not in ended.stderr, ended.stderr
        return ended.stdout

    return done


def example(name: str) -> str:
    return str(EXAMPLES / name / "train.py")


def checkpoints(home: Path) -> list[Path]:
    """All checkpoints of a data directory, oldest first."""
    found = home.glob("checkpoints/*/metadata.json")
    return [path.parent for path in sorted(found, key=lambda path: json.loads(path.read_text())["saved_at"])]


def state(checkpoint: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(checkpoint / "state_dict.pth", weights_only=True)
    return content


def batches(checkpoint: Path) -> int:
    return int(state(checkpoint)["progress"]["batches_trained"])


@pytest.mark.slow
def test_digits_learns_goes_on_and_loads(home: Path, fork: Fork) -> None:
    """It learns within three epochs, goes on from a directory, and loads without a trainer."""
    out = run(home, example("digits"), "--epochs", "3")
    found = re.search(r"accuracy ([\d.]+)%.*\ncheckpoint (\S+)", out)
    assert found, out
    assert float(found[1]) > 80
    assert batches(checkpoints(home)[-1]) == 135
    assert checkpoints(home)[-1].name == found[2]

    fork(example("digits"), "--epochs", "4", "--latest-checkpoint", str(checkpoints(home)[-1]))
    assert batches(checkpoints(home)[-1]) == 180

    loading = (
        "import sys, torch\nfrom determined import pytorch\n"
        f"sys.path.insert(0, {str(EXAMPLES / 'digits')!r})\nfrom train import DigitsTrial\n"
        "trial = pytorch.load_trial_from_checkpoint_path(sys.argv[1], trial_class=DigitsTrial)\n"
        "trial.model.eval()\n"
        "right = [trial.evaluate_batch(batch)['accuracy'] for batch in trial.build_validation_data_loader()]\n"
        "print(float(sum(right) / len(right)))\n"
    )
    assert float(run(home, "-c", loading, str(checkpoints(home)[-1]))) > 0.9


@pytest.mark.parametrize("name", ["digits", "gan", "char_lm"])
def test_one_batch_of_each(home: Path, fork: Fork, name: str) -> None:
    """`--test` trains one batch, validates one, and saves."""
    fork(example(name), "--test")
    assert [batches(checkpoint) for checkpoint in checkpoints(home)] == [1]


@pytest.mark.slow
def test_gan_learns_where_the_spots_are(home: Path) -> None:
    """After a while points lie on the circle and not in the middle, and both models and optimizers are saved."""
    out = run(home, example("gan"), "--epochs", "40")
    rows = out.splitlines()
    assert len(rows) == 21
    middle = "".join(row[19:26] for row in rows[8:13])
    assert set(out) & set("#%@")
    assert not set(middle) & set("+*#%@"), out
    saved = state(checkpoints(home)[-1])
    assert len(saved["models_state_dict"]) == len(saved["optimizers_state_dict"]) == 2


@pytest.mark.slow
def test_char_lm_learns_letters_and_goes_on_between_two_aggregated_batches(home: Path, fork: Fork) -> None:
    """It writes what it has read, and a run that stops after an odd number of batches ends with the same weights."""
    out = run(home, example("char_lm"), "--batches", "202")
    assert out.startswith("      2. Grant of")
    assert len(out) > 300
    straight = state(checkpoints(home)[-1])
    bits = [metrics["validation_bits"] for _, metrics in records.reported("validation", str(home / "determined.db"))]
    assert bits[-1] < 4.5

    fork(example("char_lm"), "--batches", "101")
    fork(example("char_lm"), "--batches", "202", "--latest-checkpoint", "latest")
    resumed = state(checkpoints(home)[-1])
    assert resumed["progress"]["batches_trained"] == 202
    for ours, theirs in zip(straight["models_state_dict"], resumed["models_state_dict"], strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_augmentation_is_the_same_after_a_resume(home: Path) -> None:
    """A run that was stopped and resumed, with fewer workers, has seen the same pixels."""
    out = run(home, example("augmentation"), "--batches", "40")
    assert out.endswith("the same\n")
    assert "NOT" not in out
    fingerprints = re.search(r"all pixels:\s+([0-9a-f]{8})\s+([0-9a-f]{8})", out)
    assert fingerprints
    assert fingerprints[1] == fingerprints[2]


@pytest.mark.slow
def test_the_demo_proves_the_resume(home: Path) -> None:
    """`make demo`: interrupted half-way and resumed, weights, optimizer and random streams are those of a whole run."""
    out = run(home, str(EXAMPLES / "demo.py"), "--epochs", "6")
    assert out.count("identical") == 3, out
    assert "DIFFERENT" not in out
    assert re.search(r"batches trained\s*│\s*270\s*│\s*157 \+ 113", out), out
    one, two = (state(checkpoints(home / name)[-1]) for name in ("uninterrupted", "interrupted"))
    for ours, theirs in zip(one["models_state_dict"], two["models_state_dict"], strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert "--latest-checkpoint latest" in out
    assert "load_trial_from_checkpoint_path" in out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/experiment.yaml")), ids=lambda path: path.parent.name)
def test_an_experiment_file_is_valid_and_can_be_previewed(path: Path, home: Path) -> None:
    """Style 12: what an example searches over is right, has no warning, and is counted; its script is there."""
    assert run(home, "-m", "determined.cli", "experiment", "validate", str(path)).count("\n") == 1
    assert "train for" in run(home, "-m", "determined.cli", "preview-search", str(path))
    script = re.search(r"^entrypoint: python3 (\S+)$", path.read_text(), re.MULTILINE)
    assert script
    assert (path.parent / script[1]).is_file()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("search/*.yaml")), ids=lambda path: path.stem)
def test_an_experiment_file_of_each_search_is_valid_and_names_code_that_is_there(path: Path, home: Path) -> None:
    """Style 12: the file is right, and what its entrypoint and its search name lies next to it."""
    done = subprocess.run(
        [sys.executable, "-m", "determined.cli", "experiment", "validate", str(path)],
        cwd=home.parent / "work",
        env={**os.environ, "DET_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{path}: ok\n"), done.stderr
    named = re.findall(r"^entrypoint: .*?(\w+\.py|\w+(?=:\w+$))|method: (\w+):", path.read_text(), re.MULTILINE)
    assert named
    assert all((path.parent / (f"{name.removesuffix('.py')}.py")).is_file() for pair in named for name in pair if name)
    assert "warning" not in done.stderr or path.stem == "trial_class"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/README.md")), ids=lambda path: path.parent.name)
def test_a_readme_fits_a_glance_and_names_commands_that_are_there(path: Path) -> None:
    """Ten lines or so, and each command in it runs a script that exists."""
    text = path.read_text()
    assert len(text.splitlines()) <= 14
    scripts = re.findall(r"^    python (\S+)", text, re.MULTILINE)
    assert scripts
    assert all((EXAMPLES.parent / script).is_file() for script in scripts)


def test_the_smallest_trial_finds_the_line_and_goes_on_where_it_was(home: Path, fork: Fork) -> None:
    """The first thing a reader copies works, and run again it has nothing left to do."""
    assert run(home, example("smallest")) == "y = 3.00 x + 1.00\n"
    assert fork(example("smallest")) == "y = 3.00 x + 1.00\n"
    assert [batches(checkpoint) for checkpoint in checkpoints(home)] == [20 * 64]


def test_the_docs_show_the_examples_code(tmp_path: Path) -> None:
    """`make docs` finds nothing wrong here, and notices dead links, missing headings and code that has changed."""
    checker = runpy.run_path(str(EXAMPLES.parent / "tools" / "check_docs.py"))
    root = checker["ROOT"]
    assert [problem for page in checker["pages"](root) for problem in checker["problems"](page)] == []

    (tmp_path / "train.py").write_text("def f():\n    a = 1\n    b = 2\n    c = 3\n")
    page = tmp_path / "page.md"
    page.write_text("# Here\n[x](gone.md) [y](page.md#there) [z](page.md#here) [w](https://example.org)\n")
    assert len(list(checker["problems"](page, tmp_path))) == 2
    for code, is_same in {"a = 1\nb = 2\n": True, "a = 1\n...\nc = 3\n": True, "a = 1\nc = 3\n": False}.items():
        page.write_text(f"<!-- from train.py -->\n```python\n{code}```\n")
        assert (not list(checker["problems"](page, tmp_path))) is is_same


@pytest.mark.parametrize("name", ["augmentation", "core_api", "digits", "search"])
def test_an_example_without_its_data_says_what_to_install(home: Path, name: str) -> None:
    """Without scikit-learn, which a plain install does not bring, an example ends with the line to type."""
    (home.parent / "work" / "sklearn.py").write_text("raise ImportError('not installed')\n")
    done = subprocess.run(
        [sys.executable, example(name)],
        cwd=home.parent / "work",
        env={**os.environ, "DET_HOME": str(home), "PYTHONPATH": str(home.parent / "work")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip().endswith("Type: pip install 'resolute[examples]'")
    assert "Traceback" not in done.stderr


def test_the_extra_for_examples_brings_what_they_import() -> None:
    """README's install line runs README's examples: what they import comes with the package or its extra `examples`."""
    project = (EXAMPLES.parent / "pyproject.toml").read_text()
    brought = re.findall(r'"([\w.-]+)>=', "".join(re.findall(r"^(?:dependencies|examples) = \[[^]]*", project, re.M)))
    imported = {
        name.partition(".")[0]
        for path in EXAMPLES.rglob("*.py")
        for name in re.findall(r"^ *(?:from|import) ([\w.]+)", path.read_text(), re.M)
    }
    imported -= {"ray"}  # for those who have it; the README of its example says what to install
    foreign = imported - set(sys.stdlib_module_names) - {"determined", *(path.stem for path in EXAMPLES.rglob("*.py"))}
    assert {{"sklearn": "scikit-learn"}.get(name, name) for name in foreign} <= set(brought)
    assert "-e '.[examples]'" in (EXAMPLES.parent / "README.md").read_text()
