"""`det experiment pause, archive, delete, set, label, move`: changing experiments."""

from __future__ import annotations

from typing import Any

import click

from determined._wording import instead
from determined.cli import options
from determined.cli.connection import connect
from determined.cli.groups import HELP_NAMES, Group
from determined.cli.output import lists
from determined.cli.output.terminal import ask, say
from determined.cli.output.values import size
from determined.cli.running import job

experiments = click.argument("ids", metavar="ID[,ID]...", type=options.Ids(), nargs=-1, required=True,
                             shell_complete=options.experiment_ids)  # fmt: skip


def _each(ids: tuple[list[int], ...]) -> list[Any]:
    client = connect()
    return [client.get_experiment(number) for part in ids for number in part]


def _action(name: str, done: str, about: str) -> click.Command:
    """Make a command that calls the method `name` of each experiment."""

    @click.command(name, context_settings=HELP_NAMES, help=about)
    @experiments
    def act(ids: tuple[list[int], ...]) -> None:
        for experiment in _each(ids):
            getattr(experiment, name)()
            say(f"{done} experiment {experiment.id}")

    return act


activate = _action("activate", "Activated", "Let experiments run.")
pause = _action("pause", "Paused", "Have trials checkpoint and wait.")
cancel = _action("cancel", "Canceled", "Have trials checkpoint and end.")
kill = _action("kill", "Killed", "End trials now.")
archive = _action("archive", "Archived", "Hide experiments from lists; `list -a` still shows them.")
unarchive = _action("unarchive", "Unarchived", "Show archived experiments in lists again.")


@click.command(context_settings=HELP_NAMES)
@experiments
@options.yes
def delete(ids: tuple[list[int], ...], yes: bool) -> None:
    """Delete experiments with their trials, logs and checkpoints. For a while, undelete brings them back."""
    found = _each(ids)
    count, total = sum(e.checkpoint_count for e in found), sum(e.checkpoint_size for e in found)
    names = ", ".join(str(e.id) for e in found)
    ask(f"Delete experiment {names} with {count} checkpoints ({size(total)})?", yes=yes)
    for experiment in found:
        experiment.delete()
        say(f"Deleted experiment {experiment.id}. Bring it back with: det experiment undelete {experiment.id}")


@click.command(context_settings=HELP_NAMES)
@click.argument("ids", metavar="ID[,ID]...", type=options.Ids(), nargs=-1, required=True)
def undelete(ids: tuple[list[int], ...]) -> None:
    """Bring deleted experiments back, as long as they are not removed for good."""
    client = connect()
    for number in (number for part in ids for number in part):
        client.undelete_experiment(number)
        say(f"Experiment {number} is back.")


@click.command(context_settings=HELP_NAMES)
@options.experiment_id
@click.argument("workspace")
@click.argument("project")
def move(experiment_id: int, workspace: str, project: str) -> None:
    """Move an experiment to PROJECT in WORKSPACE."""
    connect().get_experiment(experiment_id).move_to_project(workspace, project)
    say(f"Moved experiment {experiment_id} to {workspace}/{project}")


@click.group("set", cls=Group)
def set_group() -> None:
    """Change what an experiment is called, what is said about it, and what is kept of it."""


@set_group.verb("name")
@options.experiment_id
@click.argument("text")
def set_name(experiment_id: int, text: str) -> None:
    """Change the name."""
    connect().get_experiment(experiment_id).set_name(text)
    say(f"Set the name of experiment {experiment_id}")


@set_group.verb("description")
@options.experiment_id
@click.argument("text")
def set_description(experiment_id: int, text: str) -> None:
    """Change the description."""
    connect().get_experiment(experiment_id).set_description(text)
    say(f"Set the description of experiment {experiment_id}")


@set_group.verb("notes")
@options.experiment_id
@click.argument("text", required=False)
def set_notes(experiment_id: int, text: str | None) -> None:
    """Change the notes; without TEXT they are read from standard input."""
    with click.open_file("-") as standard_input:
        notes = text if text is not None else standard_input.read()
    connect().get_experiment(experiment_id).set_notes(notes)
    say(f"Set the notes of experiment {experiment_id}")


@set_group.verb("priority")
@options.experiment_id
@click.argument("priority", type=click.IntRange(1, 99))
def set_priority(experiment_id: int, priority: int) -> None:
    """Change who gets slots first: 1 (first) to 99."""
    job.change(connect().get_experiment(experiment_id), "priority", priority)


@set_group.verb("weight")
@options.experiment_id
@click.argument("weight", type=click.FloatRange(min=0, min_open=True))
def set_weight(experiment_id: int, weight: float) -> None:
    """Change its share, for schedulers that share. On one machine, priority and order of submission decide."""
    job.change(connect().get_experiment(experiment_id), "weight", weight)


@set_group.verb("max-slots")
@options.experiment_id
@click.argument("max_slots", metavar="N|null", type=job.Limit())
def set_max_slots(experiment_id: int, max_slots: int | str) -> None:
    """Change how many slots it may use at once; null is no limit. Trials that run are left alone."""
    job.change(connect().get_experiment(experiment_id), "max_slots", max_slots)


@set_group.verb("gc-policy")
@options.experiment_id
@click.option("--save-experiment-best", type=click.IntRange(min=0), required=True, metavar="N", help="Of all trials.")
@click.option("--save-trial-best", type=click.IntRange(min=0), required=True, metavar="N", help="Of each trial.")
@click.option("--save-trial-latest", type=click.IntRange(min=0), required=True, metavar="N", help="Of each trial.")
@options.yes
def set_gc_policy(
    experiment_id: int, save_experiment_best: int, save_trial_best: int, save_trial_latest: int, yes: bool
) -> None:
    """Remove the checkpoints that this policy does not keep. Registered ones stay."""
    experiment, policy = (
        connect().get_experiment(experiment_id),
        (save_experiment_best, save_trial_best, save_trial_latest),
    )
    unwanted = experiment.apply_retention(*policy, dry_run=True)
    if not unwanted.removed:
        say(f"Nothing of experiment {experiment_id} has to go.")
        return
    lists.checkpoints([one for one in experiment.all_checkpoints() if one.uuid in unwanted.removed]).show()
    ask(f"Delete these {len(unwanted.removed)} checkpoints ({size(unwanted.size)})?", yes=yes)
    done = experiment.apply_retention(*policy)
    say(f"Deleted {len(done.removed)} checkpoints ({size(done.size)}).")
    if done.in_use:
        say(f"In use, so they stay: {', '.join(done.in_use)}")


@click.group(cls=Group)
def label() -> None:
    """Labels: words to find experiments by."""


@label.verb("add")
@options.experiment_id
@click.argument("labels", metavar="LABEL...", nargs=-1, required=True)
def add_label(experiment_id: int, labels: tuple[str, ...]) -> None:
    """Add labels."""
    experiment = connect().get_experiment(experiment_id)
    for word in labels:
        experiment.add_label(word)
    say(f"Added {', '.join(labels)} to experiment {experiment_id}")


@label.verb("remove")
@options.experiment_id
@click.argument("labels", metavar="LABEL...", nargs=-1, required=True)
def remove_label(experiment_id: int, labels: tuple[str, ...]) -> None:
    """Remove labels."""
    experiment = connect().get_experiment(experiment_id)
    known = sorted(experiment.labels or ())
    if missing := [word for word in labels if word not in known]:
        raise click.ClickException(
            f"Experiment {experiment_id} has no label {missing[0]!r}.{instead(missing[0], known)}"
        )
    for word in labels:
        experiment.remove_label(word)
    say(f"Removed {', '.join(labels)} from experiment {experiment_id}")
