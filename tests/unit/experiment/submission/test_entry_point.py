"""What an experiment runs has to be in its code; what cannot be known beforehand is let through."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from determined.errors import ConfigError
from determined.experiment.submission.entry_point import check, check_class

PATHS = ["train.py", "pkg/__init__.py", "pkg/model.py", "run.sh", "space/inner.py", "native.cpython-311.so"]
LAUNCH = "python3 -m determined.launch.torch_distributed"


@pytest.mark.parametrize(
    "entrypoint",
    [
        "python3 train.py --epochs 1",
        "python train.py",
        "A=1 B='x y' python3.11 -u -W ignore ./train.py",
        ["python3", "-X", "dev", "train.py"],
        "python3 -m pkg.model",
        "python3 -m pkg",
        "python3 -m space.inner",
        "python3 -m json.tool",
        "python3 -c 'print(1)'",
        "./run.sh now",
        "bash run.sh",
        "bash -c 'python3 other.py'",
        f"{LAUNCH} python3 train.py",
        f"{LAUNCH} --rdzv_endpoint=h:1 -- python3 train.py",
        f"{LAUNCH} --trial pkg.model:Net",
        "torchrun --nproc_per_node 2 train.py --data x.py",
        "pkg.model:Net",
        "native:Net",
        "cd sub && python3 other.py",
        "python3 $SCRIPT",
        "python3 'unclosed",
        "nobody-knows-this --at all.py",
        "python3",
        "/bin/sh -c true",
        "python3 mounted/other.py",
    ],
)
def test_what_is_there_or_cannot_be_known(entrypoint: str | Sequence[str]) -> None:
    """Issue 14: nothing is refused that might run."""
    check(entrypoint, PATHS, where="model", mounted=["./mounted"])


@pytest.mark.parametrize(
    ("entrypoint", "said"),
    [
        ("python3 trian.py", r"runs trian\.py, which is not in model\. Did you mean 'train\.py'"),
        (["python3", "other.py"], r"runs other\.py, which is not in model"),
        ("X=1 python3 -u sub/train.py", r"runs sub/train\.py"),
        ("python3 ../train.py", r"runs \.\./train\.py"),
        ("python3 /nowhere/train.py", "is not on this machine"),
        ("python3 -m pkg.other", "python -m pkg.other, of the module pkg.other, which is not in model"),
        ("python3 -m nobody_has_this", "python -m nobody_has_this"),
        ("./go.sh", r"runs \./go\.sh"),
        ("bash go.sh", r"runs go\.sh"),
        (f"{LAUNCH} python3 other.py", r"runs other\.py"),
        (f"{LAUNCH} --rdzv_endpoint=h:1 -- python3 other.py", r"runs other\.py"),
        (f"{LAUNCH} --trial modl:Net", "--trial modl:Net"),
        ("torchrun --nproc_per_node 2 other.py", r"runs other\.py"),
        ("modl:Net", "entrypoint is modl:Net, of the module modl, which is not in model"),
        ("pkg.modl:Net", "entrypoint is pkg.modl:Net"),
    ],
)
def test_what_is_not_there(entrypoint: str | Sequence[str], said: str) -> None:
    """Issue 14: a script, a module or a class that is not in the code is one sentence, with the nearest name."""
    with pytest.raises(ConfigError, match=said) as raised:
        check(entrypoint, PATHS, where="model", mounted=["mounted"])
    assert "\n" not in str(raised.value)


def test_why_it_is_not_there() -> None:
    """A script that was left out as a secret, and a missing directory, are named as such."""
    with pytest.raises(ConfigError, match=r"train\.py is left out of the code because it looks like it holds a key"):
        check("python3 train.py", [], where="model", withheld=["train.py"])
    with pytest.raises(ConfigError, match=r"no directory was given\. Name the directory"):
        check("python3 train.py", [], where="no directory was given")
    with pytest.raises(ConfigError, match=r"searcher\.method is mine:Search"):
        check_class("searcher.method", "mine:Search", PATHS, where="model")
