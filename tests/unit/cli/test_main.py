"""The det command's door: what loads, what is said, and how it leaves."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import determined
from determined import errors
from determined.cli.groups import Group, Late
from determined.cli.main import NOUNS, Det, main
from tests.history import History


@pytest.mark.parametrize("flag", ["--version", "-v", "-V"])
def test_it_says_its_version(flag: str) -> None:
    """`det --version` prints the version of the package."""
    result = CliRunner().invoke(main, [flag])
    assert (result.exit_code, result.output) == (0, f"det {determined.__version__}\n")


def test_misuse_is_one_line_and_exits_with_2() -> None:
    """style.md 9: exit 2 is misuse; the message is one line on stderr that says what to type."""
    result = CliRunner().invoke(main, ["experimnt"])
    assert result.exit_code == 2
    assert result.stderr == "No such command 'experimnt'. Did you mean 'experiment'? See: det -h\n"


def test_nothing_typed_shows_the_commands() -> None:
    """`det` alone says what there is, with the short names people know."""
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 0
    for noun in ("experiment (e)", "trial (t)", "checkpoint (c)", "model (m)", "workspace (w)", "project (p)"):
        assert noun in result.stdout


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_loads_nothing_heavy(flag: str) -> None:
    """Decision 8: the command line starts without torch, numpy, SQL or rich."""
    code = (
        "import sys; from determined.cli.main import main\n"
        f"try: main(['{flag}'])\nexcept SystemExit as e: assert not e.code\n"
        "heavy = ('torch', 'numpy', 'sqlalchemy', 'sqlite3', 'rich', 'yaml', 'determined.client')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("noun", list(NOUNS))
def test_every_noun_has_help_that_says_what_it_does(noun: str) -> None:
    """Each noun that is listed can be imported, and explains each of its verbs."""
    command = main.get_command(click.Context(main), noun)
    assert command is not None
    result = CliRunner().invoke(main, [noun, "-h"])
    assert result.exit_code == 0
    verbs = command.commands if isinstance(command, click.Group) else {}
    assert all(verb.help for verb in verbs.values())


def raising(error: BaseException) -> Det:
    @click.group(cls=Det)
    def root() -> None:
        """Fails."""

    @root.verb("go")
    def go() -> None:
        """Fail."""
        raise error

    return root


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (errors.DeterminedError("There is no trial 7.\nList them."), 1, "There is no trial 7. List them.\n"),
        (OSError(28, "No space left on device", "x.tgz"), 1, "[Errno 28] No space left on device: 'x.tgz'\n"),
        (click.ClickException("Nothing was done."), 1, "Nothing was done.\n"),
        (click.UsageError("Not so."), 2, "Not so. See: root go -h\n"),
        (KeyboardInterrupt(), 3, "\nInterrupted.\n"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(error: BaseException, code: int, said: str) -> None:
    """platform.md 6.1: 1 failure, 2 usage, 3 interrupted; one line on stderr, nothing on stdout."""
    result = CliRunner().invoke(raising(error), ["go"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


def test_a_bug_is_one_line_that_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracebacks are shown with DET_DEBUG=1, and only then."""
    result = CliRunner().invoke(raising(KeyError("x")), ["go"])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "DET_DEBUG=1" in result.stderr
    monkeypatch.setenv("DET_DEBUG", "1")
    assert isinstance(CliRunner().invoke(raising(KeyError("x")), ["go"]).exception, KeyError)


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    """`det ... | head` ends quietly."""
    result = CliRunner().invoke(raising(BrokenPipeError()), ["go"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_late_command_is_imported_when_it_is_typed() -> None:
    """A group knows what it offers without importing it; aliases lead to the same command."""
    root = Group("root", late={"nowhere": Late("determined.cli.nowhere:gone", "Is not there.", ("n",))})
    result = CliRunner().invoke(root, [])
    assert "nowhere (n)" in result.stdout
    assert isinstance(CliRunner().invoke(root, ["n"]).exception, ModuleNotFoundError)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_the_shell(shell: str) -> None:
    """`det completion bash` prints what a shell sources."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_DET_COMPLETE" in result.stdout


def test_completion_offers_nouns_without_importing_them() -> None:
    """A shell that asks for `det exp<TAB>` gets `experiment`."""
    environment = {"_DET_COMPLETE": "bash_complete", "COMP_WORDS": "det exp", "COMP_CWORD": "1"}
    result = CliRunner().invoke(main, [], env=environment, prog_name="det")
    assert result.stdout == "plain,experiment\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("det e ls -m a", ["accuracy"]),
        ("det e ls --metric training.", ["training.loss"]),
        ("det t plot 1 -m l", ["loss"]),
        ("det t plot 2 -m ", ["f1", "validation.f1"]),
        ("det t metrics 1 -m ", ["accuracy", "loss"]),
        ("det t metrics 1 -g t", ["training"]),
        ("det e download 2 --sort-by ", ["f1"]),
        ("det t plot 99 -m ", []),
        ("det e plot 2 -m ", ["f1", "validation.f1"]),
    ],
)
def test_completion_offers_the_metrics_of_what_was_typed(typed: str, offered: list[str], history: History) -> None:
    """`-m<TAB>` offers what the trial or experiment named before reported, or else the newest ones did."""
    history.run(training={1: {"loss": 1.0}}, validation={1: {"accuracy": 0.5}})
    history.run(validation={1: {"f1": 0.5}})
    words = typed.split(" ")
    environment = {
        "_DET_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
        "DET_STORE": str(history.place),
    }
    result = CliRunner().invoke(main, [], env=environment, prog_name="det")
    assert result.stdout.replace("plain,", "").split() == offered
