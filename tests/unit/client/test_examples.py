"""Every example in the SDK's docstrings, and every block of its guide, runs as it is written."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from determined import client
from determined.client import _default
from tests.history import History

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "sdk.md"
UUID = "f57e2b0c-0000-4000-8000-000000000000"
EXAMPLE = re.compile(r"Example::\n\n((?:(?:    .*)?\n)+)", re.MULTILINE)
NOT_HERE = {
    "login",
    "create_experiment",
    "submit",
    "fork",
    "continue_",
    "download_code",
    "packed_code",
    "activate",
    "pause",
    "cancel",
    "kill",
}  # for other stores


def examples() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Where an example stands, what its module knows, and its code."""
    for module_info in pkgutil.iter_modules(client.__path__):
        module = importlib.import_module(f"determined.client.{module_info.name}")
        found = [("", module)]
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", "") == module.__name__:
                found.append((name, thing))
                if inspect.isclass(thing):
                    found += [(f"{name}.{inner}", value) for inner, value in vars(thing).items() if callable(value)]
                    found += [(f"{name}.{inner}", v) for inner, v in vars(thing).items() if isinstance(v, property)]
        for name, thing in found:
            if name.split(".")[-1] in NOT_HERE:
                continue
            for code in EXAMPLE.findall((inspect.getdoc(thing) or "") + "\n"):
                yield f"{module_info.name}-{name}", vars(module), textwrap.dedent(code)


FOUND = list({place: (place, known, code) for place, known, code in examples()}.values())


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs; the seventh has what examples want to look at."""
    root = tmp_path_factory.mktemp("past")
    with History(root) as history:
        for number in range(1, 13):
            values = {step: {"loss": 1 / step, "accuracy": step / 1000} for step in (100, 900)}
            run = history.run(
                f"run {number}",
                config={"searcher": {"metric": "loss"}},
                hparams={"lr": number / 10},
                labels=["cifar"],
                training=values,
                validation=values,
                environment={"git": {"commit": "4f1c22", "dirty": False}},
                tensorboard=str(root / "tensorboard"),
                lines=["ERROR: hot", "fine"],
            )
            if number in (5, 7):
                history.save(run, 100)
                history.save(run, 900, storage_id=UUID if number == 7 else None)
            if number == 5:
                registered = run.uuids
    with client.Determined(store=root / "runs.db") as runs:
        runs.create_workspace("vision").create_project("cifar")
        model = runs.create_model("digits")
        for uuid in registered:
            model.register_version(uuid)
        runs.store.export(root / "runs.det", [1])
    return root


@pytest.fixture
def world(past: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A copy of that past, and the names that examples use."""
    for name in ("runs.db", "runs.det"):
        shutil.copy(past / name, tmp_path / name)
    shutil.copytree(past / "checkpoints", tmp_path / "kept")
    monkeypatch.setattr(_default, "_logged_in", None)
    monkeypatch.setattr(_default, "_local", None)
    monkeypatch.setenv("DET_STORE", str(tmp_path / "runs.db"))
    monkeypatch.chdir(tmp_path)
    runs = client.connect()
    model = runs.get_model("digits")
    yield {
        "client": client,
        "experiment": runs.get_experiment(7),
        "trial": runs.get_trial(7),
        "trial_a": runs.get_trial(3),
        "trial_b": runs.get_trial(4),
        "checkpoint": runs.get_checkpoint(UUID),
        "model": model,
        "version": model.get_version(),
        "json": json,
        "Path": Path,
        "plt": SimpleNamespace(plot=lambda *args, **kwargs: None),
        "subprocess": SimpleNamespace(run=lambda *args, **kwargs: None),
    }
    runs.close()
    shutil.rmtree(past / "checkpoints")
    shutil.move(tmp_path / "kept", past / "checkpoints")


@pytest.mark.parametrize(("place", "known", "code"), FOUND, ids=[place for place, _, _ in FOUND])
def test_docstring(place: str, known: dict[str, Any], code: str, world: dict[str, Any]) -> None:
    """style.md 5: a docstring's example runs."""
    vision = client.get_workspace("vision")
    if "create_model(" in code:  # what an example makes must not be there yet
        world["model"].delete()
    if "create_workspace(" in code:
        vision.delete()
    elif "create_project(" in code:
        vision.get_project("cifar").delete()
    exec(compile(code, place, "exec"), {**known, **world})  # noqa: S102  our own words


def test_guide(world: dict[str, Any]) -> None:
    """The blocks of the guide run one after the other."""
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)):
        if "create_experiment(" in code:  # it would train; tests/integration/test_submitted_run.py does
            continue
        exec(compile(code, f"sdk.md block {number}", "exec"), world)  # noqa: S102  our own words
