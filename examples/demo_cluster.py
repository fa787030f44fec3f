"""Search on a cluster of three nodes, cut the power of one half-way, and check what is left: `make demo-cluster`.

python examples/demo_cluster.py
python examples/demo_cluster.py --trials 12
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import demo_nodes
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from determined import client
from determined.store import attempts, checkpoints, trials
from determined.store.attempts import AttemptRow
from determined.store.schema import metrics

EXAMPLE = Path(__file__).parent / "search"
CONFIG = EXAMPLE / "cluster.yaml"
NODES = {"one": 2, "two": 1, "three": 1}
VICTIM, NEXT = "three", "four"
SAFE = (*range(91, 165), *range(225, 620))
"""Batches well before or after the rungs at which this search stops trials: whoever is there goes on for a while."""
LATE = 320
PATIENCE_SECONDS = 900.0


def here(path: Path | str) -> str:
    """The path as one would type it."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else str(path)


def det(console: Console, *arguments: str) -> None:
    """Run a command as if it were typed."""
    console.print(f"    det {shlex.join(arguments)}\n", soft_wrap=True, highlight=False)
    sys.stdout.flush()
    code = subprocess.run([sys.executable, "-m", "determined.cli", *arguments], check=False).returncode
    if code:
        raise SystemExit(code)  # it has said why


def title(console: Console, number: int, text: str) -> None:
    console.print(f"\n[bold]{number}[/]  {text}", highlight=False, soft_wrap=True)


@dataclass
class Loss:
    """An attempt that was lost with its node."""

    trial: int
    attempt: int
    reported: int
    """The last batch that it reported."""
    saved: int = 0
    """The batch of the checkpoint that the next attempt went on from."""


@dataclass
class Story:
    """What happened to a search, told as it happens."""

    console: Console
    experiment: client.Experiment
    began: float = field(default_factory=time.monotonic)
    placed: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    losses: list[Loss] = field(default_factory=list)

    def look(self) -> None:
        """Read what is new, and say it."""
        self.experiment.reload()
        with self.experiment._session.read() as conn:
            for trial in trials.of_experiment(conn, self.experiment.id):
                rows = attempts.of_trial(conn, trial.id)
                for row in rows:
                    self._say_where(conn, row, rows)
                if trial.state in ("COMPLETED", "CANCELED", "ERROR") and trial.id not in self.ended:
                    self.ended.add(trial.id)
                    best = (
                        "" if trial.searcher_metric_value is None else f", accuracy {trial.searcher_metric_value:.4f}"
                    )
                    self.say(f"trial {trial.id} has ended after {trial.total_batches:,} batches{best}")

    def say(self, text: str, style: str = "") -> None:
        seconds = int(time.monotonic() - self.began)
        self.console.print(
            f"    {seconds // 60}:{seconds % 60:02}  {text}", style=style, highlight=False, soft_wrap=True
        )

    def _say_where(self, conn: Any, row: AttemptRow, rows: list[AttemptRow]) -> None:
        key = (row.trial_id, row.attempt)
        if key in self.placed or row.pid is None:
            return
        self.placed[key] = [str(slot) for slot in row.slot_ids]
        nodes = nodes_of(self.placed[key])
        where = f"trial {row.trial_id} runs on {' and '.join(nodes)}"
        if len(nodes) > 1:
            where += ", as one model"
        if row.attempt > 1:
            where += f", from batch {self._account_for(conn, rows[row.attempt - 2])} on"
        self.say(where)

    def _account_for(self, conn: Any, before: AttemptRow) -> int:
        """Note what was lost with an attempt, if it was; return the batch that the next one goes on from."""
        newest = checkpoints.newest(conn, before.trial_id)
        saved = newest.steps if newest else 0
        if before.exit_code is None:
            self.losses.append(Loss(before.trial_id, before.attempt, reported_by(conn, before), saved))
        return saved


def nodes_of(slots: list[str]) -> list[str]:
    return list(dict.fromkeys(slot.rpartition("/")[0] for slot in slots))


def reported_by(conn: Any, attempt: AttemptRow) -> int:
    """The last batch that an attempt has reported."""
    of_attempt = (metrics.c.trial_id == attempt.trial_id, metrics.c.attempt == attempt.attempt)
    query = metrics.select().with_only_columns(metrics.c.steps).where(*of_attempt, metrics.c.steps.is_not(None))
    return conn.execute(query.order_by(metrics.c.steps.desc()).limit(1)).scalar() or 0


def worth_killing(story: Story, node: str, trials: int) -> tuple[int, int, int] | None:
    """A trial in the middle of its training over that node and another: its id, the last batch that it reported and
    that of its checkpoint. None in the first half of the search.
    """
    if len({trial for trial, _ in story.placed}) < trials / 2:
        return None
    with story.experiment._session.read() as conn:
        for row in attempts.of_controller(conn):
            nodes = nodes_of([str(slot) for slot in row.slot_ids])
            newest = checkpoints.newest(conn, row.trial_id)
            if node not in nodes or len(nodes) < 2 or newest is None:
                continue
            reported = reported_by(conn, row)
            has_work_to_lose = reported > newest.steps or reported > LATE
            if reported in SAFE and has_work_to_lose:
                return row.trial_id, reported, newest.steps
    return None


def follow(story: Story, nodes: demo_nodes.Nodes, trials: int) -> None:
    """Follow the search to its end; cut the power of a node half-way, and have another join."""
    bar = Progress(
        TextColumn("    the search"), BarColumn(30), TextColumn("{task.percentage:.0f}%"),
        console=story.console, transient=True, disable=not story.console.is_terminal,
    )  # fmt: skip
    deadline, is_cut = time.monotonic() + PATIENCE_SECONDS, False
    with bar:
        task = bar.add_task("", total=1.0)
        while True:
            story.look()
            bar.update(task, completed=story.experiment.progress or 0.0)
            if story.experiment.state.value in ("COMPLETED", "CANCELED", "ERROR"):
                break
            if not is_cut and (found := worth_killing(story, VICTIM, trials)):
                is_cut = True
                cut_power(story, nodes, *found)
            if time.monotonic() > deadline:
                raise SystemExit(f"The search did not end within {PATIENCE_SECONDS:.0f} s; see det controller logs.")
            time.sleep(0.3)
    if not is_cut:
        raise SystemExit("The search ended before a node could be killed: try again with --trials 12.")


def cut_power(story: Story, nodes: demo_nodes.Nodes, trial: int, reported: int, saved: int) -> None:
    count = nodes.kill(VICTIM)
    story.say(f"node {VICTIM} is killed with all its {count} processes", "bold red")
    story.say(f"  trial {trial} had reported batch {reported}; its newest checkpoint is of batch {saved}")
    nodes.start(NEXT, NODES[VICTIM], wait=False)
    story.say(f"node {NEXT} starts and will join")


def show_trials(console: Console, story: Story) -> None:
    table = Table(title_style="bold")
    for name, justify in (("Trial", "right"), ("State", "left"), ("Batches", "right"), ("Accuracy", "right"),
                          ("Restarts", "right"), ("Nodes", "left")):  # fmt: skip
        table.add_column(name, justify=justify)
    lost = {(loss.trial, loss.attempt) for loss in story.losses}
    with story.experiment._session.read() as conn:
        for trial in trials.of_experiment(conn, story.experiment.id):
            ways = [
                " + ".join(nodes_of(slots)) + (" [red]lost[/]" if key in lost else "")
                for key, slots in sorted(story.placed.items())
                if key[0] == trial.id
            ]
            best = "" if trial.searcher_metric_value is None else f"{trial.searcher_metric_value:.4f}"
            row = (trial.id, trial.state, f"{trial.total_batches:,}", best, trial.restarts)
            table.add_row(*map(str, row), ", then ".join(ways))
    console.print(table)


def check(story: Story) -> list[tuple[str, str, bool]]:
    """What was asked about the search afterwards: the question, the answer, and whether it is the right one."""
    experiment = story.experiment
    replay = experiment.verify()
    damage = client.Determined().store.check()
    with experiment._session.read() as conn:
        rows = trials.of_experiment(conn, experiment.id)
        trained = sum(trial.total_batches for trial in rows)
    again = sum(max(0, loss.reported - loss.saved) for loss in story.losses)
    wide = sum(len(nodes_of(slots)) > 1 for slots in story.placed.values())
    restarts = sum(trial.restarts for trial in rows)
    return [
        ("the search", experiment.state.value, experiment.state.value == "COMPLETED"),
        ("attempts over two nodes", str(wide), wide > 0),
        ("attempts lost with the node", str(len(story.losses)), len(story.losses) > 0),
        ("restarts charged for it", str(restarts), restarts == 0),
        ("reported batches trained again", f"{again} of {trained:,}", all(loss.saved > 0 for loss in story.losses)),
        (
            f"replay of {replay.events} events",
            " ".join(replay.differences) or "agrees with the store",
            not replay.differences,
        ),
        ("check of the store", " ".join(damage) or "clean", not damage),
    ]


def show_answers(console: Console, answers: list[tuple[str, str, bool]]) -> None:
    table = Table(show_header=False)
    for question, answer, is_right in answers:
        table.add_row(question, answer, "[bold green]ok[/]" if is_right else "[bold red]NOT OK[/]")
    console.print(table)


def keep(console: Console, output: Path) -> None:
    """Copy the search into a file: the demo's PostgreSQL is about to go."""
    file = output / "search.zip"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
    file.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "determined.cli", "store", "export", str(file)], **quiet)
    place = str(output / "determined.db")
    subprocess.run([sys.executable, "-m", "determined.cli", "--store", place, "store", "import", str(file)], **quiet)
    console.print("\nLook at it: the search was copied from PostgreSQL into a file.", style="bold")
    command = f"DET_HOME={here(output)} {here(Path(sys.executable).parent)}/det"
    console.print(f"    {command} ui\n    {command} experiment list", soft_wrap=True, highlight=False)


def tell(console: Console, output: Path, nodes: demo_nodes.Nodes, trials: int) -> list[tuple[str, str, bool]]:
    shown = ", ".join(f"{name} ({slots} {'slot' if slots == 1 else 'slots'})" for name, slots in NODES.items())
    title(console, 1, f"Start PostgreSQL and three Ray nodes on this machine: {shown}.")
    for name, slots in NODES.items():
        nodes.start(name, slots)
        console.print(f"    node {name} is up", highlight=False)
    title(console, 2, f"Submit a search: {trials} networks, each trained on two slots, of one node or of two.")
    settings = ["--config", f"searcher.max_trials={trials}"]
    det(console, "experiment", "create", here(CONFIG), here(EXAMPLE), *settings)
    experiment = client.list_experiments(client.ExperimentSortBy.ID, client.OrderBy.DESC, limit=1)[0]
    title(console, 3, f"Follow it, and cut the power of node {VICTIM} half-way.")
    story = Story(console, experiment)
    follow(story, nodes, trials)
    title(console, 4, "See what became of the trials, and check everything.")
    show_trials(console, story)
    answers = check(story)
    keep(console, output)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=6, help="how many to try (default: %(default)s)")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # leave as after Ctrl-C: everything is ended on the way out
    console = Console()
    output = Path(os.environ.get("DET_HOME", "demo-output")).absolute() / "cluster"
    output.mkdir(parents=True, exist_ok=True)
    os.environ.update(DET_HOME=str(output), DET_LAUNCHER="ray", DET_SLOTS="")
    with contextlib.ExitStack() as stack:
        os.environ["DET_STORE"] = stack.enter_context(demo_nodes.postgresql())
        nodes = demo_nodes.Nodes(output)
        stack.callback(nodes.close)
        os.environ.update(nodes.for_clients)
        stack.callback(stop_controller)
        answers = tell(console, output, nodes, args.trials)
    left = nodes.left_over() + demo_nodes.processes_with("DET_HOME", str(output))
    answers.append(("processes left", str(len(left)), not left))
    console.print()
    show_answers(console, answers)
    sys.exit(not all(is_right for _, _, is_right in answers))


def stop_controller() -> None:
    command = [sys.executable, "-m", "determined.cli", "controller", "stop"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted. The nodes, PostgreSQL and the controller have been ended.")
