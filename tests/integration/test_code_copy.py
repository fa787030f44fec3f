"""A plain `python train.py` among data, keys and links: what its checkpoints hold, and a trial back from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from determined import artifacts
from determined.pytorch import load_trial_from_checkpoint_path

SENTINEL = "SENTINEL-90210"
SCRIPT = """
import sys
import torch
from determined import pytorch
from parts import layers

class CNNTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(layers.make())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def build_training_data_loader(self):
        return pytorch.DataLoader(torch.ones(4, 2), batch_size=1)

    def build_validation_data_loader(self):
        return self.build_training_data_loader()

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 2:
            import late
        loss = self.model(batch).sum()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.model(batch).sum()}

if __name__ == "__main__":
    with pytorch.init(exp_conf={"checkpoint_storage": sys.argv[1]}) as context:
        trainer = pytorch.Trainer(CNNTrial(context), context)
        trainer.fit(max_length=pytorch.Batch(3), checkpoint_period=pytorch.Batch(1), checkpoint_policy="none")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory as people have them."""
    root = tmp_path / "project"
    files = {
        "train.py": SCRIPT,
        "parts/__init__.py": "",
        "parts/layers.py": "import torch\ndef make():\n    return torch.nn.Linear(2, 3)\n",
        "late.py": "",
        "unused.py": SENTINEL,
        "data/rows.csv": SENTINEL,
        ".env": SENTINEL,
        "server.key": SENTINEL,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "secret.py").write_text(SENTINEL)
    (root / "linked.py").symlink_to(tmp_path / "secret.py")
    return root


def test_a_trial_comes_back_from_a_plain_script(project: Path, tmp_path: Path) -> None:
    """Issue 12, 4 and 5; issue 11, 4: code/ holds what was imported, once on the disk, and the class loads from it."""
    storage = artifacts.open_storage(tmp_path / "checkpoints")
    environment = {**os.environ, "DET_HOME": str(tmp_path / "home"), "DET_TRACKING": "off"}
    command = [sys.executable, str(project / "train.py"), str(tmp_path / "checkpoints")]
    subprocess.run(command, cwd=project, env=environment, check=True, timeout=300)
    homes = sorted(((tmp_path / "checkpoints" / i) for i in storage.list()), key=lambda home: home.stat().st_mtime_ns)
    code = [sorted(p.relative_to(home / "code").as_posix() for p in home.rglob("code/**/*.py")) for home in homes]
    imported = ["parts/__init__.py", "parts/layers.py", "train.py"]
    assert code == [imported, imported, ["late.py", *imported]]
    assert len({(home / "code" / "train.py").stat().st_ino for home in homes}) == 1
    held = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert not [path for path in held if SENTINEL.encode() in path.read_bytes()]
    storage.delete(homes[0].name)
    storage.fetch(homes[1].name, tmp_path / "downloaded")
    for place in (homes[2], tmp_path / "downloaded"):
        trial = load_trial_from_checkpoint_path(str(place))
        assert type(trial).__qualname__ == "CNNTrial"
        saved = torch.load(place / "state_dict.pth", weights_only=True)["models_state_dict"][0]
        assert torch.equal(trial.model.weight, saved["weight"])
