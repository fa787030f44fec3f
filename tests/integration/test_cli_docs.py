"""What the README and the guide show really works: every command in them is run."""

from __future__ import annotations

import getpass
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from determined.cli.main import main
from determined.cli.tensorboard import foreground
from determined.client.background import board_process
from tests.history import History
from tests.tensorboards import in_place_of_tensorboard, reaped

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/guides/runs.md"]


def commands(page: str) -> list[str]:
    """The lines that begin with `det` in fenced blocks, without their comments and what the shell does."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [
        line for language, block in blocks if not language for line in block.splitlines() if line.startswith("det ")
    ]
    return [re.split(r" +#| \||>>", line)[0] for line in lines]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store with three runs like those the pages talk about."""
    with History(tmp_path) as history:
        for lr, accuracy in ((0.01, 0.95), (0.05, 0.99), (0.2, 0.93)):
            files = tmp_path / f"events-{lr}"
            files.mkdir()
            history.run(
                "train.py", owner=getpass.getuser(), metric="accuracy", smaller_is_better=False, hparams={"lr": lr},
                training={s: {"loss": 1.0 / s} for s in range(50, 450, 50)}, lines=["WARNING: warm"],
                validation={s: {"accuracy": accuracy - 1 / s, "loss": 1 / s} for s in range(100, 500, 100)},
                checkpoints=[200, 400], environment={"arguments": ["--lr", str(lr)]}, tensorboard=str(files),
            )  # fmt: skip
        other = History(tmp_path, tmp_path / "other.db")
        other.close()
        return Path(str(history.place))


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_is_shown_works(
    page: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new user can type what the page says, in the order it says it, and every command ends well."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(foreground, "serve", lambda directory, host, port, open_browser: None)
    monkeypatch.setattr(board_process, "command", in_place_of_tensorboard)
    monkeypatch.setattr("determined.server.serve.run", lambda app, listening, on_ready: listening.close())
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    listed = CliRunner().invoke(main, ["--store", str(place), "c", "ls", "2", "--csv"]).stdout
    uuid = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}", listed)[0]
    shown = commands(page)
    assert len(shown) > 3
    with reaped():
        for line in shown:
            words = shlex.split(line.replace("5367", uuid))[1:]
            result = CliRunner().invoke(main, words, env={"DET_STORE": str(place)}, input="y\n")
            assert result.exit_code == 0, f"{line}\n{result.output}"


def test_the_readme_answers_the_four_questions(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of my last ten runs was best, what differed, show me its curve, give me its weights."""
    monkeypatch.chdir(tmp_path)
    best, differed, curve, weights = [shlex.split(line)[1:] for line in commands("README.md")][:4]

    def answer(words: list[str]) -> str:
        return CliRunner().invoke(main, words, env={"DET_STORE": str(place)}).output

    assert answer(best).splitlines()[2].split("|")[0].strip() == "2"
    assert re.search(r"hparams +\| lr +\| 0.01 +\| 0.05 +\| 0.2", answer(differed))
    assert "det trial download 2 --best" in answer(differed)
    assert "validation accuracy" in answer(curve)
    assert (tmp_path / answer(weights).splitlines()[0] / "state_dict.pth").is_file()
