"""A secret planted wherever people put secrets is in nothing that is written: see docs/decisions/secrets.md."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import Nursery

SENTINEL = "S3NT1NELq7x9"
TOKEN = f"ghp_{SENTINEL * 3}"
TRAIN = """
import json, logging, os, sys
import torch
from torch.utils.data import TensorDataset
from determined import pytorch

logging.basicConfig(level=logging.DEBUG)
SECRET, TOKEN = os.environ["PLANTED"], "ghp_" + os.environ["PLANTED"] * 3
CONFIG = {
    "name": f"run of {TOKEN}",  # 1
    "description": f"see https://me:{SECRET}@wiki.example/page",  # 2
    "labels": ["ordinary", f"redis://:{SECRET}@cache"],  # 3
    "entrypoint": ["python", "train.py", "--wandb-key", SECRET],  # 4
    "data": {
        "secrets": {"plain": SECRET, "deep": {"list": [SECRET]}},  # 5
        "url": f"postgresql://me:{SECRET}@db/rows",  # 6
        "signed": f"https://bucket.example/x?X-Amz-Signature={SECRET}&part=1",  # 7
        "auth": {"bearer": SECRET},  # 8
        "dsn": f"host=db user=me password={SECRET}",  # 9
    },
    "environment": {"environment_variables": [f"WANDB_API_KEY={SECRET}"]},  # 10
    "searcher": {"name": "single", "metric": "error"},
}
HPARAMS = {
    "lr": 0.1, "max_tokens": 512, "pad_token": "<pad>", "tokenizer": "words",
    "service": {"apiKey": SECRET, "credentials": {"user": "me", "value": SECRET}},  # 11
    "clone": f"https://{SECRET}@git.example/repo.git",  # 12
    "certificate": f"-----BEGIN PRIVATE KEY-----\\n{SECRET}\\n-----END PRIVATE KEY-----",  # 13
}

class Line(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        assert context.get_hparams()["service"]["apiKey"] == SECRET  # training has the real values
        assert context.get_data_config()["secrets"]["plain"] == SECRET
        assert context.get_experiment_config()["data"]["auth"]["bearer"] == SECRET
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"error": self.model(batch[0]).square().mean()}

    def build_training_data_loader(self):
        return pytorch.DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=2)

    build_validation_data_loader = build_training_data_loader

with pytorch.init(hparams=HPARAMS, exp_conf=CONFIG, seed=5) as context:
    print("a line of mine", TOKEN, f"mysql://me:{SECRET}@db")  # 14
    print(HPARAMS["certificate"])
    logging.getLogger("determined.core").warning("connecting to %s", CONFIG["data"]["url"])  # 15
    pytorch.Trainer(Line(context), context).fit(
        max_length=pytorch.Batch(4), checkpoint_period=pytorch.Batch(2), validation_period=pytorch.Batch(2),
        latest_checkpoint="latest" if "--resume" in sys.argv else None,
    )
    if "--fail" in sys.argv:
        raise ConnectionError(f"postgresql://me:{SECRET}@db refused password={SECRET}")  # 16
"""
FLAGS = [
    *("--wandb-key", SENTINEL, f"--api-key={SENTINEL}", "-p", SENTINEL, "--password", SENTINEL, f"TOKEN={SENTINEL}"),
    *(f"https://me:{SENTINEL}@host/x", "--lr", "0.1"),
]


VARIABLES = {"PLANTED": SENTINEL, "OMP_NUM_THREADS": "1", "WANDB_API_KEY": SENTINEL}


def run(words: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, timeout=300, cwd=directory, env={**os.environ, **VARIABLES}, check=False
    )


def det(directory: Path, *words: str) -> str:
    done = run([sys.executable, "-m", "determined.cli", *words], directory)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def places_with(sentinel: str, root: Path) -> list[str]:
    """Every file below `root` whose bytes, unpacked if they are packed, hold the sentinel."""
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            content += gzip.decompress(content) if path.suffix == ".gz" else b""
            if sentinel.encode() in content:
                found.append(str(path.relative_to(root)))
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "train.py"
    path.write_text(TRAIN)
    return path


def test_a_planted_secret_is_found_nowhere(script: Path, home: Path, nursery: Nursery) -> None:
    """Issue 11, point 4: a secret in sixteen places is in no checkpoint, store, journal, export and output of ours."""
    done = run([sys.executable, str(script), *FLAGS], script.parent)
    assert done.returncode == 0, done.stderr
    own = [line for line in done.stderr.splitlines() if "determined." in line]
    assert any("connecting to postgresql://me:********@db/rows" in line for line in own)
    assert [line for line in own if SENTINEL in line] == []
    assert nursery.run_script(script, *FLAGS, "--resume", **VARIABLES).returncode == 0
    assert "ConnectionError" in nursery.run_script(script, *FLAGS, "--fail", **VARIABLES).stderr
    shown = [det(script.parent, *words) for words in SHOWN]
    det(script.parent, "store", "export", str(home / "copy.gz"))
    assert (home / "copy.gz").is_file()
    assert list(home.rglob("load_data.json"))
    assert places_with(SENTINEL, home) == []
    assert [words for words, text in zip(SHOWN, shown, strict=True) if SENTINEL in text] == []
    assert all(word in shown[1] for word in ("<pad>", "512", "words", "ordinary", "me:********@db/rows"))
    saved = json.loads(next(home.rglob("load_data.json")).read_text())["hparams"]
    assert (saved["lr"], saved["max_tokens"], saved["pad_token"], saved["tokenizer"]) == (0.1, 512, "<pad>", "words")


SHOWN = [
    ("e", "describe", "1", "--json"),
    ("e", "config", "1"),
    ("compare", "--last", "2", "--all"),
    ("t", "logs", "1"),
    ("e", "ls"),
    ("t", "describe", "1", "--json"),
]


def test_what_waits_for_the_store_has_no_secrets(script: Path, home: Path, tmp_path: Path, nursery: Nursery) -> None:
    """Issue 11, point 4: reports that are put aside on disk while the store is out of reach hold none either."""
    (tmp_path / "blocked").write_text("no directory")
    done = nursery.run_script(script, *FLAGS, "--fail", DET_STORE=str(tmp_path / "blocked" / "x"), **VARIABLES)
    assert "ConnectionError" in done.stderr
    assert list((home / "runs").rglob("unsent.jsonl"))
    assert places_with(SENTINEL, home) == []
