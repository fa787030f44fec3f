from __future__ import annotations

import argparse

import pytest

from determined.launch import _arguments

PROGRAMS = {"python", "sh", "./run.sh", "train.py"}


def parse(line: str) -> _arguments.Arguments:
    return _arguments.parse_args(line.split(), is_program=PROGRAMS.__contains__)


@pytest.mark.parametrize(
    ("line", "torch_options", "script"),
    [
        ("script arg", "", "script arg"),
        ("-- script -- arg", "", "script -- arg"),
        ("o1 o2 -- script arg", "o1 o2", "script arg"),
        ("script --trial", "", "script --trial"),
    ],
)
def test_the_contracts_examples_split_exactly_so(line, torch_options, script):
    """C-75: the first `--` ends the options for torch, also when they do not look like options."""
    assert parse(line) == _arguments.Arguments(torch_options.split(), None, script.split())


def test_an_unknown_option_is_an_argument_error(capsys):
    """C-75: `--asdf 1 script` leaves with 2, and says how options for torch are closed."""
    with pytest.raises(SystemExit) as leaving:
        parse("--asdf 1 script")
    assert leaving.value.code == 2
    assert "--asdf is an option neither" in (said := capsys.readouterr().err)
    assert "--nproc_per_node 2 -- python train.py" in said


@pytest.mark.parametrize(
    ("line", "torch_options", "script"),
    [
        ("python train.py -- x", "", "python train.py -- x"),
        ("train.py --lr 1 -- x", "", "train.py --lr 1 -- x"),
        ("./run.sh -- x -- y", "", "./run.sh -- x -- y"),
        ("--nproc_per_node 2 -- python train.py -- x", "--nproc_per_node 2", "python train.py -- x"),
        ("--nproc_per_node 2 python train.py -- x", "--nproc_per_node 2", "python train.py -- x"),
        ("--new-in-torch 3 -- python train.py", "--new-in-torch 3", "python train.py"),
        ("--new-in-torch sh -- python train.py", "--new-in-torch sh", "python train.py"),
        ("--role sh -- train.py", "--role sh", "train.py"),
    ],
)
def test_a_separator_after_a_program_belongs_to_the_program(line, torch_options, script):
    """Better than the contract's wart: a `--` meant for the script stays with the script when that is clear."""
    assert parse(line) == _arguments.Arguments(torch_options.split(), None, script.split())


@pytest.mark.parametrize(
    ("line", "torch_options", "script"),
    [
        ("--nproc_per_node 2 python train.py", "--nproc_per_node 2", "python train.py"),
        ("--nproc-per-node=2 --standalone python x", "--nproc-per-node=2 --standalone", "python x"),
        ("-t 3 --nnodes 1:2 python x", "-t 3 --nnodes 1:2", "python x"),
    ],
)
def test_options_that_torch_has_need_no_separator(line, torch_options, script):
    """`[torchrun options] [--] python train.py`: the separator is optional after options of torchrun."""
    assert parse(line) == _arguments.Arguments(torch_options.split(), None, script.split())


@pytest.mark.parametrize(
    ("line", "torch_options"),
    [
        ("--trial m:C", ""),
        ("--trial=m:C", ""),
        ("-- --trial m:C", ""),
        ("--nnodes 1 -- --trial m:C", "--nnodes 1"),
        ("--nnodes 1 --trial m:C", "--nnodes 1"),
    ],
)
def test_a_trial_class_takes_the_place_of_a_script(line, torch_options):
    """`--trial module:Class` with and without options for torch."""
    assert parse(line) == _arguments.Arguments(torch_options.split(), "m:C", [])


@pytest.mark.parametrize(
    "line", ["", "--", "--nproc_per_node 2", "--nproc_per_node 2 --", "--trial m:C more", "--trial m:C -- more"]
)
def test_nothing_or_too_much_to_run_shows_the_usage(line, capsys):
    """No script, or more arguments after `--trial`: usage and exit code 1."""
    with pytest.raises(SystemExit) as leaving:
        parse(line)
    assert leaving.value.code == 1
    assert capsys.readouterr().err.startswith("usage: python -m determined.launch.torch_distributed [[TORCH_OPTIONS")


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ("--nproc_per_node 2", "2"),
        ("--nproc-per-node=3", "3"),
        ("--nproc_per_node 2 --nproc-per-node 4", "4"),
        ("--nnodes 2", None),
        ("", None),
    ],
)
def test_the_value_of_a_torch_option_is_the_last_one_given(options, value):
    """Dashes, underscores and `=` are the same, as for torch."""
    assert _arguments.Arguments(options.split(), None, ["x"]).torch_option("nproc-per-node") == value


def test_our_list_of_torch_options_is_torchs():
    """The list that lets us parse without importing torch names what this torch has, and which options take a value."""
    from torch.distributed.run import get_args_parser

    with_value, flags = set(), set()
    for action in get_args_parser()._actions:
        if not action.option_strings or isinstance(action, argparse._HelpAction):
            continue
        names = {_arguments._torch_name(word) for word in action.option_strings}
        assert len(names) == 1, action.option_strings
        (flags if action.nargs == 0 else with_value).update(names)
    assert with_value <= _arguments.TORCH_OPTIONS
    assert flags <= _arguments.TORCH_FLAGS
    assert not _arguments.TORCH_OPTIONS & _arguments.TORCH_FLAGS
