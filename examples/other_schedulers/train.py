"""One model on the ranks that torchrun starts, in a job of Slurm, in an array of jobs, or alone.

torchrun --nproc-per-node 2 examples/other_schedulers/train.py
sbatch examples/other_schedulers/slurm.sh
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from training import Training

from determined import core
from determined.experimental import core_v2

RATES = (0.3, 0.1, 0.03, 0.01)
JOB = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")  # the same after a requeue
TASK = os.environ.get("SLURM_ARRAY_TASK_ID", "0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=9, help="how long to train (default: %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hparams = {"lr": RATES[int(TASK) % len(RATES)], "hidden": 32}
    described = core_v2.Config(
        name="digits-slurm",
        hparams=hparams,
        searcher={"name": "single", "metric": "loss", "smaller_is_better": True},
        external_experiment_id=f"slurm-{JOB}" if JOB else None,
        external_trial_id=TASK if JOB else None,
    )
    dist.init_process_group("gloo")
    ranks = core.DistributedContext.from_torch_distributed()
    with core_v2.init_context(config=described, distributed=ranks) as context:
        training = Training(**hparams)
        training.go_on(context)
        while training.epochs < args.epochs and not context.preempt.should_preempt():
            training.train_epoch(ranks.rank, ranks.size)
            metrics = training.report(context)
            if ranks.is_chief:
                print(f"epoch {training.epochs}   validation loss {metrics['loss']:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
