"""Random augmentation in loader workers: a run that was stopped and resumed sees the same pixels as one that was not.

python examples/augmentation/train.py
python examples/augmentation/train.py --workers 4
"""

from __future__ import annotations

import argparse
import logging
import random
import zlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, Subset

import determined
from determined import pytorch

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("The digits come with scikit-learn. Type: pip install 'resolute[examples]'") from None

HPARAMS = {"global_batch_size": 48, "lr": 2e-3}


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """The digits of scikit-learn; augmented, each is turned, moved and blurred by chance whenever it is read."""

    def __init__(self, augmented: bool) -> None:
        pixels, self.labels = load_digits(return_X_y=True)
        self.images = torch.tensor(pixels / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
        self.augmented = augmented

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.images[index]
        if self.augmented:  # the global random streams: in a worker they belong to the batch
            turn = torch.tensor(random.uniform(-0.3, 0.3))
            x, y = (torch.rand(2) - 0.5) * 0.3
            way = torch.stack([torch.stack([turn.cos(), -turn.sin(), x]), torch.stack([turn.sin(), turn.cos(), y])])
            grid = F.affine_grid(way[None], [1, 1, 8, 8], align_corners=False)
            image = F.grid_sample(image[None], grid, align_corners=False)[0] + 0.05 * torch.randn(1, 8, 8)
        return image, int(self.labels[index])


class AugmentedTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, workers: int) -> None:
        self.context = context
        self.workers = workers
        self.seen = Seen()
        self.model = context.wrap_model(
            nn.Sequential(
                *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
            )
        )
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), context.get_hparam("lr")))

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(
            Subset(Digits(augmented=True), range(1440)),
            batch_size=self.context.get_per_slot_batch_size(),
            shuffle=True,
            num_workers=self.workers,
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(Subset(Digits(augmented=False), range(1440, 1797)), batch_size=119)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        self.seen.add(images)
        loss = F.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, torch.Tensor]:
        images, labels = batch
        return {"accuracy": (self.model(images).argmax(dim=1) == labels).float().mean()}

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"seen": self.seen}


class Seen(pytorch.PyTorchCallback):
    """A fingerprint of all pixels that were trained on. It is saved, so a resumed run goes on with it."""

    def __init__(self) -> None:
        self.fingerprint = 0
        self.last = torch.zeros(8, 8)

    def add(self, images: torch.Tensor) -> None:
        self.fingerprint = zlib.crc32(images.cpu().numpy().tobytes(), self.fingerprint)
        self.last = images[0, 0]

    def state_dict(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.fingerprint = state_dict["fingerprint"]


def train(batches: int, workers: int, latest_checkpoint: str | None = None) -> AugmentedTrial:
    with pytorch.init(hparams=HPARAMS, seed=7) as context:
        trial = AugmentedTrial(context, workers)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", latest_checkpoint=latest_checkpoint
        )
    return trial


def picture(image: torch.Tensor) -> list[str]:
    return ["".join(" .:-=+*#%@"[int(min(max(pixel, 0), 0.99) * 10)] * 2 for pixel in row) for row in image.tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200, help="how long to train (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes that load (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="show what happens as log lines")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, format=determined.LOG_FORMAT)
    torch.set_num_threads(1)  # quickest for a model as small as this

    straight = train(args.batches, args.workers)
    train(args.batches // 2, args.workers)
    resumed = train(args.batches, workers=1, latest_checkpoint="latest")

    print("the last image of an uninterrupted run, and of one that was stopped and resumed:\n")
    for left, right in zip(picture(straight.seen.last), picture(resumed.seen.last), strict=True):
        print(f"    {left}    {right}")
    print(f"\nall pixels:  {straight.seen.fingerprint:08x}            {resumed.seen.fingerprint:08x}")
    print("the same" if straight.seen.fingerprint == resumed.seen.fingerprint else "NOT the same")


if __name__ == "__main__":
    main()
