"""A GAN: two models and two optimizers in one trial, learning eight spots on a circle. Ends with a picture.

python examples/gan/train.py
python examples/gan/train.py --latest-checkpoint latest --epochs 200
"""

from __future__ import annotations

import argparse
import logging
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import determined
from determined import pytorch

HPARAMS = {"global_batch_size": 256, "lr": 1e-3, "noise_dim": 8, "hidden": 64}
ANGLES = torch.arange(8) * (math.pi / 4)
SPOTS = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)  # where real points lie, each with a deviation of 0.05


def real_points(number: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    spots = SPOTS[torch.randint(len(SPOTS), (number,), generator=generator)]
    return spots + 0.05 * torch.randn(number, 2, generator=generator)


def network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(inputs, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2)),
        nn.Linear(hidden, outputs),
    )


class GanTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.noise_dim, hidden, lr = (context.get_hparam(name) for name in ("noise_dim", "hidden", "lr"))
        self.generator = context.wrap_model(network(self.noise_dim, hidden, 2))
        self.discriminator = context.wrap_model(network(2, hidden, 1))
        self.generator_optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.generator.parameters(), lr, betas=(0.5, 0.99))
        )
        self.discriminator_optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.discriminator.parameters(), lr, betas=(0.5, 0.99))
        )

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(real_points(20 * 256, seed=1), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(real_points(512, seed=2), batch_size=512)

    def fakes(self, number: int) -> torch.Tensor:
        return self.generator(torch.randn(number, self.noise_dim, device=self.context.device))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        self.discriminator.requires_grad_(False)  # it only judges here, so it needs no gradients
        fakes = self.fakes(len(batch))
        generator_loss = F.softplus(-self.discriminator(fakes)).mean()
        self.context.backward(generator_loss)
        self.context.step_optimizer(self.generator_optimizer)
        self.discriminator.requires_grad_(True)

        real = batch.clone().requires_grad_(True)
        judged = self.discriminator(real)
        (slope,) = torch.autograd.grad(judged.sum(), real, create_graph=True)
        loss = F.softplus(-judged).mean() + F.softplus(self.discriminator(fakes.detach())).mean()
        self.context.backward(loss + 0.1 * slope.square().sum(dim=1).mean())  # flat around real points: it settles
        self.context.step_optimizer(self.discriminator_optimizer)
        return {"generator_loss": generator_loss, "discriminator_loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        distance, nearest = torch.cdist(self.fakes(len(batch)), SPOTS.to(batch)).min(dim=1)
        hits = nearest[distance < 0.25].bincount(minlength=len(SPOTS))
        return {"spots": (hits > len(batch) // 40).sum(), "near": (distance < 0.25).float().mean()}


@torch.no_grad()
def picture(trial: GanTrial, rows: int = 21, columns: int = 45) -> str:
    """4,000 generated points, the darker the more."""
    points = trial.fakes(4000).cpu().clamp(-1.39, 1.39)
    cells = torch.histogramdd(points, bins=[columns, rows], range=[-1.4, 1.4, -1.4, 1.4]).hist.T.flip(0)
    shades = " .:-=+*#%@"
    return "\n".join("".join(shades[min(int(math.log2(1 + n) * 1.5), 9)] for n in row) for row in cells.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100, help="how long to train in all (default: %(default)s)")
    parser.add_argument("--latest-checkpoint", metavar="ID", help="go on from this id, directory or 'latest'")
    parser.add_argument("--test", action="store_true", help="train one batch, to see that everything works")
    parser.add_argument("--verbose", action="store_true", help="show what happens as log lines")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, format=determined.LOG_FORMAT)
    torch.set_num_threads(1)  # quickest for a model as small as this

    with pytorch.init(hparams=HPARAMS, seed=7) as context:
        trial = GanTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(5),
            checkpoint_policy="none",
            latest_checkpoint=args.latest_checkpoint,
            test_mode=args.test,
        )
    print(picture(trial))


if __name__ == "__main__":
    main()
