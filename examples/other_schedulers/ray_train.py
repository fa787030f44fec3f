"""One model on several workers of Ray Train; the run is a trial in our store, and a worker group that fails goes on.

python examples/other_schedulers/ray_train.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from training import Training

from determined import client, core
from determined.experimental import core_v2

try:
    import ray
    import ray.train
    from ray.train.torch import TorchTrainer
    from ray_session import connect
except ImportError:
    raise SystemExit("Ray Train is not installed. Type: pip install 'ray[train]>=2.60'") from None


def train(config: dict[str, Any]) -> None:
    """What every worker does. The chief, rank 0, reports to our store; Ray Train has set up the process group."""
    torch.set_num_threads(1)
    hparams = {"lr": config["lr"], "hidden": config["hidden"]}
    described = core_v2.Config(
        name=config["name"],
        hparams=hparams,
        searcher={"name": "single", "metric": "loss", "smaller_is_better": True},
        external_experiment_id=config["name"],
        external_trial_id="0",
    )
    ranks = core.DistributedContext.from_torch_distributed()
    with core_v2.init_context(config=described, distributed=ranks) as context:
        training = Training(**hparams)
        training.go_on(context)
        while training.epochs < config["epochs"]:
            training.train_epoch(ranks.rank, ranks.size)
            metrics = training.report(context)
            ray.train.report({**metrics, "epoch": training.epochs})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=f"digits-train-{time.strftime('%Y%m%d-%H%M%S')}", help="of the run")
    parser.add_argument("--workers", type=int, default=2, help="how many train together (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=9, help="how long to train (default: %(default)s)")
    parser.add_argument("--storage", type=Path, default=Path("~/ray_results"), help="of Ray (default: %(default)s)")
    args = parser.parse_args()
    connect(cpus=args.workers)
    TorchTrainer(
        train,
        train_loop_config={"name": args.name, "epochs": args.epochs, "lr": 0.1, "hidden": 32},
        scaling_config=ray.train.ScalingConfig(num_workers=args.workers),
        run_config=ray.train.RunConfig(
            name=args.name,
            storage_path=str(args.storage.expanduser().absolute()),
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    ).fit()
    ray.shutdown()

    experiment = next(found for found in client.list_experiments() if found.external_experiment_id == args.name)
    [trial] = experiment.list_trials()
    print(f"trial {trial.id} of experiment {experiment.id}: {trial.state} after {trial.total_batches} batches")
    print(f"best loss {trial.best_metric:.4f}, checkpoint {trial.top_checkpoint().uuid}")


if __name__ == "__main__":
    main()
