"""A search by Ray Tune, with its ASHA scheduler; every sample is a trial in our store.

python examples/other_schedulers/ray_tune.py
python examples/other_schedulers/ray_tune.py --name mine     # again, after it was killed: goes on where it was
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from training import BATCHES_PER_EPOCH, Training

from determined import client
from determined.experimental import core_v2

try:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.basic_variant import BasicVariantGenerator
    from ray_session import connect
except ImportError:
    raise SystemExit("Ray Tune is not installed. Type: pip install 'ray[tune]>=2.60'") from None


class Sample(tune.Trainable):
    """One sample of the search: an epoch at a time, reported to our store and to Tune."""

    def setup(self, config: dict[str, Any], search: str, epochs: int) -> None:
        torch.set_num_threads(1)
        self.last_epoch = epochs
        self.context = core_v2.init_context(
            config=core_v2.Config(
                name=search,
                hparams=config,
                searcher={"name": "single", "metric": "loss", "smaller_is_better": True},
                external_experiment_id=search,
                external_trial_id=self.trial_id,
            )
        ).start()
        self.training = Training(**config)
        self.training.go_on(self.context)

    def step(self) -> dict[str, Any]:
        try:
            return self.train_epoch()
        except Exception as failed:
            self.context.close(type(failed), failed)  # recorded as ERROR, with its reason
            raise

    def train_epoch(self) -> dict[str, Any]:
        if self.training.epochs < self.last_epoch:
            self.training.train_epoch()
        metrics = self.training.report(self.context)
        return {**metrics, "epoch": self.training.epochs, "done": self.training.epochs >= self.last_epoch}

    def cleanup(self) -> None:
        self.context.close()  # COMPLETED, also if the scheduler has stopped it; Tune waits until this is written


def search(name: str, samples: int, epochs: int, storage: Path) -> tune.ResultGrid:
    """Run the search, or go on with one of this name that was interrupted."""
    trainable = tune.with_resources(tune.with_parameters(Sample, search=name, epochs=epochs), {"cpu": 1})
    if tune.Tuner.can_restore(storage / name):
        return tune.Tuner.restore(str(storage / name), trainable, restart_errored=True).fit()
    tuner = tune.Tuner(
        trainable,
        param_space={"lr": tune.loguniform(1e-3, 1.0), "hidden": tune.choice([16, 32, 64])},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=samples,
            search_alg=BasicVariantGenerator(random_state=7),
            scheduler=ASHAScheduler(time_attr="epoch", max_t=epochs, grace_period=1, reduction_factor=3),
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(storage),
            failure_config=tune.FailureConfig(max_failures=2),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # they are in our store
            verbose=0,
        ),
    )
    return tuner.fit()


def find_experiment(name: str) -> client.Experiment:
    return next(found for found in client.list_experiments() if found.external_experiment_id == name)


def compare(experiment: client.Experiment, results: tune.ResultGrid, console: Console) -> bool:
    """Print what our store knows about each sample beside what Tune knows; return whether they agree."""
    table = Table(title=f"Experiment {experiment.id}: {experiment.name}")
    for name in ("Trial", "Sample", "State", "Attempt", "Batches", "Best loss", "by Tune"):
        table.add_column(name, justify="left" if name in ("Sample", "State") else "right")
    theirs = {result.metrics["trial_id"]: result for result in results}
    agree = True
    for trial in experiment.list_trials():
        result = theirs.pop(trial.external_trial_id)
        best = result.metrics_dataframe["loss"].min()
        agree &= math.isclose(trial.best_metric, best, rel_tol=1e-9)  # Tune's went through a text file
        agree &= trial.total_batches == result.metrics["epoch"] * BATCHES_PER_EPOCH
        about = (trial.id, trial.external_trial_id, trial.state, trial.attempt, trial.total_batches)
        table.add_row(*map(str, about), f"{trial.best_metric:.4f}", f"{best:.4f}")
    console.print(table)
    best_by_tune = results.get_best_result(scope="all").metrics["trial_id"]
    best_trial = client.get_trial(experiment.best_trial_id)
    console.print(f"Best by Tune: {best_by_tune}. Best in our store: {best_trial.external_trial_id}.")
    console.print(f"Its checkpoint: {best_trial.top_checkpoint().uuid}")
    return agree and not theirs and best_trial.external_trial_id == best_by_tune


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=f"digits-tune-{time.strftime('%Y%m%d-%H%M%S')}", help="of the search")
    parser.add_argument("--samples", type=int, default=6, help="how many to try (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=9, help="the most that one trains (default: %(default)s)")
    parser.add_argument("--storage", type=Path, default=Path("~/ray_results"), help="of Tune (default: %(default)s)")
    args = parser.parse_args()
    connect(cpus=2)
    results = search(args.name, args.samples, args.epochs, args.storage.expanduser().absolute())
    ray.shutdown()

    console, experiment = Console(), find_experiment(args.name)
    if not compare(experiment, results, console):
        raise SystemExit("Tune and our store do NOT agree.")
    console.print("Tune and our store agree.", style="bold green")
    console.print(f"See more with: det experiment describe {experiment.id}")


if __name__ == "__main__":
    main()
