"""Parses the arguments of `python -m determined.launch.torch_distributed`: torch's options, and what to run."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NoReturn

PROG = "python -m determined.launch.torch_distributed"
USAGE = f"{PROG} [[TORCH_OPTIONS...] --] (--trial TRIAL)|(SCRIPT...)"
EXAMPLE = f"{PROG} --nproc_per_node 2 -- python train.py"

# Options of torch.distributed.run, to find where they end without importing torch. Dashes equal underscores.
TORCH_FLAGS = frozenset({"module", "no-python", "run-path", "standalone", "virtual-local-rank"})
TORCH_OPTIONS = frozenset(
    {
        "duplicate-stderr-filters",
        "duplicate-stdout-filters",
        "event-log-handler",
        "local-addr",
        "local-ranks-filter",
        "log-dir",
        "logs-specs",
        "master-addr",
        "master-port",
        "max-restarts",
        "monitor-interval",
        "nnodes",
        "node-rank",
        "nproc-per-node",
        "numa-binding",
        "rdzv-backend",
        "rdzv-conf",
        "rdzv-endpoint",
        "rdzv-id",
        "redirects",
        "role",
        "shutdown-timeout",
        "signals-to-handle",
        "start-method",
        "tee",
    }
)
# With one of these the user decides where ranks connect to each other.
MEETING_OPTIONS = frozenset({"master-addr", "master-port", "rdzv-backend", "rdzv-conf", "rdzv-endpoint", "standalone"})
TORCH_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Options for torch's launcher, and either a trial class or a script."""

    torch_options: list[str]
    trial: str | None
    script: list[str]

    def torch_option(self, name: str) -> str | None:
        """Return the value of an option of torch's launcher, for example `nnodes`; the last one wins."""
        value, words = None, iter(self.torch_options)
        for word in words:
            option, has_value, inline = word.partition("=")
            if _torch_name(option) == name:
                value = inline if has_value else next(words, None)
        return value

    def names_any(self, names: Collection[str]) -> bool:
        """Return whether one of these options of torch's launcher was given."""
        return any(_torch_name(word.partition("=")[0]) in names for word in self.torch_options)


def is_program(word: str) -> bool:
    """Return whether a word is a program or a file."""
    return shutil.which(word) is not None or Path(word).is_file()


def split(args: Sequence[str], is_program: Callable[[str], bool] = is_program) -> tuple[list[str], list[str]]:
    """Split the arguments into torch's options and the rest.

    Arguments before the first `--` are for torch. But a `--` after a program belongs to the program, as in
    `python train.py -- x`: torch's options never name one. Known options of torch need no `--` after them.
    """
    end = _end_of_torch_options(args)
    if "--" in args:
        at = args.index("--")
        if end >= at or not (is_program(args[end]) or _is_ours(args[end])):
            return list(args[:at]), list(args[at + 1 :])
    return list(args[:end]), list(args[end:])


def parse_args(args: Sequence[str], is_program: Callable[[str], bool] = is_program) -> Arguments:
    """Parse a command line, or exit: with 1 if there is nothing to run or too much, with 2 for an unknown option."""
    parser = argparse.ArgumentParser(
        prog=PROG,
        usage=USAGE,
        description="Start one process per slot under torch.distributed.run, with [rank=N] before each line of output.",
        epilog=f"Example: {EXAMPLE}",
        allow_abbrev=False,
    )
    parser.add_argument("--trial", help="module:Class of a trial to train, instead of a script")
    parser.add_argument("script", metavar="SCRIPT...", nargs=argparse.REMAINDER, help="what to run, and its arguments")

    torch_options, rest = split(args, is_program)
    if rest and rest[0].startswith("-") and rest[0] != "--" and not _is_ours(rest[0]):
        parser.error(
            f"{rest[0]} is an option neither of this launcher nor, as far as we know, of torch.distributed.run. "
            f"Close options for torch with --, for example: {EXAMPLE}"
        )
    options = parser.parse_args(rest)
    if options.trial is not None and options.script:
        _leave(parser, f"--trial {options.trial} takes no further arguments, and there is {options.script[0]!r}.")
    if options.trial is None and not options.script:
        _leave(parser, f"there is no script to run. Name one, for example: {EXAMPLE}")
    return Arguments(torch_options, options.trial, options.script)


def _end_of_torch_options(args: Sequence[str]) -> int:
    """Return how many arguments at the start are known options of torch and their values."""
    at = 0
    while at < len(args):
        option, has_value, _ = args[at].partition("=")
        name = _torch_name(option)
        if name in TORCH_OPTIONS:
            at += 1 if has_value else 2
        elif name in TORCH_FLAGS:
            at += 1
        else:
            break
    return min(at, len(args))


def _torch_name(word: str) -> str:
    if word.startswith("--"):
        return word[2:].replace("_", "-")
    return TORCH_SHORT.get(word, "")


def _is_ours(word: str) -> bool:
    return word.partition("=")[0] in ("--trial", "--help", "-h")


def _leave(parser: argparse.ArgumentParser, reason: str) -> NoReturn:
    parser.print_usage(sys.stderr)
    parser.exit(1, f"{PROG}: {reason}\n")
