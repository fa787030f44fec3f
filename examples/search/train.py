"""Train the digits of model_def.py: as a trial of an experiment, or alone.

det experiment create examples/search/adaptive_asha.yaml examples/search -f
python examples/search/train.py
"""

from __future__ import annotations

import argparse
import logging

import model_def

import determined as det
from determined import pytorch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8, help="how long to train in all (default: %(default)s)")
    parser.add_argument("--save-every", type=int, metavar="EPOCHS", help="save so often, beside the best and the end")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)

    info = det.get_cluster_info()  # None in a plain `python train.py`
    if info is not None:
        hparams, latest_checkpoint = info.trial.hparams, info.latest_checkpoint
    else:
        hparams, latest_checkpoint = {"global_batch_size": 32, "lr": 0.1, "channels": 16, "dropout": 0.1}, None

    with pytorch.init(hparams=hparams) as context:
        trainer = pytorch.Trainer(model_def.DigitsTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            checkpoint_period=pytorch.Epoch(args.save_every) if args.save_every else None,
            latest_checkpoint=latest_checkpoint,
        )


if __name__ == "__main__":
    main()
