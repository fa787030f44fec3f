"""A small network for handwritten digits: what all experiments in this directory train."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset, random_split

from determined import pytorch

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("The digits come with scikit-learn. Type: pip install 'resolute[examples]'") from None


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        channels, dropout = context.get_hparam("channels"), context.get_hparam("dropout")
        self.model = context.wrap_model(
            nn.Sequential(
                *(nn.Conv2d(1, channels, 3, padding=1), nn.ReLU()),
                *(nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Dropout(dropout), nn.Linear(2 * channels * 4 * 4, 10)),
            )
        )
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"), momentum=0.9)
        )
        pixels, labels = load_digits(return_X_y=True)  # 1,797 images of 8 x 8 pixels: real data, no download
        images = torch.tensor(pixels / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
        digits = TensorDataset(images, torch.tensor(labels))
        self.train_set, self.validation_set = random_split(digits, [1437, 360], torch.Generator().manual_seed(0))

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(self.train_set, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(self.validation_set, batch_size=120)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        loss = F.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, torch.Tensor]:
        images, labels = batch
        scores = self.model(images)
        accuracy = (scores.argmax(dim=1) == labels).float().mean()
        return {"validation_loss": F.cross_entropy(scores, labels), "accuracy": accuracy}
