"""Handwritten digits as a PyTorchTrial: stop it anywhere with Ctrl-C, and go on as if nothing had happened.

python examples/digits/train.py
python examples/digits/train.py --latest-checkpoint latest --epochs 40
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import signal
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import TensorDataset, random_split

import determined
from determined import pytorch

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("The digits come with scikit-learn. Type: pip install 'resolute[examples]'") from None

HPARAMS = {"global_batch_size": 32, "lr": 0.05, "dropout": 0.25}
CONFIG = {"searcher": {"metric": "accuracy", "smaller_is_better": False}}  # which validations are the best ones


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(
            nn.Sequential(
                *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Dropout(context.get_hparam("dropout")), nn.Linear(32 * 2 * 2, 10)),
            )
        )
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"), momentum=0.9)
        )
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.95),
            pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH,
        )
        self.score = Score()

        pixels, labels = load_digits(return_X_y=True)  # 1,797 images of 8 x 8 pixels: real data, no download
        images = torch.tensor(pixels / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
        self.train_set, self.validation_set = random_split(
            TensorDataset(images, torch.tensor(labels)), [1437, 360], torch.Generator().manual_seed(0)
        )

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
        right = self.model(images).argmax(dim=1) == labels
        return {"accuracy": right.float().mean()}

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"score": self.score}


class Score(pytorch.PyTorchCallback):
    """Remembers the newest and the best accuracy, over restarts too, and the newest checkpoint."""

    def __init__(self) -> None:
        self.accuracy = 0.0
        self.best = 0.0
        self.checkpoint = ""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.accuracy = metrics["accuracy"]
        self.best = max(self.best, self.accuracy)

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.checkpoint = uuid

    def state_dict(self) -> dict[str, Any]:
        return {"accuracy": self.accuracy, "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.accuracy, self.best = state_dict["accuracy"], state_dict["best"]


def interrupt(batches: int) -> None:
    """Send this process a SIGTERM after so many batches: what a cluster does before it takes the machine away."""
    steps = itertools.count(1)

    def count(*_: Any) -> None:
        if next(steps) == batches:
            os.kill(os.getpid(), signal.SIGTERM)

    register_optimizer_step_post_hook(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="how long to train in all (default: %(default)s)")
    parser.add_argument("--latest-checkpoint", metavar="ID", help="go on from this id, directory, 'latest' or 'best'")
    parser.add_argument("--lr", type=float, default=HPARAMS["lr"], help="how fast it learns (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="decides everything random (default: %(default)s)")
    parser.add_argument("--interrupt-after", metavar="BATCHES", type=int, help="have a SIGTERM sent after so many")
    parser.add_argument("--test", action="store_true", help="train one batch, to see that everything works")
    parser.add_argument("--verbose", action="store_true", help="show what happens as log lines")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, format=determined.LOG_FORMAT)
    torch.set_num_threads(1)  # quickest for a model as small as this
    if args.interrupt_after:
        interrupt(args.interrupt_after)

    hparams, latest_checkpoint, seed = {**HPARAMS, "lr": args.lr}, args.latest_checkpoint, args.seed
    if (info := determined.get_cluster_info()) is not None:  # a trial of an experiment is told these
        hparams, latest_checkpoint, seed = info.trial.hparams, info.latest_checkpoint, None

    with pytorch.init(hparams=hparams, exp_conf=CONFIG, seed=seed) as context:
        trial = DigitsTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            checkpoint_policy="best",
            latest_checkpoint=latest_checkpoint,
            test_mode=args.test,
        )
    print(f"accuracy {trial.score.accuracy:.2%}, at best {trial.score.best:.2%}")
    if trial.score.checkpoint:
        print(f"checkpoint {trial.score.checkpoint}")


if __name__ == "__main__":
    main()
