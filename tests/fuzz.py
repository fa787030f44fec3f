"""Stop and resume at random, and compare with a run that was never stopped, bit for bit.

A seed says everything: the trial, its loader, how and where it is stopped. Forty seeds run with the tests; by hand,

    python -m tests.fuzz --minutes 10          # new seeds, until the time is over
    python -m tests.fuzz --seed 17             # one seed again, with what it stands for
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import gc
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import Batch, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext, ShouldExit
from tests.fuzz_loaders import FOREIGN, LOADERS, RECORDS, make_loader

HOOKS = ["on_training_start", "on_training_epoch_start", "on_training_epoch_end", "on_training_workload_end",
         "on_validation_start", "on_validation_end", "on_checkpoint_upload_end"]  # fmt: skip
STOPS = ["signal", "stop requested", "error", "kill", "exit before", "exit after forward", "exit while reading",
         "exit in on_training_epoch_start", "exit in on_training_epoch_end", "exit in on_validation_end"]  # fmt: skip
COMPARED = ["models_state_dict", "optimizers_state_dict", "lr_schedulers_state_dict", "scaler_state_dict", "callbacks",
            "rng_states", "data", "gradients"]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """What one seed stands for."""

    seed: int
    ranks: int
    loader: str
    noise: str  # what records draw when they are read: "none", "torch" or "all"
    workers: int
    persistent: bool
    batch_size: int
    dropout: bool
    norm: bool
    half: bool
    adam: bool
    aggregation: int
    scheduler: str
    draws_in: list[str]
    length: int
    reporting: int
    validation: int
    checkpoint: int
    asynchronous: bool
    stops: list[tuple[str, int]]

    @staticmethod
    def of(seed: int, ranks: int = 1) -> Case:
        draw = random.Random(seed)
        loader = draw.choice(LOADERS if draw.random() < 0.7 else FOREIGN)
        workers = 2 if draw.random() < (0.15 if ranks == 1 else 0.1) else 0
        length = draw.randint(6, 16)
        reporting = draw.randint(1, 8)
        stops = [(draw.choice(STOPS), draw.randint(1, length - 1)) for _ in range(draw.choice([1, 1, 2]))]
        if ranks > 1:
            stops = [(kind if kind not in ("kill", "error") else "signal", at) for kind, at in stops]
        return Case(
            seed=seed,
            ranks=ranks,
            loader=loader,
            noise=draw.choice(["none", "torch", "all"]),
            workers=workers,
            persistent=bool(workers) and draw.random() < 0.5,
            batch_size=draw.choice([2, 3, 4]),
            dropout=draw.random() < 0.6,
            norm=draw.random() < 0.3 and ranks == 1 and not any(kind == "exit after forward" for kind, _ in stops),
            half=draw.random() < 0.2,
            adam=draw.random() < 0.5,
            aggregation=draw.choice([1, 1, 2, 3]),
            scheduler=draw.choice(["none", "batch", "epoch"]),
            draws_in=[hook for hook in HOOKS if draw.random() < 0.2],
            length=length,
            reporting=reporting,
            validation=draw.choice([0, draw.randint(1, 7)]),
            checkpoint=draw.choice([0, draw.randint(1, 4)]),
            asynchronous=draw.random() < 0.2,
            stops=sorted(stops, key=lambda stop: stop[1]),
        )


def draw_some() -> None:
    random.random(), np.random.randn(), torch.rand(1)


class Told(BaseException):
    """The error that a stop of kind "error" is."""


class Watcher(PyTorchCallback):
    """Draws in hooks, counts, leaves where it is told to, and keeps what the last checkpoint would hold."""

    def __init__(self, trial: FuzzTrial) -> None:
        self.trial, self.epochs = trial, 0
        self.kept: dict[str, Any] = {}
        for hook in HOOKS:
            setattr(self, hook, self._hook(hook, getattr(super(), hook)))

    def _hook(self, hook: str, own: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> None:
            if hook in self.trial.case.draws_in:
                draw_some()
            if hook == "on_training_epoch_end":
                self.epochs += 1
            self.trial.leave_in(hook)

        # A hook counts as overridden, and costs what those cost, only if it does something.
        wanted = hook in self.trial.case.draws_in or hook == "on_training_epoch_end" or self.trial.stops_in(hook)
        return call if wanted else own

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs = state_dict["epochs"]

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        if checkpoint["progress"]["batches_trained"] == self.trial.case.length:
            kept = {key: checkpoint.get(key) for key in COMPARED}
            kept["counters"] = [checkpoint["progress"][name] for name in ("batches_trained", "epochs_trained")]
            self.kept = copy.deepcopy(kept)


class FuzzTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext, case: Case, stop: tuple[str, int] | None) -> None:
        self.context, self.case, self.stop = context, case, stop
        self.seen: list[tuple[int, str]] = []
        context.experimental.disable_dataset_reproducibility_checks()
        if case.half:
            context.experimental.use_amp(torch.bfloat16)
        layers: list[nn.Module] = [nn.Linear(3, 4)]
        if case.norm:
            layers.append(nn.BatchNorm1d(4))
        if case.dropout:
            layers.append(nn.Dropout(0.5))
        self.model = context.wrap_model(nn.Sequential(*layers, nn.Tanh(), nn.Linear(4, 1)))
        parameters = self.model.parameters()
        optimizer = torch.optim.Adam(parameters, 0.05) if case.adam else torch.optim.SGD(parameters, 0.05, momentum=0.9)
        self.optimizer = context.wrap_optimizer(optimizer)
        if case.scheduler != "none":
            mode = LRScheduler.StepMode[f"STEP_EVERY_{case.scheduler.upper()}"]
            context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9), mode)
        self.watcher = Watcher(self)

    def build_training_data_loader(self) -> Any:
        distributed, case = self.context.distributed, self.case
        return make_loader(
            case.loader,
            noise=case.noise,
            workers=case.workers,
            persistent=case.persistent,
            batch_size=case.batch_size,
            skip=self.context.get_initial_batch(),
            rank=distributed.rank,
            size=distributed.size,
            on_read=self.while_reading if case.workers == 0 else None,
        )

    def build_validation_data_loader(self) -> Any:
        data = torch.rand(RECORDS, 3, generator=torch.Generator().manual_seed(3))
        if self.case.loader in FOREIGN:
            return torch.utils.data.DataLoader(data, self.case.batch_size, shuffle=True)
        return pytorch.DataLoader(data, self.case.batch_size, shuffle=True)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"watcher": self.watcher}

    def stops_in(self, hook: str) -> bool:
        return self.stop is not None and self.stop[0] == f"exit in {hook}"

    def leave_in(self, hook: str) -> None:
        # The hook runs before the batch is counted, or after.
        if self.stop is not None and self.stops_in(hook) and len(self.seen) >= self.remaining:
            raise ShouldExit

    def while_reading(self) -> None:
        if self.stop is not None and self.stop[0] == "exit while reading" and len(self.seen) == self.remaining:
            raise ShouldExit

    @property
    def remaining(self) -> int:
        """How many batches this process trains before it is stopped."""
        assert self.stop is not None
        return self.stop[1] - self.context.get_initial_batch()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        kind, at = self.stop or ("", -1)
        if batch_idx == at and kind == "exit before":
            raise ShouldExit
        if batch_idx == at and kind == "error":
            raise Told
        if batch_idx == at and kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        loss = (self.model(batch) - batch.sum(1, keepdim=True)).square().mean()
        if batch_idx == at and kind == "exit after forward":
            raise ShouldExit
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if batch_idx == at - 1 and kind == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        if batch_idx == at - 1 and kind == "stop requested":
            self.context.set_stop_requested(True)
        self.seen.append((batch_idx, f"{batch.double().sum():.17g} {loss.item():.17g}"))
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": self.model(batch).mean() + torch.rand(())}


@dataclasses.dataclass
class Part:
    """What one `fit()` came to."""

    kept: dict[str, Any]
    seen: list[tuple[int, str]]
    newest: str | None  # the checkpoint with most batches
    is_complete: bool


def fit(case: Case, stop: tuple[str, int] | None, source: str | None) -> Part:
    """Train until it is stopped, or to the end."""
    gc.collect()  # workers of a loader end when nobody holds it
    if source is not None:  # a new process would have other streams, and another seed: the one that counts is saved
        random.seed(99), np.random.seed(99), torch.manual_seed(99)
    trial: FuzzTrial | None = None
    period = {
        f"{name}_period": Batch(value)
        for name, value in [("validation", case.validation), ("checkpoint", case.checkpoint)]
        if value
    }
    seed = case.seed if source is None else case.seed + 1
    with pytorch.init(seed=seed, aggregation_frequency=case.aggregation, enable_tensorboard_logging=False) as context:
        checkpoints = context.core_context.checkpoint
        try:
            trial = FuzzTrial(context, case, stop)
            pytorch.Trainer(trial, context).fit(
                max_length=Batch(case.length),
                reporting_period=Batch(case.reporting),
                checkpoint_policy="none",
                latest_checkpoint=source,
                checkpoint_async=case.asynchronous,
                **period,
            )
        except Told:
            pass
        newest = None
        if context.distributed.rank == 0:
            newest = max(checkpoints.list(), key=lambda i: checkpoints.get_metadata(i)["steps_completed"], default=None)
        assert trial is not None
        newest, is_complete = context.distributed.broadcast((newest, bool(trial.watcher.kept)))
        return Part(trial.watcher.kept, trial.seen, newest, is_complete)


def fit_and_be_killed(case: Case, stop: tuple[str, int], source: str | None) -> str | None:
    """The same in a process that is killed; what it leaves behind is looked for afterwards."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            fit(case, stop, source)
        os._exit(0)
    os.waitpid(pid, 0)
    found = {}
    for path in Path(os.environ["DET_HOME"], "checkpoints").glob("*/metadata.json"):
        found[path.parent.name] = json.loads(path.read_text())["steps_completed"]
    return max(found, key=lambda name: found[name], default=None)


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two states differ in a single bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if one.dtype == other.dtype and torch.equal(one, other) else [where]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{where}.{key}")]
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for i, (a, b) in pairs for found in differences(a, b, f"{where}[{i}]")]
    return [] if type(one) is type(other) and one == other else [f"{where}: {str(one)[:60]} and {str(other)[:60]}"]


def compare(case: Case) -> list[str]:
    """Train once straight through and once with stops; where they differ. Of several ranks, each does it."""
    home, rank = os.environ["DET_HOME"], os.environ.get("RANK", "0")
    os.environ["DET_HOME"] = f"{home}/straight"
    straight = fit(case, None, None)
    os.environ["DET_HOME"] = f"{home}/stopped"
    source, problems, expected = None, [], dict(straight.seen)
    for stop in [*case.stops, None]:
        if stop is not None and stop[0] == "kill":
            source = fit_and_be_killed(case, stop, source)
            continue
        part = fit(case, stop, source)
        source = part.newest
        if wrong := [idx for idx, what in part.seen if expected[idx] != what]:
            problems.append(f"rank {rank}, stop {stop}: batch {wrong[0]} is the first of {len(wrong)} that differ")
        if part.is_complete:
            break
    if not (straight.kept and part.kept) and rank == "0":
        problems.append(f"a run did not come to its end: {bool(straight.kept)} and {bool(part.kept)}")
    os.environ["DET_HOME"] = home
    gc.collect()
    return problems + differences(straight.kept, part.kept)[:8]


def compare_on_ranks(seed: int) -> list[str]:
    """What each of several ranks runs."""
    return compare(Case.of(seed, ranks=int(os.environ["WORLD_SIZE"])))


@contextlib.contextmanager
def own_place() -> Iterator[None]:
    """A data directory and a current directory for one case; nothing is recorded."""
    place, before, variables = Path(tempfile.mkdtemp(prefix="fuzz-")), Path.cwd(), dict(os.environ)
    (place / "work").mkdir()
    os.environ.update(DET_HOME=str(place / "home"), DET_TRACKING="off", DET_PROGRESS="off", DET_JOB_SECRET="fuzz")
    os.chdir(place / "work")
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(variables)
        shutil.rmtree(place, ignore_errors=True)


def run(seed: int, nursery: Any = None) -> list[str]:
    """The problems of one seed; every eighth is a case for two ranks, if there is somebody to start them."""
    with own_place():
        if seed % 8 or nursery is None:
            return compare(Case.of(seed))
        found = nursery.run(2, compare_on_ranks, [seed], env={k: os.environ[k] for k in os.environ if "DET_" in k})
        return [problem for problems in found for problem in problems]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0, help="how long to look for failures")
    parser.add_argument("--seed", type=int, help="the one seed to run, or with --minutes the first one")
    parser.add_argument("--loader", help="only cases with this loader")
    args = parser.parse_args()
    from tests.forks import Nursery

    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL if args.minutes else logging.NOTSET)
    first = args.seed if args.seed is not None else random.SystemRandom().randrange(10**6)
    end, seed, failed = time.monotonic() + args.minutes * 60, first, []
    with Nursery() as nursery:
        while seed == first or time.monotonic() < end:
            case = Case.of(seed, ranks=1 if seed % 8 else 2)
            if args.loader is None or case.loader == args.loader:
                try:
                    problems = run(seed, nursery)
                except Exception:
                    problems = traceback.format_exc().splitlines()[-6:]
                if problems or not args.minutes:
                    print(case)
                    print(f"seed {seed}: " + ("\n  ".join(["FAILED", *problems]) if problems else "equal"), flush=True)
                failed += [seed] if problems else []
            seed += 1
    print(f"{seed - first} seeds from {first}, {len(failed)} failed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    from tests import fuzz  # under its own name, by which ranks find it

    fuzz.main()
