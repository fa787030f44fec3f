"""Guess the next letter of a text: mixed precision, aggregated gradients, clipping and a learning rate schedule.

python examples/char_lm/train.py
python examples/char_lm/train.py --text my.txt --latest-checkpoint latest --batches 4000
"""

from __future__ import annotations

import argparse
import logging
import math
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import determined
from determined import pytorch

HPARAMS = {"global_batch_size": 64, "lr": 4e-3, "length": 16, "width": 24, "hidden": 256, "dropout": 0.2}
LICENSE = Path(__file__).parents[2] / "LICENSE"


class Text(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pieces of a text, each with the letter that follows."""

    def __init__(self, letters: torch.Tensor, length: int) -> None:
        self.letters, self.length = letters, length

    def __len__(self) -> int:
        return len(self.letters) - self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.letters[index : index + self.length], self.letters[index + self.length]


class CharTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        text = Path(context.get_hparam("text")).read_text()
        self.alphabet = sorted(set(text))
        number = {letter: i for i, letter in enumerate(self.alphabet)}
        self.text = torch.tensor([number[letter] for letter in text])
        self.length, width, hidden, dropout = map(context.get_hparam, ("length", "width", "hidden", "dropout"))

        context.experimental.use_amp(dtype=torch.bfloat16)  # before the model: its forward pass runs in bfloat16
        self.model = context.wrap_model(
            nn.Sequential(
                *(nn.Embedding(len(self.alphabet), width), nn.Flatten()),
                *(nn.Linear(self.length * width, hidden), nn.ReLU(), nn.Dropout(dropout)),
                nn.Linear(hidden, len(self.alphabet)),
            )
        )
        self.optimizer = context.wrap_optimizer(
            torch.optim.AdamW(self.model.parameters(), lr=context.get_hparam("lr"), fused=True)
        )
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.LambdaLR(self.optimizer, warm_up_and_decay),
            pytorch.LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP,
        )

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        pieces = Text(self.text[: len(self.text) * 9 // 10], self.length)
        return pytorch.DataLoader(pieces, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        pieces = Text(self.text[len(self.text) * 9 // 10 :], self.length)
        return pytorch.DataLoader(pieces, batch_size=500)

    def bits(self, batch: Any) -> torch.Tensor:
        """Bits per letter: how surprised the model is."""
        letters, following = batch
        return F.cross_entropy(self.model(letters), following) / math.log(2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        bits = self.bits(batch)
        self.context.backward(bits)
        # With aggregation_frequency=2 this steps on every second batch, with the average of two gradients.
        self.context.step_optimizer(self.optimizer, clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 1.0))
        return {"bits": bits}

    def evaluate_batch(self, batch: Any) -> dict[str, torch.Tensor]:
        return {"validation_bits": self.bits(batch)}

    def evaluation_reducer(self) -> pytorch.Reducer:
        return pytorch.Reducer.RECORD_AVG  # the last batch is shorter, and counts for less


def warm_up_and_decay(step: int) -> float:
    return min((step + 1) / 50, 1.0) * 0.5 ** (step / 400)


@torch.no_grad()
def write(trial: CharTrial, prompt: str, length: int) -> str:
    """The prompt, continued by the model."""
    trial.model.eval()
    letters = [trial.alphabet.index(letter) for letter in prompt]
    for _ in range(length):
        seen = torch.tensor([letters[-trial.length :]], device=trial.context.device)
        chances = trial.model(seen)[0].div(0.5).softmax(dim=0)
        letters.append(int(torch.multinomial(chances, 1)))
    return "".join(trial.alphabet[letter] for letter in letters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=2000, help="how long to train in all (default: %(default)s)")
    parser.add_argument("--text", default=str(LICENSE), help="what to learn (default: the licence of this repository)")
    parser.add_argument("--latest-checkpoint", metavar="ID", help="go on from this id, directory, 'latest' or 'best'")
    parser.add_argument("--test", action="store_true", help="train one batch, to see that everything works")
    parser.add_argument("--verbose", action="store_true", help="show what happens as log lines")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, format=determined.LOG_FORMAT)
    torch.set_num_threads(1)  # quickest for a model as small as this

    hparams = {**HPARAMS, "text": args.text}
    searcher = {"metric": "validation_bits", "smaller_is_better": True}
    with pytorch.init(hparams=hparams, exp_conf={"searcher": searcher}, aggregation_frequency=2, seed=7) as context:
        trial = CharTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(args.batches),
            validation_period=pytorch.Batch(500),
            latest_checkpoint=args.latest_checkpoint,
            test_mode=args.test,
        )
    print(write(trial, prompt="      2. Grant of", length=300))


if __name__ == "__main__":
    main()
